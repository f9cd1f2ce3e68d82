package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestRefused has schemas that are not honoured, with the path and a word of the error.
func TestRefused(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 300) + `true` + strings.Repeat("}", 300)
	for _, c := range []struct{ schema, path, word string }{
		{``, "#", "not JSON"},
		{`{`, "#", "not JSON"},
		{`{} {}`, "#", "more follows"},
		{`{"type": "string", "type": "null"}`, "#", "two members"},
		{"{\"title\": \"\xff\"}", "#", "UTF-8"},
		{strings.Repeat(" ", maxSchema+1), "#", "bytes"},
		{deep, "#", "inside each other"},
		{`5`, "#", "an object, true or false"},
		{`{"type": "float"}`, "#", "types are"},
		{`{"type": []}`, "#", "an array of them"},
		{`{"properties": {"a": {"items": {"oneOf": []}}}}`, "#/properties/a/items", "anyOf"},
		{`{"properties": {"a/b~\n": {"not": {}}}}`, `#/properties/"a~1b~0\n"`, "not honoured"},
		{`{"patternProperties": {}}`, "#", "additionalProperties"},
		{`{"minimum": 1, "maximun": 2}`, "#", "maximun"},
		{`{"uniqueItems": true}`, "#", "uniqueItems"},
		{`{"type": "string", "nullable": true}`, "#", "null"},
		{`{"items": [{}]}`, "#", "prefixItems"},
		{`{"$ref": "other.json"}`, "#", "$ref"},
		{`{"$ref": "#/$defs/a"}`, "#", "names nothing"},
		{`{"$ref": "#/items/7", "items": []}`, "#", "beside"},
		{`{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}`, "#/$defs/a", "refers to itself"},
		{`{"$ref": "#"}`, "#", "refers to itself"},
		{`{"anyOf": []}`, "#", "at least one"},
		{`{"anyOf": [{}], "type": "object"}`, "#", "beside anyOf"},
		{`{"allOf": [{}, {}]}`, "#", "one schema"},
		{`{"enum": []}`, "#", "at least one"},
		{`{"enum": ["a"], "maxLength": 3}`, "#", "beside enum"},
		{`{"enum": ["a"], "type": "integer"}`, "#", "no value"},
		{`false`, "#", "no value"},
		{`{"type": "object", "properties": {"a": false}, "required": ["a"]}`, "#", "no value"},
		{`{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}`, "#", "no value"},
		{`{"type": "array", "items": {"$ref": "#"}, "minItems": 1}`, "#", "no value"},
		{`{"type": "string", "pattern": "^a^"}`, "#", "no value"},
		{`{"type": "string", "pattern": "^[\\x{D800}-\\x{DFFF}]$"}`, "#", "no value"},
		{`{"type": "string", "minLength": 3, "maxLength": 2}`, "#", "no value"},
		{`{"type": "string", "pattern": "^(aa)+$", "minLength": 3, "maxLength": 3}`, "#", "no value"},
		{`{"type": "integer", "minimum": 3, "maximum": 2}`, "#", "no value"},
		{`{"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}`, "#", "no value"},
		{`{"type": "string", "minLength": -1}`, "#", "at least 0"},
		{`{"type": "array", "maxItems": 1.5}`, "#", "whole number"},
		{`{"type": "number", "minimum": 1e999999999}`, "#", "digits"},
		{`{"type": "number", "minimum": 1e-30}`, "#", "digits"},
		{`{"type": "number", "exclusiveMinimum": true}`, "#", "want a number"},
		{`{"type": "number", "multipleOf": 0.01}`, "#", "multipleOf"},
		{`{"type": "integer", "multipleOf": 0}`, "#", "multipleOf"},
		{`{"type": "string", "pattern": "a("}`, "#", "RE2"},
		{`{"type": "string", "pattern": "(?=a)"}`, "#", "RE2"},
		{`{"type": "string", "pattern": "(a|b)*a(a|b){20}"}`, "#", "too large"},
		{`{"type": "string", "pattern": "^(((a{0,100}){0,100}){0,100})$"}`, "#", "RE2"},
		{`{"type": "string", "pattern": "(x+x+)+y", "maxLength": 30000}`, "#", "below"},
		{`{"type": "string", "format": "iri"}`, "#", "date-time"},
		{`{"enum": ["` + strings.Repeat("a", maxWord+1) + `"]}`, "#", "bytes"},
		{manyOptional(5000), "#", "required"},
		{manyPatterns(99, `\\p{L}{1,1000}%d^`), "#/anyOf/", "too large"},
		{`{"anyOf": [` + strings.Repeat(`{"type": "array", "items": {"type": "null"}},`, maxAlike) + `{"type": "array"}]}`, "#", "join them"},
		{`{"enum": [[` + strings.Repeat(`0,`, maxAtoms) + `0]]}`, "#", "in all"},
		{manyPatterns(101, `^a%d$`), "#/anyOf/100", "more than 100"},
	} {
		_, err := Compile([]byte(c.schema), Options{})
		refused := new(SchemaError)
		if !errors.As(err, &refused) {
			t.Errorf("%.80s: error %v, want a SchemaError", c.schema, err)
			continue
		}
		if !strings.HasPrefix(refused.Path, c.path) || !strings.Contains(refused.Message, c.word) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%.80s: error %q, want %q at %s", c.schema, err, c.word, c.path)
		}
	}
}

