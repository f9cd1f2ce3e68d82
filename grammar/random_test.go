package grammar

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas is how many random schemas TestRandomSchemas tries; make grammar asks for more.
var schemas = flag.Int("schemas", 250, "random `schemas` of TestRandomSchemas")

// maker writes a random document that a schema allows. It knows the schema, and nothing of the
// package under test. It goes no deeper than depth where it has the choice.
type maker func(depth int) string

// author writes random schemas with their makers.
type author struct {
	*rand.Rand
	self maker // of #/$defs/t, nil where there is none
}

func (a *author) pick(texts ...string) string { return texts[a.IntN(len(texts))] }

func (a *author) chance(p float64) bool { return a.Float64() < p }

// space is what may stand in a gap.
func (a *author) space() string {
	if a.chance(0.8) {
		return ""
	}
	return a.pick(" ", "\n")
}

// root is a schema that may refer to itself.
func (a *author) root() (string, maker) {
	if a.chance(0.7) {
		return a.schema(3)
	}
	names := []string{"v", "next"}
	schema, v := a.schema(1)
	a.self = func(depth int) string {
		next := "null"
		if depth > 0 && a.chance(0.6) {
			next = a.self(depth - 1)
		}
		return a.members(names, []string{v(depth - 1), next})
	}
	def := fmt.Sprintf(`{"type":"object","properties":{"v":%s,"next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/t"}]}},"required":["v","next"],"additionalProperties":false}`, schema)
	top, m := a.schema(2)
	return fmt.Sprintf(`{"$defs":{"t":%s},"anyOf":[{"$ref":"#/$defs/t"},%s]}`, def, top), func(depth int) string {
		if a.chance(0.5) {
			return a.self(depth)
		}
		return m(depth)
	}
}

// schema is a schema at most so deep.
func (a *author) schema(deep int) (string, maker) {
	kinds := []func(int) (string, maker){a.scalar, a.text, a.text, a.pattern, a.format, a.integer, a.decimal, a.enum, a.anything, a.union}
	if deep > 0 {
		kinds = append(kinds, a.object, a.object, a.object, a.array, a.array, a.tuple, a.anyOf, a.anyOf)
	}
	if a.self != nil {
		kinds = append(kinds, func(int) (string, maker) { return `{"$ref":"#/$defs/t"}`, a.self })
	}
	return kinds[a.IntN(len(kinds))](deep - 1)
}

func (a *author) scalar(int) (string, maker) {
	if a.chance(0.5) {
		return `{"type":"null"}`, func(int) string { return "null" }
	}
	return `{"type":"boolean"}`, func(int) string { return a.pick("true", "false") }
}

