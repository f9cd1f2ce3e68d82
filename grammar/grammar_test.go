package grammar

import (
	"strings"
	"testing"
)

// accepts reports whether a schema allows a whole text, byte for byte.
func accepts(t testing.TB, g *Grammar, text string) bool {
	t.Helper()
	return done(g.accept(start(), []byte(text)))
}

func mustCompile(t testing.TB, schema string, o Options) *Grammar {
	t.Helper()
	g, err := Compile([]byte(schema), o)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return g
}

// TestAccepts has, for each keyword, texts that a schema allows and texts that it does not.
func TestAccepts(t *testing.T) {
	for _, c := range []struct {
		schema string
		yes    string // texts between blanks lines of no meaning: separated by " ; "
		no     string
	}{
		{`true`, `{} ; [] ; "" ; 1 ; -0.5e3 ; true ; null ; {"a": [1, {"b": null}]}`, `{ ; 01 ; 1. ; .5 ; +1 ; nul ; {"a"} ; {a:1} ; [1,] ; {"a":1,} ;  1`},
		{`{"type": "string"}`, `"a" ; "é" ; "\u00e9\n\/\"" ; "\ud83d\ude00" ; "\uD83D\uDE00" ; "😀"`,
			"\"\x01\" ; \"\\ud83d\\uec00\" ; \"\\ud83d\\udbff\" ; \"\\ud83d\" ; \"\\ude00\" ; \"\\ud83d\\u0041\" ; \"\\x\" ; \"\xff\" ; \"\xed\xa0\x80\" ; \"\xc0\x80\" ; \"\xe0\x80\x80\" ; \"\xf0\x80\x80\x80\" ; \"\xf4\x90\x80\x80\" ; \"a ; 'a'"},
		{`{"type": "string", "minLength": 2, "maxLength": 3}`, `"ab" ; "abc" ; "é😀é" ; "\u00e9\ud83d\ude00\n"`, `"a" ; "abcd" ; "" ; "é"`},
		{`{"type": "string", "minLength": 2}`, `"ab" ; "abcdefgh"`, `"a" ; ""`},
		{`{"type": "string", "pattern": "^a+b?$"}`, `"a" ; "aab" ; "\u0061b"`, `"b" ; "" ; "abb" ; "xab"`},
		{`{"type": "string", "pattern": "b+"}`, `"b" ; "abc" ; "é\nb"`, `"a" ; ""`},
		{`{"type": "string", "pattern": "\\bfoo\\b"}`, `"foo" ; "a foo b" ; "a-foo"`, `"afoo" ; "food" ; "fo"`},
		{`{"type": "string", "pattern": "(?m)^a$"}`, `"a" ; "b\na" ; "a\nb"`, `"ba" ; "ab"`},
		{`{"type": "string", "pattern": "(?i)^straße$"}`, `"STRAßE" ; "straße" ; "\u017Ftraße"`, `"strasse"`},
		{`{"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3}`, `"ab" ; "abc"`, `"a" ; "abcd" ; "AB"`},
		{`{"type": "string", "pattern": "^[^a]$"}`, `"é" ; "\n" ; "\u0000" ; "\"" ; "\ud83d\ude00" ; "\\"`, `"a" ; "\u0061" ; "ab"`},
		{`{"enum": ["a", "ab", "é\"", 1, 1.5, true, null, {"x": [1, "y"]}]}`, `"a" ; "ab" ; "é\"" ; "\u00e9\u0022" ; 1 ; 1.5 ; true ; null ; {"x":[1,"y"]} ; { "x": [1, "y"]}`, `"b" ; "abc" ; 2 ; 1.55 ; false ; {"x":[1]} ; {"x":[1,"y",2]}`},
		{`{"type": "string", "enum": ["a", 1]}`, `"a"`, `1`},
		{`{"const": "a", "enum": ["a", "b"]}`, `"a"`, `"b"`},
		{`{"type": "integer"}`, `0 ; -1 ; 12345678901234567890`, `1.0 ; 1e2 ; 01 ; -0 ; 123456789012345678901`},
		{`{"type": "integer", "minimum": -3, "maximum": 12}`, `-3 ; -1 ; 0 ; 9 ; 10 ; 12`, `-4 ; 13 ; 20 ; 100 ; -10`},
		{`{"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 1000.5}`, `100 ; 999 ; 1000`, `99 ; 1001 ; 9 ; 10000`},
		{`{"type": "number", "minimum": 0.25, "maximum": 10}`, `0.25 ; 0.3 ; 0.250 ; 1 ; 9.999 ; 10 ; 10.0`, `0.2 ; 0 ; 0.2499 ; 10.01 ; 11 ; -1 ; 1e0`},
		{`{"type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": 0}`, `-1.49 ; -0.1 ; -1 ; -0.0001`, `-1.5 ; -1.50 ; -1.51 ; 0 ; -0 ; -0.0 ; 1 ; -2`},
		{`{"type": "number", "maximum": -2.5}`, `-2.5 ; -2.50 ; -2.6 ; -3 ; -10`, `-2.4 ; -2 ; 0 ; 3`},
		{`{"type": "number", "exclusiveMinimum": 0}`, `0.0001 ; 5 ; 10.5`, `0 ; 0.0 ; -1 ; -0`},
		{`{"type": "integer", "multipleOf": 7, "minimum": -20}`, `0 ; 7 ; 14 ; -14 ; 700`, `1 ; -21 ; 8`},
		{`{"type": "number"}`, `1 ; -0 ; 1.5e10 ; 1E-5 ; 1e+05`, `1e ; 1e999 ; 1e280`},
		{`{"type": ["string", "null"]}`, `"a" ; null`, `1 ; true`},
		{`{"properties": {"a": {"type": "integer"}}}`, `{} ; {"a":1} ; {"b":"x"} ; {"a":1,"b":"x","c":[]} ; 5 ; "x"`, `{"a":"x"} ; {"b":1,"a":1}`},
		{`{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}}, "required": ["b"], "additionalProperties": false}`,
			`{"b":1} ; {"a":1,"b":2} ; {"b":2,"c":3} ; {"a":1,"b":2,"c":3} ; { "a": 1, "b": 2 } ; {"\u0062":1}`, `{} ; {"a":1} ; {"a":1,"c":3} ; {"c":1,"b":1} ; {"b":1,"d":1} ; {"b":1,"b":1} ; {"b":1,}`},
		{`{"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}}`, `{"a":null} ; {"a":null,"aa":1} ; {"":2}`, `{"a":1} ; {"b":null} ; {"\u0061":1}`},
		{`{"type": "object", "required": ["x"]}`, `{"x":1} ; {"x":1,"y":2}`, `{} ; {"y":1}`},
		{`{"type": "object", "properties": {"a": false}, "additionalProperties": {"type": "integer"}}`, `{} ; {"b":1}`, `{"a":1}`},
		{`{"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}`, `[1] ; [1,2,3] ; [1, 2]`, `[] ; [1,2,3,4] ; ["a"]`},
		{`{"type": "array", "maxItems": 0}`, `[] ; [ ]`, `[1]`},
		{`{"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false}`, `[] ; ["a"] ; ["a",1]`, `[1] ; ["a",1,2]`},
		{`{"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}, "minItems": 2}`, `["a",null] ; ["a",null,null]`, `["a"] ; []`},
		{`{"anyOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}, {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "null"}}, "required": ["a", "b"], "additionalProperties": false}]}`,
			`{"a":1} ; {"a":"x","b":null}`, `{"a":1,"b":null} ; {"a":"x"}`},
		{`{"$defs": {"t": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": false}}, "$ref": "#/$defs/t"}`,
			`{"v":1,"next":null} ; {"v":1,"next":{"v":2,"next":null}}`, `{"v":1} ; {"v":1,"next":{"v":2}}`},
		{`{"type": "array", "items": {"$ref": "#"}}`, `[] ; [[],[[]]]`, `[1] ; [[`},
		{`{"type": "object", "properties": {"a": {"$id": "x", "$defs": {"t": {"type": "null"}}, "type": "object", "properties": {"b": {"$ref": "#/$defs/t"}}}, "c": {"$ref": "#/properties/a/properties/b"}, "d": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": "boolean"}}}`,
			`{"a":{"b":null},"c":null,"d":true}`, `{"a":{"b":true}} ; {"c":true} ; {"d":null}`},
		{`{"allOf": [{"type": "null"}], "description": "x"}`, `null`, `1`},
		{`{"type": "string", "format": "date"}`, `"2024-02-29" ; "2000-02-29" ; "1999-12-31"`, `"2023-02-29" ; "1900-02-29" ; "2024-04-31" ; "2024-13-01" ; "24-1-1"`},
		{`{"type": "string", "format": "ipv4"}`, `"0.0.0.0" ; "255.1.20.199"`, `"256.1.1.1" ; "1.1.1" ; "01.1.1.1"`},
	} {
		g := mustCompile(t, c.schema, Options{})
		for text := range strings.SplitSeq(c.yes, " ; ") {
			if !accepts(t, g, text) {
				t.Errorf("%s does not allow %s", c.schema, text)
			}
		}
		for text := range strings.SplitSeq(c.no, " ; ") {
			if accepts(t, g, text) {
				t.Errorf("%s allows %s", c.schema, text)
			}
		}
	}
}