func manyOptional(n int) string {
	props := make([]string, n)
	for i := range props {
		props[i] = fmt.Sprintf(`"property%d":{"type":"null"}`, i)
	}
	return `{"type":"object","properties":{` + strings.Join(props, ",") + `}}`
}

func manyPatterns(n int, pattern string) string {
	alts := make([]string, n)
	for i := range alts {
		alts[i] = fmt.Sprintf(`{"type":"string","pattern":"`+pattern+`"}`, i)
	}
	return `{"anyOf":[` + strings.Join(alts, ",") + `]}`
}

// TestLarge has schemas that are large in a way that costs nothing.
func TestLarge(t *testing.T) {
	words := make([]string, 20000)
	for i := range words {
		words[i] = fmt.Sprintf(`"word number %d"`, i)
	}
	chain := `{"$defs":{`
	for i := range 5000 {
		chain += fmt.Sprintf(`"d%d":{"type":"array","items":{"$ref":"#/$defs/d%d"},"minItems":1},`, i, i+1)
	}
	chain += `"d5000":{"type":"null"}},"$ref":"#/$defs/d0"}`
	refs, forth, back := `{"$ref":"#/$defs/d0","$defs":{`, "", ""
	for i := range 5000 {
		refs += fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
		forth += fmt.Sprintf(`,"d%d":0`, i)
		back += fmt.Sprintf(`,"d%d":0`, 4999-i)
	}
	refs += `"d5000":{"type":"null"}}}`
	for _, c := range []struct{ schema, yes, no string }{
		{refs, `null`, `0`},
		{`{"type":"array","minItems":1,"prefixItems":[` + strings.Repeat(`{},{"type":"number","minimum":1},`, 8000) + `true]}`, `[-1.5e2,1]`, `[0,0]`}, // equal numbers are one automaton
		{`{"enum":[{` + forth[1:] + `}],"const":{` + back[1:] + `}}`, `{` + back[1:] + `}`, `{` + forth[1:] + `}`},
		{`{"anyOf":[` + strings.Repeat(`{"type":"array","items":{"type":"null"}},`, maxAlike-1) + `{"type":"array","items":{"type":"boolean"}},{"type":"null"}]}`, `[true]`, `[true,null]`},
		{`{"type":"array","items":{"type":"null"},"maxItems":1e9}`, `[null,null]`, `[1]`},
		{`{"type":"array","items":{"type":"null"},"minItems":1e9}`, ``, `[null]`},
		{`{"type":"string","minLength":2,"maxLength":1e300}`, `"ab"`, `"a"`},
		{`{"enum":[` + strings.Join(words, ",") + `]}`, `"word number 19999"`, `"word number 20000"`},
		{`{"anyOf":[` + strings.Repeat(`{"type":"string","pattern":"^a{3}$"},`, 300) + `false]}`, `"aaa"`, `"aa"`},
		{chain, strings.Repeat("[", 5000) + "null" + strings.Repeat("]", 5000), strings.Repeat("[", 4999) + "null" + strings.Repeat("]", 4999)},
		{`true`, strings.Repeat(`{"a":[`, 20000) + strings.Repeat("]}", 20000), strings.Repeat("[", 9)},
		// Without joining threads where they meet, each level would double them.
		{`{"$defs":{"t":{"anyOf":[{"type":"array","prefixItems":[{"$ref":"#/$defs/t"},{"type":"null"}],"items":false},{"type":"array","prefixItems":[{"$ref":"#/$defs/t"},{"type":"string"}],"items":false}]}},"$ref":"#/$defs/t"}`,
			strings.Repeat("[", 100) + "[]" + strings.Repeat(`,null]`, 50) + strings.Repeat(`,""]`, 50), "[[],1]"},
	} {
		g := mustCompile(t, c.schema, Options{})
		if c.yes != "" && !accepts(t, g, c.yes) {
			t.Errorf("%.80s does not allow %.80s", c.schema, c.yes)
		}
		if accepts(t, g, c.no) {
			t.Errorf("%.80s allows %.80s", c.schema, c.no)
		}
	}
}