// quote writes a string with escapes where they are needed, and some where they are not.
func (a *author) quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		short := map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\t': `\t`, '\b': `\b`, '\f': `\f`, '\r': `\r`, '/': `\/`}[r]
		switch {
		case short != "" && (r != '/' || a.chance(0.5)) && a.chance(0.9):
			b.WriteString(short)
		case r < ' ' || r == '"' || r == '\\' || a.chance(0.1):
			if r > 0xFFFF {
				r -= 0x10000
				fmt.Fprintf(&b, `\u%04x\u%04X`, 0xD800+r>>10, 0xDC00+r&0x3FF)
			} else {
				fmt.Fprintf(&b, a.pick(`\u%04x`, `\u%04X`), r)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// letters is n random characters.
func (a *author) letters(n int) string {
	const some = "abcxyzABC 019-_.,:{}[]\"\\/\n\t\x00éßλя中日😀𝒳￿퟿"
	all := []rune(some)
	var b strings.Builder
	for range n {
		if a.chance(0.1) {
			r := rune(a.IntN(0x110000))
			if 0xD800 <= r && r <= 0xDFFF {
				r = 'q'
			}
			b.WriteRune(r)
			continue
		}
		b.WriteRune(all[a.IntN(len(all))])
	}
	return b.String()
}

func (a *author) text(int) (string, maker) {
	low, more := 0, 12
	schema := `{"type":"string"`
	if a.chance(0.4) {
		low = a.IntN(6)
		schema += fmt.Sprintf(`,"minLength":%d`, low)
	}
	if a.chance(0.4) {
		more = a.IntN(6)
		schema += fmt.Sprintf(`,"maxLength":%d`, low+more)
	}
	return schema + "}", func(int) string { return a.quote(a.letters(low + a.IntN(more+1))) }
}

// repeated is low to high characters of a set.
func (a *author) repeated(set string, low, high int) string {
	var b strings.Builder
	all := []rune(set)
	for range low + a.IntN(high-low+1) {
		b.WriteRune(all[a.IntN(len(all))])
	}
	return b.String()
}

func (a *author) pattern(int) (string, maker) {
	for _, p := range []struct {
		pattern string
		make    func() string
	}{
		{`^[a-c]{2,4}$`, func() string { return a.repeated("abc", 2, 4) }},
		{`^(foo|bar)-[0-9]+$`, func() string { return a.pick("foo", "bar") + "-" + a.repeated("0123456789", 1, 9) }},
		{`x.y`, func() string { return a.letters(3) + "x" + a.repeated("é\"😀 ", 1, 1) + "y" + a.letters(2) }},
		{`^\\S+@\\S+$`, func() string { return a.repeated("abé中", 1, 5) + "@" + a.repeated("ab.", 1, 5) }},
		{`^[^\"\\\\]*$`, func() string { return a.repeated("aé😀\n{}", 0, 7) }},
		{`end$`, func() string { return a.letters(4) + "end" }},
		{`^$|^\\p{Lu}`, func() string { return a.pick("", "A"+a.letters(3), "Ж"+a.letters(1)) }},
		{`\\bto\\b`, func() string { return a.pick("to", "go to", "to-do", "é to!") }},
		{`(?i)^yes|no$`, func() string { return a.pick("YES", "yEs!", "no", "so NO") }},
	}[a.IntN(9):] {
		return `{"type":"string","pattern":"` + p.pattern + `"}`, func(int) string { return a.quote(p.make()) }
	}
	return "", nil
}

func (a *author) format(int) (string, maker) {
	n := func(low, high, width int) string { return fmt.Sprintf("%0*d", width, low+a.IntN(high-low+1)) }
	hexes := func(k int) string { return a.repeated("0123456789abcdefABCDEF", k, k) }
	date := func() string { return n(0, 9999, 4) + "-" + n(1, 12, 2) + "-" + n(1, 28, 2) }
	clock := func() string {
		return n(0, 23, 2) + ":" + n(0, 59, 2) + ":" + n(0, 59, 2) + a.pick("", "."+n(0, 999, 1)) + a.pick("Z", "+"+n(0, 23, 2)+":"+n(0, 59, 2), "-00:00")
	}
	host := func() string { return a.pick("a", "example.com", "a-b.c-d.e9.f.g", strings.Repeat("x", 63)+".org") }
	makers := map[string]func() string{
		"date": date, "time": clock,
		"date-time": func() string { return date() + "T" + clock() },
		"duration":  func() string { return a.pick("P1Y", "P3W", "PT5M", "P1Y2M10DT2H30M", "PT0S", "P1M", "P2DT3H") },
		"email":     func() string { return a.pick("a", "joe.q+tag", "x_y-z") + "@" + host() },
		"hostname":  host,
		"ipv4":      func() string { return n(0, 255, 1) + "." + n(0, 255, 1) + "." + n(0, 255, 1) + ".0" },
		"ipv6":      func() string { return a.pick("::", "::1", "1:2:3:4:5:6:7:8", "fe80::"+hexes(4), "a::b:c") },
		"uuid":      func() string { return hexes(8) + "-" + hexes(4) + "-" + hexes(4) + "-" + hexes(4) + "-" + hexes(12) },
	}
	names := strings.Split(formatNames(), ", ")
	name := a.pick(names...)
	return `{"type":"string","format":"` + name + `"}`, func(int) string { return a.quote(makers[name]()) }
}

func (a *author) integer(int) (string, maker) {
	low := a.IntN(2000) - 1000
	high := low + a.IntN(1500)
	step := 1
	schema := fmt.Sprintf(`{"type":"integer","minimum":%d,"maximum":%d`, low, high)
	switch a.IntN(4) {
	case 0:
		return `{"type":"integer"}`, func(int) string { return fmt.Sprint(a.IntN(1<<40) - 1<<39) }
	case 1:
		schema = fmt.Sprintf(`{"type":"integer","exclusiveMinimum":%d,"exclusiveMaximum":%v`, low-1, float64(high)+0.5)
	case 2:
		step = 1 + a.IntN(min(high-low+1, 1000))
		if low/step*step < low && low/step*step+step > high {
			step = 1
		}
		schema += fmt.Sprintf(`,"multipleOf":%d`, step)
	}
	return schema + "}", func(int) string {
		for {
			if x := low + a.IntN(high-low+1); x%step == 0 {
				return fmt.Sprint(x)
			}
		}
	}
}

// decimal has bounds that are quarters.
func (a *author) decimal(int) (string, maker) {
	if a.chance(0.3) {
		return `{"type":"number"}`, func(int) string { return a.pick("0", "-0.5", "1e3", "1.25E-7", "123456.789", "-0") }
	}
	low := a.IntN(400) - 200
	high := low + 2 + a.IntN(200)
	quarters := func(k int) string { return fmt.Sprintf("%.2f", float64(k)/4) }
	ends := a.pick(`"minimum":%s,"maximum":%s`, `"exclusiveMinimum":%s,"maximum":%s`, `"minimum":%s,"exclusiveMaximum":%s`)
	return fmt.Sprintf(`{"type":"number",`+ends+`}`, quarters(low), quarters(high)), func(int) string {
		text := quarters(low + 1 + a.IntN(high-low-1))
		switch a.IntN(3) {
		case 0:
			return text + "0"
		case 1:
			return strings.TrimSuffix(strings.TrimSuffix(text, "0"), ".0")
		}
		return text
	}
}

func (a *author) enum(int) (string, maker) {
	values := []string{`"red"`, `"green"`, `"gr"`, `1`, `-2.5`, `true`, `null`, `[1,"a"]`, `{"k":"v","l":[]}`, `"é\n"`, `""`}
	a.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	values = values[:1+a.IntN(4)]
	if len(values) == 1 && a.chance(0.5) {
		return `{"const":` + values[0] + `}`, func(int) string { return values[0] }
	}
	return `{"enum":[` + strings.Join(values, ",") + `]}`, func(int) string { return a.pick(values...) }
}

func (a *author) union(int) (string, maker) {
	return `{"type":["null","string","integer"],"maxLength":3,"minimum":0}`, func(int) string {
		return a.pick("null", a.quote(a.letters(a.IntN(4))), fmt.Sprint(a.IntN(100)))
	}
}

func (a *author) anything(int) (string, maker) {
	var value maker
	value = func(depth int) string {
		if depth <= 0 || a.chance(0.5) {
			return a.pick("null", "true", "0", "-1.5e-3", a.quote(a.letters(3)))
		}
		if a.chance(0.5) {
			return a.list([]string{value(depth - 1), value(depth - 1)}[:a.IntN(3)])
		}
		return a.members([]string{"p", a.letters(2)}, []string{value(depth - 1), value(depth - 1)}[:a.IntN(3)])
	}
	return a.pick(`true`, `{}`, `{"description":"any"}`), value
}

// members writes an object; there may be more names than values.
func (a *author) members(names, values []string) string {
	b := "{" + a.space()
	for i, v := range values {
		if i > 0 {
			b += "," + a.space()
		}
		b += a.quote(names[i]) + ":" + a.space() + v
	}
	if len(values) > 0 {
		b += a.space()
	}
	return b + "}"
}

func (a *author) list(values []string) string {
	b := "[" + a.space()
	for i, v := range values {
		if i > 0 {
			b += "," + a.space()
		}
		b += v
	}
	if len(values) > 0 {
		b += a.space()
	}
	return b + "]"
}

func (a *author) object(deep int) (string, maker) {
	names := []string{"a", "ab", "b", "name", "näme", "x\"y", ""}
	a.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:a.IntN(5)]
	var props, required []string
	var makers []maker
	must := map[string]bool{}
	for _, n := range names {
		schema, m := a.schema(deep)
		quoted, _ := json.Marshal(n)
		props = append(props, string(quoted)+":"+schema)
		makers = append(makers, m)
		if must[n] = a.chance(0.6); must[n] {
			required = append(required, string(quoted))
		}
	}
	schema := `{"type":"object","properties":{` + strings.Join(props, ",") + `},"required":[` + strings.Join(required, ",") + `]`
	var rest maker
	switch a.IntN(3) {
	case 0:
		schema += `,"additionalProperties":false`
	case 1:
		var more string
		more, rest = a.schema(deep)
		schema += `,"additionalProperties":` + more
	default:
		_, rest = a.anything(0)
	}
	return schema + "}", func(depth int) string {
		var has, values []string
		for i, n := range names {
			if must[n] || depth > 0 && a.chance(0.5) {
				has, values = append(has, n), append(values, makers[i](depth-1))
			}
		}
		for i := 0; rest != nil && depth > 0 && a.chance(0.4); i++ {
			if n := fmt.Sprint(a.pick("zz", "ab", "a", "n"), "é", i); !slices.Contains(names, n) {
				has, values = append(has, n), append(values, rest(depth-1))
			}
		}
		return a.members(has, values)
	}
}

func (a *author) array(deep int) (string, maker) {
	schema, m := a.schema(deep)
	low, more := a.IntN(3), a.IntN(3)
	return fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, schema, low, low+more), func(depth int) string {
		var values []string
		for range low + a.IntN(more+1) {
			values = append(values, m(depth-1))
		}
		return a.list(values)
	}
}

