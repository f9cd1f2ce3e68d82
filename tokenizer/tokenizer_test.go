package tokenizer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// tinyBytes is a byte-level vocabulary: the 256 bytes, "ab", "abc", and two special
// tokens.
func tinyBytes() Vocab {
	v := Vocab{Model: ByteLevel, Pre: "llama-bpe", BOS: 258, EOS: 259, UNK: None, EOT: None, EOM: None, AddBOS: true}
	for _, r := range byteRune {
		v.Tokens = append(v.Tokens, string(r))
	}
	v.Tokens = append(v.Tokens, "ab", "abc", "<s>", "</s>", "<u se>")
	v.Types = slices.Repeat([]int32{TypeNormal}, 261)
	v.Types[258], v.Types[259], v.Types[260] = TypeControl, TypeControl, TypeUserDefined
	v.Merges = []string{"a b", "ab c"}
	return v
}

// tinyPieces is a SentencePiece vocabulary: three special tokens, the 256 bytes and
// some pieces.
func tinyPieces() Vocab {
	v := Vocab{Model: SentencePiece, BOS: 1, EOS: 2, UNK: 0, EOT: None, EOM: None, AddBOS: true, AddSpacePrefix: true}
	v.Tokens = []string{"<unk>", "<s>", "</s>"}
	v.Types = []int32{TypeUnknown, TypeControl, TypeControl}
	for b := range 256 {
		v.Tokens = append(v.Tokens, fmt.Sprintf("<0x%02X>", b))
		v.Types = append(v.Types, TypeByte)
	}
	for _, piece := range []string{"▁", "a", "b", "▁a", "ab", "▁ab", "é"} {
		v.Tokens = append(v.Tokens, piece)
		v.Types = append(v.Types, TypeNormal)
	}
	v.Scores = make([]float32, len(v.Tokens))
	for i := range v.Scores {
		v.Scores[i] = -float32(i)
	}
	return v
}