// TestCompact holds the two ways of writing white space.
func TestCompact(t *testing.T) {
	for _, c := range []struct {
		text           string
		compact, loose bool
	}{
		{`{"a":[1,{}]}`, true, true},
		{`{ "a": [ 1, { } ] }`, false, true},
		{"{\n\"a\":\n[\n1\n]\n}", false, true},
		{`{"a" :1}`, false, false},
		{`{"a":1 ,"b":2}`, false, false},
		{`{  "a":1}`, false, false},
		{"{\t\"a\":1}", false, false},
		{` {}`, false, false},
		{`{} `, false, false},
	} {
		for _, o := range []Options{{Compact: true}, {}} {
			want := c.loose
			if o.Compact {
				want = c.compact
			}
			if got := accepts(t, Object(o), c.text); got != want {
				t.Errorf("%q with %+v: allowed %v, want %v", c.text, o, got, want)
			}
		}
	}
}

// TestVocabularyRefused has vocabularies with which an answer could come to a dead end.
func TestVocabularyRefused(t *testing.T) {
	all := []string{"<end>"}
	for b := range 256 {
		all = append(all, string([]byte{byte(b)}))
	}
	for _, c := range []struct {
		texts []string
		ends  []int32
		word  string
	}{
		{all, nil, "no token that ends"},
		{all, []int32{int32(len(all))}, "has 257 tokens"},
		{all, []int32{-1}, "has 257 tokens"},
		{slices.Delete(slices.Clone(all), 1+'{', 2+'{'), []int32{0}, "0x7b"},
		{slices.Delete(slices.Clone(all), 1+0x80, 2+0x80), []int32{0}, "0x80"},
		{slices.Delete(slices.Clone(all), 1+0xC2, 2+0xC2), []int32{0}, "0xc2"},
	} {
		if _, err := NewVocabulary(c.texts, c.ends); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("error %v, want %q", err, c.word)
		}
	}
	if _, err := NewVocabulary(slices.Delete(slices.Clone(all), 1, 1+' '), []int32{0}); err != nil {
		t.Errorf("without control characters: %v", err)
	}
}