func (a *author) tuple(deep int) (string, maker) {
	first, m := a.schema(deep)
	rest, n := a.schema(deep)
	return fmt.Sprintf(`{"type":"array","prefixItems":[%s],"items":%s}`, first, rest), func(depth int) string {
		if a.chance(0.2) {
			return a.list(nil)
		}
		values := []string{m(depth - 1)}
		for depth > 0 && a.chance(0.4) {
			values = append(values, n(depth-1))
		}
		return a.list(values)
	}
}

func (a *author) anyOf(deep int) (string, maker) {
	var alts []string
	var makers []maker
	for range 1 + a.IntN(3) {
		schema, m := a.schema(deep)
		alts, makers = append(alts, schema), append(makers, m)
	}
	return `{"anyOf":[` + strings.Join(alts, ",") + `]}`, func(depth int) string { return makers[a.IntN(len(makers))](depth) }
}

// judge is the independent validator of a schema.
type judge struct{ schema *jsonschema.Schema }

func newJudge(t testing.TB, schema string) judge {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return judge{compiled}
}

// check is why text is not a valid document, nil if it is one.
func (j judge) check(text []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return j.schema.Validate(v)
}

// testVocabulary has every byte and, as real ones do, words and scraps of JSON.
func testVocabulary(t testing.TB, rng *rand.Rand) *Vocabulary {
	t.Helper()
	texts := []string{"", "<end>"}
	for b := range 256 {
		texts = append(texts, string([]byte{byte(b)}))
	}
	texts = append(texts, `{"`, `":`, `": `, `": "`, `",`, `", "`, `"}`, `"}}`, `"],`, `"]}`, `},`, `},{"`, `}]`, `]}`, `[{"`, `[]`, `{}`, `[[`, `]]`, `: `, `, `, `,"`, `null`, `true`, `false`, `nu`, `ll}`,
		`10`, `123`, `999`, `0.`, `.5`, `e-`, `-1`, `1,`, `2]`, `3}`, `\"`, `\\`, `\u00`, `\ud83d`, `\ude00`, `\n`, "é", "中", "😀", "\xf0\x9f", "\x98\x80", "\xe4\xb8", `a"`, `ab":`, `name`, `name":`, ` to `, "中\"", "\n  ")
	texts = slices.Concat(texts, closers[0])
	a := author{Rand: rng}
	for range 1500 {
		texts = append(texts, a.letters(2+rng.IntN(4)))
	}
	v, err := NewVocabulary(texts, []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// allowedBy lists the ids of a mask.
func allowedBy(mask []uint32) (ids []int32) {
	for w, bits := range mask {
		for b := range 32 {
			if bits>>b&1 == 1 {
				ids = append(ids, int32(w*32+b))
			}
		}
	}
	return ids
}

// sample writes a document of random allowed tokens: at first each is as likely, later those
// that come to an end.
func sample(t testing.TB, c *Constraint, rng *rand.Rand) (text []byte, whole bool) {
	t.Helper()
	m := c.Matcher()
	for n := range 3000 {
		ids := allowedBy(m.Mask())
		if len(ids) == 0 {
			t.Fatalf("nothing may follow %q", text)
		}
		id := ids[rng.IntN(len(ids))]
		if hurry := rng.Float64(); hurry < 0.15 || n > 60 && hurry < 0.9 {
			id = ending(c.v, ids, rng)
		}
		if err := m.AcceptToken(id); err != nil {
			t.Fatalf("%v behind %q, but the mask allows it", err, text)
		}
		if slices.Contains(c.v.ends, id) {
			return text, true
		}
		text = append(text, c.v.texts[id]...)
	}
	return text, false
}

// closers are tokens that come to an end, of strings also where a pattern wants more than a quote.
var closers = [][]string{{`"`, `]`, `}`, `end"`, `no"`, `xay"`, ` to"`}, {"n", "0", "d"}}

// ending is a token of ids that is likely to come to an end.
func ending(v *Vocabulary, ids []int32, rng *rand.Rand) int32 {
	for _, closers := range closers {
		var ends []int32
		for _, id := range ids {
			if slices.Contains(v.ends, id) {
				return id
			}
			if slices.Contains(closers, v.texts[id]) {
				ends = append(ends, id)
			}
		}
		if len(ends) > 0 {
			return ends[rng.IntN(len(ends))]
		}
	}
	return ids[rng.IntN(len(ids))]
}

// checkMask holds a mask against its definition: a token is allowed if its bytes are.
func checkMask(t *testing.T, c *Constraint, text []byte, mask []uint32) {
	t.Helper()
	state := start()
	if len(text) > 0 {
		state = c.g.accept(state, text)
	}
	for id, token := range c.v.texts {
		want := token != "" && len(c.g.accept(state, []byte(token))) > 0
		if slices.Contains(c.v.ends, int32(id)) {
			want = done(state)
		}
		if got := mask[id/32]>>(id%32)&1 == 1; got != want {
			t.Fatalf("the mask behind %q allows token %d, %q: %v, want %v", text, id, token, got, want)
		}
	}
}

// TestRandomSchemas writes documents by the masks of random schemas, which an independent
// validator must find valid, and offers documents of an independent author, which the grammar
// must allow.
func TestRandomSchemas(t *testing.T) {
	unfinished, documents := 0, 0
	v := testVocabulary(t, rand.New(rand.NewPCG(1, 1)))
	for seed := range *schemas {
		rng := rand.New(rand.NewPCG(7, uint64(seed)))
		a := &author{Rand: rng}
		schema, m := a.root()
		g, err := Compile([]byte(schema), Options{Compact: seed%5 == 4})
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, schema, err)
		}
		j := newJudge(t, schema)
		c := v.Bind(g)
		for range 4 {
			text, whole := sample(t, c, rng)
			documents++
			if !whole {
				unfinished++
			} else if err := j.check(text); err != nil {
				t.Fatalf("seed %d: %s\nallows %s\n%v", seed, schema, text, err)
			}
			cut := rng.IntN(len(text) + 1)
			if mid := c.Matcher(); mid.Accept(text[:cut]) {
				checkMask(t, c, text[:cut], mid.Mask())
			}
		}
		if g.space {
			offer(t, seed, schema, g, j, m, rng)
		}
	}
	if unfinished > documents/100 {
		t.Errorf("%d of %d documents were not finished", unfinished, documents)
	}
}

// offer holds the grammar against documents of the author, and against what becomes of them
// when a byte is changed.
func offer(t *testing.T, seed int, schema string, g *Grammar, j judge, m maker, rng *rand.Rand) {
	t.Helper()
	for range 6 {
		text := []byte(m(3))
		if err := j.check(text); err != nil {
			t.Fatalf("seed %d: the author of %s\nwrote %s\n%v", seed, schema, text, err)
		}
		if !accepts(t, g, string(text)) {
			t.Fatalf("seed %d: %s\ndoes not allow %s", seed, schema, text)
		}
		for range 8 {
			broken := slices.Clone(text)
			i := rng.IntN(len(broken))
			switch rng.IntN(3) {
			case 0:
				broken[i] = byte(rng.IntN(256))
			case 1:
				broken = slices.Delete(broken, i, i+1)
			default:
				broken = slices.Insert(broken, i, text[rng.IntN(len(text))])
			}
			if err := j.check(broken); err != nil && accepts(t, g, string(broken)) {
				t.Fatalf("seed %d: %s\nallows %s\n%v", seed, schema, broken, err)
			}
		}
	}
}
