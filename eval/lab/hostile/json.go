package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
)

// jsonValue is a JSON value that need not be right: an object may have a name twice, and a plain
// jsonValue is any text.
type jsonValue struct {
	kind    byte // '{', '[', or 0 for a plain value
	names   []string
	members []*jsonValue // of an object or array
	text    string       // of a plain value
}

// parseJSON reads JSON that is right.
func parseJSON(text string) *jsonValue {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return parseValue(d)
}

func parseValue(d *json.Decoder) *jsonValue {
	token, err := d.Token()
	if err != nil {
		panic(err) // a body of this file
	}
	open, ok := token.(json.Delim)
	if !ok {
		b, _ := json.Marshal(token)
		return &jsonValue{text: string(b)}
	}
	v := &jsonValue{kind: byte(open)}
	for d.More() {
		if open == '{' {
			name, _ := d.Token()
			v.names = append(v.names, name.(string))
		}
		v.members = append(v.members, parseValue(d))
	}
	_, _ = d.Token() // the end
	return v
}

// write writes the value as JSON, if it is that.
func (v *jsonValue) write(b *bytes.Buffer) {
	if v.kind == 0 {
		b.WriteString(v.text)
		return
	}
	b.WriteByte(v.kind)
	for i, m := range v.members {
		if i > 0 {
			b.WriteByte(',')
		}
		if v.kind == '{' {
			name, _ := json.Marshal(v.names[i])
			b.Write(name)
			b.WriteByte(':')
		}
		m.write(b)
	}
	b.WriteByte(v.kind + 2) // in ASCII each bracket's other half
}

// all are the value and those in it.
func (v *jsonValue) all() (list []*jsonValue) {
	list = append(list, v)
	for _, m := range v.members {
		list = append(list, m.all()...)
	}
	return list
}

// change makes one thing of a value wrong, or only odd.
func (v *jsonValue) change(rng *rand.Rand) {
	at := pick(v.all(), rng)
	if at.kind == 0 || len(at.members) == 0 {
		*at = jsonValue{text: oddValue(rng)}
		return
	}
	i := rng.IntN(len(at.members))
	switch rng.IntN(7) {
	case 0: // drop
		at.members = append(at.members[:i:i], at.members[i+1:]...)
		if at.kind == '{' {
			at.names = append(at.names[:i:i], at.names[i+1:]...)
		}
	case 1: // double
		again := *at.members[i]
		if rng.IntN(2) == 0 {
			again = jsonValue{text: oddValue(rng)}
		}
		at.add(rng, i, &again)
	case 2, 3: // another type
		at.members[i] = &jsonValue{text: oddValue(rng)}
	case 4: // another name
		if at.kind == '{' {
			at.names[i] = oddName(rng, at.names[i])
		}
	case 5: // one deeper
		at.members[i] = &jsonValue{kind: '[', members: []*jsonValue{at.members[i]}}
	case 6: // a part of another body
		at.add(rng, i, pick(parseJSON(pick(validBodies, rng).body).all(), rng))
	}
}

// add adds a member, under the name of member i or an odd one.
func (v *jsonValue) add(rng *rand.Rand, i int, m *jsonValue) {
	if v.kind == '{' {
		name := v.names[i]
		if rng.IntN(3) == 0 {
			name = oddName(rng, name)
		}
		v.names = append(v.names, name)
	}
	v.members = append(v.members, m)
}

// oddName is a name for a field: that of another one, or nearly its own.
func oddName(rng *rand.Rand, name string) string {
	switch rng.IntN(4) {
	case 0:
		return pick([]string{
			"prompt", "messages", "tokens", "max_tokens", "stream", "n", "stop", "stop_token_ids", "ignore_eos", "min_tokens", "attn", "echo", "logprobs", "tools", "tool_choice", "functions", "suffix",
			"best_of", "response_format", "grammar", "input", "previous_response_id", "store", "content", "role", "$ref", "$defs", "pattern",
		}, rng)
	case 1:
		return strings.ToUpper(name)
	case 2:
		return name + pick([]string{"s", "\x00", "\u202e", strings.Repeat("x", 5000)}, rng)
	}
	return ""
}

// oddValue is a value where things go wrong; some are no JSON.
func oddValue(rng *rand.Rand) string {
	deep := pick([]int{3, 100, 9_990, 10_010, 20_000}, rng)
	return pick([]string{
		"null", "true", "false", "0", "-0", "-1", "1", "2", "0.5", "1e-400", "1e400", "1e999999999", "NaN", "Infinity", "-Infinity", "nan", "0x10", "01", ".5", "+1", "1_000",
		"2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1e9", "3.0", "1E2",
		`""`, `"h"`, `"NaN"`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\n\"", `"\x"`, `'h'`, `"</s><s>"`, `"[INST]"`,
		"[]", "{}", "[null]", "[[]]", `[{}]`, `{"a":1}`, `["h",1]`, `[1,"h"]`, `[-1]`, `[99999999]`, `[1.5]`, `{"type":"text","text":"h"}`, `{"$ref":"#"}`,
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, `{"type":"string","pattern":"(a*)*b{1000}"}`, `{"type":"json_object"}`, `{"type":"array","items":{"$ref":"#"},"minItems":1000000}`,
		strings.Repeat("[", deep) + strings.Repeat("]", deep), strings.Repeat(`{"a":`, deep) + "1" + strings.Repeat("}", deep), strings.Repeat("[", deep),
		`"` + strings.Repeat("hell ", 4000) + `"`, "[" + strings.Repeat("1,", 9000) + "1]", "1" + strings.Repeat("0", 3000), "",
	}, rng)
}