// TestMatcher follows an answer with what goes wrong on the way.
func TestMatcher(t *testing.T) {
	v := testVocabulary(t, rand.New(rand.NewPCG(1, 1)))
	c := v.Bind(mustCompile(t, `{"type":"array","items":{"type":"integer"}}`, Options{}))
	m := c.Matcher()
	has := func(text string) bool {
		id := int32(slices.Index(v.texts, text))
		return m.Mask()[id/32]>>(id%32)&1 == 1
	}
	const end = 1
	if m.Done() || m.AcceptToken(end) == nil || has("{") || !has("[") {
		t.Error("the start")
	}
	for _, id := range []int32{0, -1, int32(v.Len()), int32(slices.Index(v.texts, "{"))} {
		if m.AcceptToken(id) == nil {
			t.Errorf("token %d may follow", id)
		}
	}
	if !m.Accept([]byte("[1")) || m.Accept([]byte("2,x")) || !has("2]") || m.Done() {
		t.Error("behind [1, and text that may not follow")
	}
	before := m.Clone()
	if !m.Accept([]byte("2]")) || !m.Done() || m.AcceptToken(end) != nil {
		t.Error("behind [12]")
	}
	if m.AcceptToken(end) == nil || m.Accept([]byte("1")) || len(allowedBy(m.Mask())) > 0 {
		t.Error("behind the end")
	}
	if before.Done() || !before.Accept([]byte(",3]")) || !before.Done() {
		t.Error("the clone has moved")
	}
}

// TestConcurrent shares a grammar and a vocabulary between goroutines; the race detector judges.
func TestConcurrent(t *testing.T) {
	v := testVocabulary(t, rand.New(rand.NewPCG(1, 1)))
	g := mustCompile(t, `{"properties":{"a":{"type":"string","maxLength":9},"b":{"pattern":"^[a-z]+$"}}}`, Options{})
	shared := v.Bind(g)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(i)))
			c := shared
			if i%2 == 1 {
				c = v.Bind(g)
			}
			for range 3 {
				sample(t, c, rng)
			}
		})
	}
	group.Wait()
}

// FuzzCompile compiles anything. What compiles must lead, by random allowed tokens, to JSON, and
// never to where nothing may follow; what it accepts is JSON.
func FuzzCompile(f *testing.F) {
	for seed := range 40 {
		a := &author{Rand: rand.New(rand.NewPCG(9, uint64(seed)))}
		schema, m := a.root()
		f.Add([]byte(schema), []byte(m(2)), uint64(seed))
	}
	f.Add([]byte(`{"type":"array","items":true,"minItems":1e9,"maxItems":1e10}`), []byte(`[]`), uint64(0))
	f.Add([]byte(`{"pattern":"(a*)*b(\\b|^|$){3}","minLength":7}`), []byte(`"b"`), uint64(0))
	v := testVocabulary(f, rand.New(rand.NewPCG(1, 1)))
	f.Fuzz(func(t *testing.T, schema, document []byte, seed uint64) {
		g, err := Compile(schema, Options{Compact: seed%2 == 1})
		if err != nil {
			if refused := new(SchemaError); !errors.As(err, &refused) || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 2000 {
				t.Fatalf("error %q", err)
			}
			return
		}
		c := v.Bind(g)
		if m := c.Matcher(); m.Accept(document) && m.Done() && !json.Valid(document) {
			t.Fatalf("%s allows %s", schema, document)
		}
		m := c.Matcher()
		rng := rand.New(rand.NewPCG(seed, 1))
		var text []byte
		for range 40 {
			ids := allowedBy(m.Mask())
			if len(ids) == 0 {
				t.Fatalf("%s: nothing may follow %q", schema, text)
			}
			id := ids[rng.IntN(len(ids))]
			if err := m.AcceptToken(id); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(v.ends, id) {
				if !json.Valid(text) {
					t.Fatalf("%s allows %s", schema, text)
				}
				return
			}
			text = append(text, v.texts[id]...)
		}
	})
}
