package jsonl

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// nested has every kind of field that Decode tells apart.
type nested struct {
	Text   string          `json:"text"`
	Count  *int            `json:"count"`
	Texts  Texts           `json:"texts"`
	Raw    json.RawMessage `json:"raw"`
	Inner  struct{ X int } `json:"inner"`
	Deeper struct {
		Name string `json:"name"`
	} `json:"deeper"`
	There *struct {
		Y int `json:"y"`
	} `json:"there"`
	List []struct {
		Z string `json:"z"`
	} `json:"list"`
	Ours int `json:"-"`
}

// TestDecode holds Decode against encoding/json where all names are as they are
// wanted, and checks that no other name is taken for one.
func TestDecode(t *testing.T) {
	for _, text := range []string{
		`{}`, `null`, `{"text": "a", "count": 3, "texts": ["x", "y"], "raw": [1, 2], "more": {"text": 1}}`,
		`{"text": "a", "text": "b"}`, `{"deeper": {"name": "n"}, "there": {"y": 4}, "list": [{"z": "1"}, {}, {"z": "2"}]}`,
		`{"deeper": null, "there": null, "list": null, "count": null, "raw": null}`, `{"list": []}`, `{"Ours": 4, "-": 5}`,
	} {
		var got, want nested
		if err := errors.Join(Decode([]byte(text), &got), json.Unmarshal([]byte(strings.ReplaceAll(text, `"Ours"`, `"none"`)), &want)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	var both nested
	if err := Decode([]byte(`{"text": "a", "Text": "b", "deeper": {"NAME": "x", "name": "n", "Name": "y"}}`), &both); err != nil || both.Text != "a" || both.Deeper.Name != "n" {
		t.Errorf("%+v, %v: other names were taken", both, err)
	}
	for text, want := range map[string]string{
		`{"Text": "a"}`: "field Text, want text", `{"deeper": {"NAME": 1}}`: "field NAME, want name", `{"list": [{}, {"Z": 1}]}`: "field Z, want z",
		`{"there": {"Y": 1}}`: "field Y, want y", `{"text": 1}`: "field text is of type number, want string",
		`{"deeper": {"name": 1}}`: "field deeper.name is of type number", `{"list": {}}`: "field list is of type object, want array",
		`{"deeper": []}`: "field deeper is of type array, want object", `{"texts": [1]}`: "want a list of strings", `{"text": `: "the line ends",
	} {
		var v nested
		err := Decode([]byte(text), &v)
		if err == nil {
			t.Errorf("%s is read as %+v", text, v)
		} else if err = Explain([]byte(text), err); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