func mustNew(t testing.TB, v Vocab) *Tokenizer {
	t.Helper()
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestSpecialTokens checks BOS, EOS and special tokens in the text.
func TestSpecialTokens(t *testing.T) {
	bytes := tinyBytes()
	pieces := tinyPieces()
	both := tinyBytes()
	both.AddEOS = true
	none := tinyPieces()
	none.AddBOS = false
	add := EncodeOptions{AddSpecial: true}
	parse := EncodeOptions{ParseSpecial: true}
	full := EncodeOptions{AddSpecial: true, ParseSpecial: true}
	tests := []struct {
		name string
		v    Vocab
		text string
		o    EncodeOptions
		want []int32
	}{
		{"nothing", bytes, "", EncodeOptions{}, nil},
		{"only BOS", bytes, "", add, []int32{258}},
		{"BOS", bytes, "abc", add, []int32{258, 257}},
		{"BOS is there", bytes, "<s>abc", full, []int32{258, 257}},
		{"BOS twice is the text's", bytes, "<s><s>abc", full, []int32{258, 258, 257}},
		{"BOS not parsed", bytes, "<s>", add, []int32{258, 27 + 33, 's', 62}},
		{"BOS later", bytes, "a<s>", full, []int32{258, 'a', 258}},
		{"EOS", both, "abc", full, []int32{258, 257, 259}},
		{"EOS is there", both, "abc</s>", full, []int32{258, 257, 259}},
		{"both are there", both, "<s></s>", full, []int32{258, 259}},
		{"user-defined always", bytes, "a<u se>b", EncodeOptions{}, []int32{'a', 260, 'b'}},
		{"user-defined cuts", bytes, "a<u se>bc", parse, []int32{'a', 260, 'b', 'c'}},
		{"pieces", pieces, "ab", full, []int32{1, 264}},
		{"pieces, BOS is there", pieces, "<s>ab", full, []int32{1, 264}},
		{"pieces, prefix after special", pieces, "a</s>b", parse, []int32{262, 2, 259, 261}},
		{"pieces, no BOS", none, "ab", full, []int32{264}},
		{"pieces, bytes", pieces, "ab€", EncodeOptions{}, []int32{264, 3 + 0xE2, 3 + 0x82, 3 + 0xAC}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := mustNew(t, test.v).Encode(test.text, test.o); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestLongestSpecial checks that the longest of several special tokens wins, and
// the leftmost of those that overlap.
func TestLongestSpecial(t *testing.T) {
	s := specialsOf("<a", "<a>", "<a><b>", "b>c", "")
	tests := []struct {
		text       string
		start, end int
		id         int32
	}{
		{"x<a><b>c", 1, 7, 2}, {"<a><c>", 0, 3, 1}, {"<a<a>", 0, 2, 0}, {"<b>c", 1, 4, 3}, {"<", 1, 1, None}, {"", 0, 0, None},
	}
	for _, test := range tests {
		if start, end, id := s.next(test.text); start != test.start || end != test.end || id != test.id {
			t.Errorf("%q: got %d %d %d, want %d %d %d", test.text, start, end, id, test.start, test.end, test.id)
		}
	}
}

// specialsOf is a set of texts with their places as ids.
func specialsOf(texts ...string) *specialSet {
	var all []specialText
	for id, text := range texts {
		all = append(all, specialText{text: text, id: int32(id)})
	}
	return newSpecialSet(all)
}

// TestSpecialsAgainstEveryToken holds the set against looking at every token at every
// place, on texts of few letters, where tokens begin with tokens.
func TestSpecialsAgainstEveryToken(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	word := func(letters, n int) string {
		b := make([]byte, rng.IntN(n))
		for i := range b {
			b[i] = "ab\xff"[rng.IntN(letters)]
		}
		return string(b)
	}
	for range 2000 {
		letters := 1 + rng.IntN(3)
		var texts []string
		for range rng.IntN(20) {
			if w := word(letters, 7); !slices.Contains(texts, w) {
				texts = append(texts, w)
			}
		}
		s, text := specialsOf(texts...), word(letters, 30)
		for i := range text {
			wantEnd, want := i, None
			for id, w := range texts {
				if w != "" && strings.HasPrefix(text[i:], w) && i+len(w) > wantEnd {
					wantEnd, want = i+len(w), int32(id)
				}
			}
			if wantEnd == i && s.first[text[i]] == s.first[int(text[i])+1] {
				continue // no token begins like this, and next does not ask
			}
			if end, id := s.longest(text, i); end != wantEnd || id != want {
				t.Fatalf("%q in %q at %d: got %d %d, want %d %d", texts, text, i, end, id, wantEnd, want)
			}
		}
	}
}

// TestSpecialsTakeNoMemory: a set takes its tokens and no more, however long their texts.
func TestSpecialsTakeNoMemory(t *testing.T) {
	const tokens = 4000
	rng := rand.New(rand.NewPCG(11, 12))
	texts := make([]string, tokens)
	for i := range texts {
		b := make([]byte, maxTokenBytes)
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
		texts[i] = string(b)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := specialsOf(texts...)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 200*tokens {
		t.Errorf("%d tokens of %d bytes take %d bytes besides, want at most %d", len(s.tokens), maxTokenBytes, took, 200*tokens)
	}
}

// TestNewErrors checks that a vocabulary that cannot work is refused by name.
func TestNewErrors(t *testing.T) {
	tests := []struct {
		name   string
		from   func() Vocab
		change func(v *Vocab)
		want   string
	}{
		{"model", tinyBytes, func(v *Vocab) { v.Model = "bert" }, `unknown model "bert", supported are "gpt2" and "llama"`},
		{"pre", tinyBytes, func(v *Vocab) { v.Pre = "qwen35" }, `unknown pre-tokenizer "qwen35", supported are deepseek-r1-qwen, default, gpt-2, llama-bpe`},
		{"no tokens", tinyBytes, func(v *Vocab) { v.Tokens = nil }, "0 tokens"},
		{"types", tinyBytes, func(v *Vocab) { v.Types = v.Types[1:] }, "260 token types for 261 tokens"},
		{"no merges", tinyBytes, func(v *Vocab) { v.Merges = nil }, "0 merges"},
		{"many merges", tinyBytes, func(v *Vocab) { v.Merges = make([]string, maxMerges+1) }, "4194305 merges, want 1 to 4194304"},
		{"many tokens", tinyBytes, func(v *Vocab) { v.Tokens = make([]string, maxTokens+1) }, "524289 tokens, want 1 to 524288"},
		{"merge of one", tinyBytes, func(v *Vocab) { v.Merges = []string{"a b", "ab"} }, `merge 1, "ab": want two tokens`},
		{"merge of nothing", tinyBytes, func(v *Vocab) { v.Merges = []string{""} }, `merge 0, "": want two tokens`},
		{"long merge", tinyBytes, func(v *Vocab) { v.Merges = []string{strings.Repeat("x", 1<<20)} }, `x"... (1048576 bytes): want two tokens`},
		{"merge ends early", tinyBytes, func(v *Vocab) { v.Merges = []string{"a "} }, "want two tokens"},
		{"merge left", tinyBytes, func(v *Vocab) { v.Merges = []string{"xy b"} }, `no token "xy"`},
		{"merge right", tinyBytes, func(v *Vocab) { v.Merges = []string{"a xy"} }, `no token "xy"`},
		{"merge result", tinyBytes, func(v *Vocab) { v.Merges = []string{"a c"} }, `no token "ac" for the result`},
		{"byte", tinyBytes, func(v *Vocab) { v.Tokens['!'] = "other" }, "no token for the byte 0x21"},
		{"duplicate", tinyBytes, func(v *Vocab) { v.Tokens[260] = "ab" }, `tokens 256 and 260 are both "ab"`},
		{"long token", tinyBytes, func(v *Vocab) { v.Tokens[260] = strings.Repeat("x", 1025) }, "token 260 has 1025 bytes"},
		{"BOS", tinyBytes, func(v *Vocab) { v.BOS = 261 }, "BOS token id 261 is outside the vocabulary of 261 tokens"},
		{"EOT", tinyBytes, func(v *Vocab) { v.EOT = -2 }, "EOT token id -2 is outside"},
		{"end", tinyBytes, func(v *Vocab) { v.Ends = []int32{900} }, "end token id 900 is outside"},
		{"no BOS", tinyBytes, func(v *Vocab) { v.BOS = None }, "a BOS token shall be added"},
		{"no EOS", tinyBytes, func(v *Vocab) { v.EOS, v.AddEOS = None, true }, "an EOS token shall be added"},
		{"scores", tinyPieces, func(v *Vocab) { v.Scores = v.Scores[2:] }, "264 scores for 266 tokens"},
		{"score", tinyPieces, func(v *Vocab) { v.Scores[7] /= v.Scores[0]; v.Scores[7] *= 0 }, "score of token 7 is not a number"},
		{"piece byte", tinyPieces, func(v *Vocab) { v.UNK = None; v.Tokens[3] = "x" }, "no token <0x00>"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := test.from()
			test.change(&v)
			_, err := New(v)
			if err == nil || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			} else if n := len(err.Error()); n > 1000 {
				t.Errorf("an error of %d bytes", n)
			}
		})
	}
}

// TestFromMetadata checks what a file sets and what it leaves out.
func TestFromMetadata(t *testing.T) {
	base := mapMetadata{
		"tokenizer.ggml.model":  "llama",
		"tokenizer.ggml.tokens": []string{"<unk>", "<s>", "</s>", "x", "y"},
		"tokenizer.ggml.scores": []float64{0, 0, 0, -1, -2.5},
	}
	with := func(key string, value any) mapMetadata {
		m := maps.Clone(base)
		m["tokenizer.ggml."+key] = value
		return m
	}
	v, err := FromMetadata(base)
	if err != nil || !v.AddBOS || v.AddEOS || !v.AddSpacePrefix || v.BOS != 1 || v.EOS != 2 || v.UNK != 0 || v.EOT != None || v.Scores[4] != -2.5 {
		t.Errorf("defaults: got %+v, %v", v, err)
	}
	if v, err = FromMetadata(with("add_bos_token", false)); err != nil || v.AddBOS {
		t.Errorf("add_bos_token: got %+v, %v", v, err)
	}
	if v, err = FromMetadata(with("add_space_prefix", false)); err != nil || v.AddSpacePrefix {
		t.Errorf("add_space_prefix: got %+v, %v", v, err)
	}
	if v, err = FromMetadata(with("eot_token_id", 3)); err != nil || v.EOT != 3 {
		t.Errorf("eot_token_id: got %+v, %v", v, err)
	}
	if v, err = FromMetadata(with("fim_pad_token_id", 4)); err != nil || !slices.Equal(v.Ends, []int32{4}) {
		t.Errorf("fim_pad_token_id: got %+v, %v", v, err)
	}
	level := with("model", "gpt2")
	level["tokenizer.ggml.pre"] = "llama-bpe"
	if v, err = FromMetadata(level); err != nil || v.AddBOS || v.BOS != None || v.AddSpacePrefix {
		t.Errorf("byte level without BOS: got %+v, %v", v, err)
	}
	level["tokenizer.ggml.bos_token_id"] = 1
	if v, err = FromMetadata(level); err != nil || !v.AddBOS || v.BOS != 1 {
		t.Errorf("byte level with BOS: got %+v, %v", v, err)
	}
	for _, bad := range []struct {
		m    mapMetadata
		want string
	}{
		{with("bos_token_id", 5), "bos_token_id is 5, but the vocabulary has 5 tokens"},
		{with("bos_token_id", "x"), "bos_token_id"},
		{with("scores", "x"), "scores"},
		{with("model", 3), "tokenizer.ggml.model"},
		{mapMetadata{}, "tokenizer.ggml.model"},
		{mapMetadata{"tokenizer.ggml.model": "llama"}, "tokens is missing"},
	} {
		if _, err := FromMetadata(bad.m); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("got %v, want %q", err, bad.want)
		}
	}
}

// TestEnds checks that the tokens that end a generation are found by their ids and
// by their texts, and become control tokens.
func TestEnds(t *testing.T) {
	v := tinyBytes()
	v.Tokens = append(v.Tokens, "<|eot_id|>", "<|end_of_text|>", "<|im_end|>", "<end_of_turn>", "<|fim_pad|>", "<x>", "<y>")
	v.Types = append(v.Types, slices.Repeat([]int32{TypeNormal}, 7)...)
	v.EOT, v.Ends = 266, []int32{267}
	tok := mustNew(t, v)
	if want := []int32{259, 261, 262, 263, 264, 265, 266, 267}; !slices.Equal(tok.Ends(), want) {
		t.Errorf("got %v, want %v", tok.Ends(), want)
	}
	if tok.EndOfGeneration('a') || !tok.EndOfGeneration(261) || tok.EndOfGeneration(-1) {
		t.Error("EndOfGeneration disagrees with Ends")
	}
	if !tok.Special(261) || tok.Special(266) {
		t.Error("a token that is known by its text is a control token, others stay as they are")
	}
	if !tok.HasSpecial("a<u se><|eot_id|>") || tok.HasSpecial("a<u se><|eot") {
		t.Error("HasSpecial finds control tokens only")
	}
}

// TestDecode checks which ids have a text, and the first space.
func TestDecode(t *testing.T) {
	bytes, pieces := mustNew(t, tinyBytes()), mustNew(t, tinyPieces())
	show := DecodeOptions{ShowSpecial: true}
	tests := []struct {
		tok  *Tokenizer
		ids  []int32
		o    DecodeOptions
		want string
	}{
		{bytes, []int32{258, 257, 260, 259}, DecodeOptions{}, "abc<u se>"},
		{bytes, []int32{258, 257, 260, 259}, show, "<s>abc<u se></s>"},
		{bytes, []int32{-1, 'a', 999, 261}, show, "a"},
		{bytes, []int32{0xE2, 0x82}, DecodeOptions{}, "\xE2\x82"},
		{pieces, []int32{1, 262, 262}, DecodeOptions{}, "a a"},
		{pieces, []int32{1, 262, 262}, show, "<s>a a"},
		{pieces, []int32{262, 262}, DecodeOptions{Continued: true}, " a a"},
		{pieces, []int32{259, 259, 260}, DecodeOptions{}, " a"},
		{pieces, []int32{0, 3 + 0xC3, 3 + 0xA9}, DecodeOptions{}, "é"},
	}
	for _, test := range tests {
		if got := test.tok.Decode(test.ids, test.o); got != test.want {
			t.Errorf("%v %+v: got %q, want %q", test.ids, test.o, got, test.want)
		}
	}
}

// TestStream checks that pieces of a stream are whole characters which together are
// the text.
func TestStream(t *testing.T) {
	tok := mustNew(t, tinyBytes())
	tests := []struct {
		text string
		want []string // for each id, then what Flush gives
	}{
		{"a€b", []string{"a", "", "", "€", "b", ""}},
		{"\xF0\x9F\x98\x80", []string{"", "", "", "😀", ""}},
		{"\xF0\x9F\x98", []string{"", "", "", "\uFFFD"}},
		{"\xE2\x82a", []string{"", "", "\uFFFDa", ""}},
		{"\xE2\x82\xE2\x82\xAC", []string{"", "", "\uFFFD", "", "€", ""}},
		{"\x80\xFFa", []string{"\uFFFD", "\uFFFD", "a", ""}},
		{"\xC3", []string{"", "\uFFFD"}},
	}
	for _, test := range tests {
		s := tok.Stream(DecodeOptions{})
		var got []string
		for i := range len(test.text) {
			got = append(got, s.Next(tok.kind.(*byteLevel).bytes[test.text[i]]))
		}
		if got = append(got, s.Flush()); !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
	pieces := mustNew(t, tinyPieces())
	s := pieces.Stream(DecodeOptions{})
	if got := s.Next(1) + s.Next(262) + s.Next(262); got != "a a" {
		t.Errorf("got %q", got)
	}
	s = pieces.Stream(DecodeOptions{Continued: true, ShowSpecial: true})
	if got := s.Next(262) + s.Next(2); got != " a</s>" {
		t.Errorf("got %q", got)
	}
}

// TestStreamBook checks that a stream of a whole book is valid at each step and
// gives the book.
func TestStreamBook(t *testing.T) {
	book := readShared(t, "text/war-and-peace.txt")[:400_000] + "😀👨‍👩‍👧‍👦 🦙\u3000é"
	for _, name := range sharedVocabs {
		tok := sharedTokenizer(t, "tokenizer/"+name+".gguf")
		s := tok.Stream(DecodeOptions{})
		var b strings.Builder
		for _, id := range tok.Encode(book, EncodeOptions{}) {
			piece := s.Next(id)
			if !utf8.ValidString(piece) {
				t.Fatalf("%s: id %d gives %q", name, id, piece)
			}
			b.WriteString(piece)
		}
		b.WriteString(s.Flush())
		if b.String() != book {
			t.Errorf("%s: the stream differs from the book", name)
		}
	}
}

// TestConcurrent checks that several goroutines get what one gets, also when words
// drop out of the cache.
func TestConcurrent(t *testing.T) {
	book := readShared(t, "text/war-and-peace.txt")
	tok := sharedTokenizer(t, "tokenizer/llama-bpe.gguf")
	parts := make([]string, 6)
	want := make([][]int32, len(parts))
	for i := range parts {
		parts[i] = book[i*200_000 : i*200_000+100_000]
		want[i] = tok.Encode(parts[i], EncodeOptions{})
	}
	var group sync.WaitGroup
	for i := range parts {
		group.Go(func() {
			if got := tok.Encode(parts[i], EncodeOptions{}); !slices.Equal(got, want[i]) {
				t.Errorf("part %d differs", i)
			}
		})
	}
	group.Wait()
}

// TestCacheBound checks that more words than the cache holds leave it within its
// bounds and right.
func TestCacheBound(t *testing.T) {
	tok := mustNew(t, tinyBytes())
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, " %c%c%c%c", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26, 'a'+i/17576%26)
	}
	text := b.String()
	if got := tok.Decode(tok.Encode(text, EncodeOptions{}), DecodeOptions{}); got != text {
		t.Error("the text changed")
	}
	c := &tok.idle[0].words
	if c.used > cacheSlots/2 || len(c.slots) > cacheSlots || len(c.text) > cacheBytes || len(c.ids) > cacheIDs || c.used == 0 {
		t.Errorf("the cache holds %d words, %d bytes, %d ids", c.used, len(c.text), len(c.ids))
	}
}

// TestEqualScores checks that of two merges with one score the leftmost goes first,
// whichever token is listed first.
func TestEqualScores(t *testing.T) {
	v := tinyPieces()
	v.AddSpacePrefix = false
	v.Tokens = append(v.Tokens, "c", "d", "cd", "bc")
	v.Types = append(v.Types, slices.Repeat([]int32{TypeNormal}, 4)...)
	v.Scores = append(v.Scores, -900, -900, -3, -3)
	v.Scores[slices.Index(v.Tokens, "ab")] = -3
	tok := mustNew(t, v)
	for text, want := range map[string][]string{"abc": {"ab", "c"}, "bcd": {"bc", "d"}, "abcd": {"ab", "cd"}} {
		var got []string
		for _, id := range tok.Encode(text, EncodeOptions{}) {
			got = append(got, tok.Text(id))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestCacheCollision checks that words of one hash are kept apart, also when the
// cache grows.
func TestCacheCollision(t *testing.T) {
	var c wordCache
	for i := range 3000 {
		c.add(uint32(i%7), fmt.Sprint("w", i), []int32{int32(i)})
	}
	for i := range 3000 {
		if ids, ok := c.find(uint32(i%7), fmt.Sprint("w", i)); !ok || !slices.Equal(ids, []int32{int32(i)}) {
			t.Fatalf("word %d: got %v, %v", i, ids, ok)
		}
	}
	if _, ok := c.find(3, "other"); ok {
		t.Error("a word that was not added is found")
	}
}