// TestNoDeadEnds has beginnings that no value has. They must be refused at once, not where it
// turns out that nothing may follow.
func TestNoDeadEnds(t *testing.T) {
	for _, c := range []struct{ schema, beginning string }{
		{`{"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": false}, "required": ["a"]}]}`, `{`},
		{`{"anyOf": [{"type": "null"}, {"type": "array", "items": false, "minItems": 1}]}`, `[`},
		{`{"anyOf": [{"type": "null"}, {"type": "array", "prefixItems": [true, false], "minItems": 2}]}`, `[`},
		{`{"anyOf": [{"type": "null"}, {"type": "array", "minItems": 2, "maxItems": 1}]}`, `[`},
		{`{"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}, "minItems": 1}}, "anyOf": [{"type": "null"}, {"$ref": "#/$defs/t"}]}`, `[`},
		{`{"type": "object", "properties": {"a": {"type": "string", "pattern": "^x^"}}, "additionalProperties": false}`, `{"`},
		{`{"type": "array", "prefixItems": [{"type": "null"}, false]}`, `[null,`},
		{`{"type": "string", "pattern": "^a(b^|c)$"}`, `"ab`},
		{`{"type": "string", "pattern": "^a+b$", "maxLength": 3}`, `"aaa`},
		{`{"type": "string", "pattern": "^[é-ü]$"}`, "\"\xc2"},
		{`{"type": "string", "pattern": "^[é-ü]$"}`, `"\u1`},
		{`{"type": "string", "pattern": "^[é-ü]$"}`, `"\ud`},
		{`{"type": "string", "pattern": "^😀$"}`, "\"\xf0\x9f\x99"},
		{`{"type": "string", "pattern": "^😀$"}`, `"\ud83e`},
		{`{"type": "string", "pattern": "^😀$"}`, `"\ud83d\ude01`},
		{`{"type": "string", "pattern": "^😀$"}`, `"\ud83d\udf`},
		{`{"type": "string", "pattern": "^$"}`, `"\`},
		{`{"type": "string", "maxLength": 1}`, "\"é\xc3"},
		{`{"type": "integer", "maximum": 19}`, `99`},
		{`{"type": "integer", "minimum": 5, "maximum": 19}`, `-`},
		{`{"type": "integer", "multipleOf": 10, "maximum": 20}`, `21`},
		{`{"type": "number", "maximum": 0.5}`, `0.6`},
		{`{"type": "number", "exclusiveMaximum": 1.5, "minimum": 1.5}`, ``},
		{`{"type": "array", "items": {"type": "null"}, "maxItems": 1}`, `[null,`},
		{`{"type": "object", "properties": {"a": true}, "additionalProperties": false}`, `{"a":1,`},
		{`{"type": "object", "properties": {"a": true, "b": true}, "required": ["b"], "additionalProperties": false}`, `{"a":1 `},
	} {
		if c.beginning == "" {
			if _, err := Compile([]byte(c.schema), Options{}); err == nil {
				t.Errorf("%s is not refused", c.schema)
			}
			continue
		}
		g := mustCompile(t, c.schema, Options{})
		if len(g.accept(start(), []byte(c.beginning))) > 0 {
			t.Errorf("%s allows %q, behind which nothing is valid", c.schema, c.beginning)
		}
		if len(g.accept(start(), []byte(c.beginning[:len(c.beginning)-1]))) == 0 {
			t.Errorf("%s does not allow %q", c.schema, c.beginning[:len(c.beginning)-1])
		}
	}
}
