package ruler

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gollm/gollm/eval/punkt"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/weights"
)

// checkout is where the official wording is: with it the vectors below are held
// to their hashes, without it to all but the hashes.
var checkout = flag.String("ruler", "", "a checkout of NVIDIA/RULER, whose wording the vectors are then compared with byte for byte")

// masked has the lengths of the official sentences, word for word, and not their
// letters: generators under it take the same steps.
var masked = &Wording{
	Name: "masked",
	Text: map[Kind]Text{
		Needle: {
			"xxxx xxxxxxx xxxxx {type_needle_v} xxx xxxxxx xxxxxx xxx xxxxxxxxx xxxxx xxxx xxxx xx xxxxxxxx xxx x xxxx xxxx xxx xxxxx xxx {type_needle_v} xxxxxxxxxxx\n{context}\nxxxx xxx xxx xxx xxxxxxx xxxxx {type_needle_v} xxx {query} xxxxxxxxx xx xxx xxxxxxxx xxxxx",
			" xxx xxxxxxx xxxxx {type_needle_v} xxx {query} xxxxxxxxx xx xxx xxxxxxxx xxxx xxx",
		},
		Chain: {
			"xxxxxxxx xxx xxxxx xxx xxxxxxxx xx xxxxxxxx xxxxxxxxxx xxxxxx xx xxx xxxxxxxxx xxxxx\n\n{context}\nxxxxxxxxx xxxx xxx xxxxxxxxx xxxx xxx xxxxxxxx xxx xxxxx {query} xx xxx xxxx xxxxxx",
			" xxxxxxx xxxxxxxxx xx xxx xxxxxxxx xx xxxxxxxx xxxxxxxxxx xx xxx xxxx xxxxxx {num_v} xxxxxxxxx xxx xxxxxxxx xxx xxxxx {query}x xxxx xxxx ",
		},
		Common: {
			"xxxxx xx x xxxxxxxx xxxx xx xxxxxx xx xxxxx xxxxxx xxxx xxxxxx xxxx xxxxx xxxx xxxxxxx xxxxxxxx xxx xxxx xxxx xxxxxx xxxx xxxxxx\n{context}\nxxxxxxxxx xxxx xxx xxx xx xxxx xxxxxx xxxxx xx xxx xxxxx xxxxx",
			" xxxxxxx xxx xxx xx xxxxx xxxx xxxxxx xxxx xxxxx xx xxx xxxx xxxx",
		},
		Frequent: {
			"xxxx xxx xxxxxxxxx xxxxx xxxx xxx xxxxx xxx xxxxxxxxx xx xxxx xxxxx xxxxx xxxx xxx xxxxx xxxx xxxxxxxxxx xxxxxxxx xxxxx xxxxxx {context}\nxxxxxxxxx xx xxx xxxxxxx xxx xxxxxxxxxxxx xxxxxx xxxxxx xxx xxxx xxxxxxx xxxx xxx xxx xxxxx xxxx xxxxxxxxxx xxxxxxxx xxxxx xx xxx xxxxx xxxxx xxxxx",
			" xxxxxxx xxxxxxxxx xx xxx xxxxx xxxx xxxxxx xxx xxxxx xxxx xxxxxxxxxx xxxxxxxx xxxxx xxxx",
		},
		Question: {
			"xxxxxx xxx xxxxxxxx xxxxx xx xxx xxxxx xxxxxxxxxx xxxx xxxx xx xxx xxxxxx xxx xx xxx xxxxxx xxx xxxxx xxxxxx\n\nxxx xxxxxxxxx xxx xxxxx xxxxxxxxxx\n\n{context}\n\nxxxxxx xxx xxxxxxxx xxxxx xx xxx xxxxx xxxxxxxxxx xxxx xxxx xx xxx xxxxxx xxx xx xxx xxxxxx xxx xxxxx xxxxxx\n\nxxxxxxxxx {query}",
			" xxxxxxx",
		},
	},
	One: Text{
		"x xxxxxxx xxxxx {type_needle_v} xx xxxxxx xxxxxx xxx xxxxxxxxx xxxxx xxxx xxxx xx xxxxxxxx xxx x xxxx xxxx xxx xxxxx xxx {type_needle_v} xxxxxxxxxxx\n{context}\nxxxx xx xxx xxxxxxx xxxxx {type_needle_v} xxx {query} xxxxxxxxx xx xxx xxxxxxxx xxxxx",
		" xxx xxxxxxx xxxxx {type_needle_v} xxx {query} xxxxxxxxx xx xxx xxxxxxxx xxxx xx",
	},
}

// wording is the official one where there is a checkout; hashes tells.
func wording(t *testing.T) (w *Wording, hashes bool) {
	if *checkout == "" {
		return masked, false
	}
	w, known, err := LoadWording(*checkout)
	if err != nil {
		t.Fatal(err)
	}
	if !known {
		t.Log("the checkout is of another commit than the vectors")
	}
	return w, true
}

// vector is a row of the official generator: task, seed 42, and the row's
// figures.
type vector struct {
	task    string
	length  int // asked for
	units   int // 0: not stated
	tokens  int
	chars   int // 0: not stated
	hash    string
	outputs string
}

// toyVectors are rows 0 of the official generator with a tokenizer that counts
// words.
var toyVectors = []vector{
	{"niah_single_1", 1024, 44, 1022, 4323, "b180567c9785423248c75a93", "5661907"},
	{"niah_multikey_2", 1024, 83, 1016, 5851, "5dbd5af814f50d11d176d285", "2661307"},
	{"niah_multikey_3", 1024, 83, 1016, 9904, "68185e39bb0d364a66023074", "4a11be44-4aea-4b8f-b43c-de0afa9fc10e"},
	{"vt", 1024, 22, 1015, 4776, "a79f49a9d8f4907660f922fa", "DKYRX QHOAH LPRML FMXUE CNQIV"},
	{"cwe", 1024, 304, 1024, 5637, "c26b5e924628e1f924cc49d3", "invincible residence zonked taxpayer uptight messenger snore whimsical shampoo dessert"},
	{"fwe", 1024, 0, 1009, 4947, "77dc9cf20373e6c2eba2d59d", "uecllm gylwob otbpnw"},
	{"niah_single_1", 4096, 205, 4081, 18822, "56f728a08e215d4bb18fc0be", "7022674"},
	{"niah_multikey_3", 4096, 391, 4096, 45016, "66ae70e05d4e795014e37b8b", "9624ba9d-1cea-4ac0-9466-f946ffab82a0"},
	{"vt", 4096, 184, 4093, 19356, "7df7de84103a917e59678bd5", "DMNOI TLVXL XLEWL TVHUM GLSGI"},
	{"cwe", 4096, 490, 4096, 26089, "27e7fb45fe0575e034a3c514", "twine calendar angel loan curse raccoon accord koala contact scenario"},
	{"fwe", 4096, 0, 3990, 20327, "0d193ecd6018d8d3973f52fe", "ufnllw iwshay rhbtmq"},
	{"niah_single_2", 2048, 0, 2048, 0, "9f0e66a5d74da02e7cdf5369", "7067228"},
	{"niah_multikey_1", 2048, 0, 2048, 0, "e05740d81765250cd773aba2", "4374754"},
	{"niah_multivalue", 2048, 0, 2048, 0, "e66bfde4e37dbd534079107b", "5418934 9398441 3997281 9517485"},
	{"niah_multiquery", 2048, 0, 2048, 0, "9675cf2dd64aa9602bbefab7", "6692553 4191175 5171761 7754864"},
}

// words counts as the toy tokenizer does.
func words(text string) int { return len(strings.Fields(text)) }

// toyEssay is three hundred sentences.
func toyEssay() string {
	var all []string
	for i := range 300 {
		all = append(all, fmt.Sprintf("s%d a b c.", i))
	}
	return strings.Join(all, " ")
}

// abbreviated are what toyText is made of: sentences, and full stops that end none.
var abbreviated = []string{
	"Mr. Ox saw no. 7 in the U.S.", "We left at 5 p.m. He did not.", "J. Bach wrote it (in Oct. 1721).", "He said \"Go.\" Then he went.",
	"Is it so?! Yes... it is.", "St. Paul, Minn. is far.", "It cost 3.5 million. The Co. paid.", "\u201cWait.\u201d she said.",
}

// toyText is what scripts/ruler-rows.py gives the official code with --toy.
func toyText() string {
	var all []string
	for i := range 40 {
		all = append(all, abbreviated[i*i*7%8], abbreviated[i%8])
	}
	return strings.Join(all, " ")
}

// essayVectors are rows 0 and 1 of the official generator at 3000 words, seed 42, with
// toyText and NLTK 3.10.1, as scripts/ruler-rows.py prints them. The hash is of the text
// between the lines of the template, in which there is no wording.
var essayVectors = []struct {
	task                   string
	length, index, toToken int
	hash, outputs          string
}{
	{"niah_single_2", 3000, 811, 175, "8d75f35dd452380d9576f560", "2166941"},
	{"niah_single_2", 3000, 4709, 1046, "96077cd04473624264a426bd", "2338687"},
	{"niah_single_3", 3000, 1180, 258, "f380ac65bec7442cb3519ca4", "c6a7ee39-c4b0-42cc-97c5-24a55304317f"},
	{"niah_single_3", 3000, 1436, 314, "194467d231f868a04758bc8f", "448aaa9e-66b2-4c5b-90c1-87fcce177b4e"},
	{"niah_multikey_1", 3000, 9334, 2069, "4cb82636f815f1523aa47ace", "4374754"},
	{"niah_multikey_1", 3000, 816, 175, "623c579ad6d733032bf70d2c", "4694634"},
	{"niah_multivalue", 3000, 12434, 2759, "83d68d5f6ffc80253ed5c005", "7273233 3710343 9897858 1009594"},
	{"niah_multivalue", 3000, 11830, 2625, "ce5a1b128f2852cedf1150d7", "6159230 5017343 1971823 5041154"},
	{"niah_multiquery", 3000, 8812, 1959, "751cb25241ef36ce219bebce", "6692553 4191175 5171761 7754864"},
	{"niah_multiquery", 3000, 8563, 1905, "c949f0966730d76a1133c1fa", "2642635 4965789 8434500 1247595"},
}

// TestEssayVectors needs no official wording: masked has the lengths of its words.
func TestEssayVectors(t *testing.T) {
	var g *Generator
	for i, v := range essayVectors {
		task, _ := FindTask(v.task)
		if i%2 == 0 {
			var err error
			if g, err = NewGenerator(Options{Task: task, Length: 3000, Seed: 42, Count: words, Wording: masked, Text: toyText()}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := g.Next()
		if err != nil {
			t.Fatal(err)
		}
		_, context, _ := strings.Cut(r.Input, "\n")
		context, _, _ = strings.Cut(context, "\n")
		sum := sha256.Sum256([]byte(context))
		if got := hex.EncodeToString(sum[:])[:len(v.hash)]; got != v.hash || r.Length != v.length || r.Index != v.index || r.AnswerToken != v.toToken || strings.Join(r.Outputs, " ") != v.outputs {
			t.Errorf("%s, row %d: hash %s, length %d, index %d, token %d, outputs %v, want %+v", v.task, i%2, got, r.Length, r.Index, r.AnswerToken, r.Outputs, v)
		}
	}
}

// rows is what scripts/ruler-rows.py wrote.
var rows = flag.String("rows", "", "a folder of scripts/ruler-rows.py, whose files are then compared byte for byte; needs -ruler")

// TestOfficialRows makes the files of the official generator again.
func TestOfficialRows(t *testing.T) {
	if *rows == "" || *checkout == "" {
		t.Skip("go test -ruler DIR -rows DIR compares rows of the official generator (scripts/ruler-rows.py)")
	}
	var made struct{ NLTK, Wonderwords, Text string }
	b, err := os.ReadFile(filepath.Join(*rows, "made.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &made); err != nil {
		t.Fatal(err)
	}
	if want := "wonderwords " + made.Wonderwords; want != WordsVersion {
		t.Fatalf("the rows are of %s, ours are of %s", want, WordsVersion)
	}
	release := punkt.NLTK3101
	if made.NLTK == string(punkt.NLTK3104) {
		release = punkt.NLTK3104
	}
	w, _ := wording(t)
	paths, err := filepath.Glob(filepath.Join(*rows, "*", "*", "data", "*", "validation.jsonl"))
	if err != nil || len(paths) == 0 {
		t.Fatal(len(paths), err)
	}
	for _, path := range paths {
		var o Options
		if _, err := fmt.Sscanf(strings.TrimPrefix(path, *rows+"/"), "%d/%d/", &o.Seed, &o.Length); err != nil {
			t.Fatal(path, err)
		}
		o.Count, o.Wording, o.Text, o.NLTK = words, w, made.Text, release
		if o.Task, err = FindTask(filepath.Base(filepath.Dir(path))); err != nil {
			t.Fatal(err)
		}
		checkFile(t, path, o)
	}
	t.Logf("%d files of rows compared", len(paths))
}

// checkFile makes the rows of a file again and compares the bytes.
func checkFile(t *testing.T, path string, o Options) {
	t.Helper()
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGenerator(o)
	if err != nil {
		t.Fatal(path, err)
	}
	var got bytes.Buffer
	for range bytes.Count(want, []byte("\n")) {
		r, err := g.Next()
		if err != nil {
			t.Fatal(path, err)
		}
		if err := WriteRow(&got, o.Task, &r); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s: other bytes", path)
	}
}

// check compares a row with what the official generator made.
func (v vector) check(t *testing.T, g *Generator, r *Row, hashes bool) {
	t.Helper()
	prompt := r.Input + r.AnswerPrefix
	if v.units > 0 && g.Units() != v.units {
		t.Errorf("%d units, want %d", g.Units(), v.units)
	}
	if r.Length != v.tokens {
		t.Errorf("length %d, want %d", r.Length, v.tokens)
	}
	if n := utf8.RuneCountInString(prompt); v.chars > 0 && n != v.chars {
		t.Errorf("%d characters, want %d", n, v.chars)
	}
	if got := strings.Join(r.Outputs, " "); v.outputs != "" && got != v.outputs {
		t.Errorf("outputs %s, want %s", got, v.outputs)
	}
	sum := sha256.Sum256([]byte(prompt))
	if got := hex.EncodeToString(sum[:])[:len(v.hash)]; hashes && got != v.hash {
		t.Errorf("hash %s, want %s", got, v.hash)
	}
}

func TestToyVectors(t *testing.T) {
	w, hashes := wording(t)
	for _, v := range toyVectors {
		t.Run(fmt.Sprintf("%s/%d", v.task, v.length), func(t *testing.T) {
			task, err := FindTask(v.task)
			if err != nil {
				t.Fatal(err)
			}
			g, err := NewGenerator(Options{Task: task, Length: v.length, Seed: 42, Count: words, Wording: w, Text: toyEssay()})
			if err != nil {
				t.Fatal(err)
			}
			r, err := g.Next()
			if err != nil {
				t.Fatal(err)
			}
			v.check(t, g, &r, hashes)
		})
	}
}

// TestNeedleKeys holds what the vectors say beside the answers.
func TestNeedleKeys(t *testing.T) {
	w, _ := wording(t)
	for _, c := range []struct {
		task   string
		length int
		query  string
		index  int
	}{
		{"niah_single_1", 1024, "itchy-obligation", 999},
		{"niah_multikey_2", 1024, "motionless-subsection", -1},
		{"niah_single_1", 4096, "changeable-metaphor", -1},
		{"niah_single_2", 2048, "tangy-boysenberry", -1},
		{"niah_multikey_1", 2048, "faint-smolt", -1},
		{"niah_multiquery", 2048, "x-rated-comptroller, eminent-spirit, coherent-beauty, and axiomatic-tremor", -1},
	} {
		task, _ := FindTask(c.task)
		g, err := NewGenerator(Options{Task: task, Length: c.length, Seed: 42, Count: words, Wording: w, Text: toyEssay()})
		if err != nil {
			t.Fatal(err)
		}
		r, err := g.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.AnswerPrefix, " "+c.query+" ") {
			t.Errorf("%s asks for %q, want %s", c.task, r.AnswerPrefix, c.query)
		}
		if c.index >= 0 && r.Index != c.index {
			t.Errorf("%s: index %d, want %d", c.task, r.Index, c.index)
		}
	}
}

// toySquad is fifteen articles of four paragraphs, each with a question that can
// be answered; one cannot.
func toySquad() string {
	var b strings.Builder
	b.WriteString(`{"data": [`)
	for a := range 15 {
		if a > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `{"title": "T%d", "paragraphs": [`, a)
		for p := range 4 {
			if p > 0 {
				b.WriteString(",")
			}
			extra := ""
			if a == 0 && p == 0 {
				extra = `{"question": "Impossible?", "is_impossible": true, "answers": []},`
			}
			fmt.Fprintf(&b, `{"context": "Paragraph %d-%d text body here.", "qas": [%s{"question": "Question %d-%d?", "is_impossible": false, "answers": [{"text": "ans %d-%d"}, {"text": "ans %d"}]}]}`,
				a, p, extra, a, p, a, p, a)
		}
		b.WriteString("]}")
	}
	b.WriteString("]}")
	return b.String()
}

func TestToyQuestions(t *testing.T) {
	w, hashes := wording(t)
	task, _ := FindTask("qa_1")
	c, err := readCorpus(task, strings.NewReader(toySquad()))
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGenerator(Options{Task: task, Length: 300, Seed: 42, Count: words, Wording: w, Corpus: c})
	if err != nil {
		t.Fatal(err)
	}
	for i, hash := range []string{"ff61f52dab3230826ab51bd3", "f91b01664d583abac4ea8dfb", "f51a5d950601201fc887a1be"} {
		r, err := g.Next()
		if err != nil {
			t.Fatal(err)
		}
		vector{units: 31, tokens: 298, hash: hash}.check(t, g, &r, hashes)
		if gold := fmt.Sprintf("Document 29:\nParagraph 0-%d text", i); !strings.Contains(r.Input, gold) {
			t.Errorf("row %d: the answering document is not at rank 28", i)
		}
	}
}

// llamaVectors are rows 0 and 1 with the tokenizer and the chat template of
// Llama 3, at 4096 tokens.
var llamaVectors = []struct {
	row0   vector
	tokens int // of row 1, and so on
	chars  int
	hash   string
}{
	{vector{"niah_single_1", 4096, 161, 4073, 14966, "f1ce89aeac29af2f9220da61", "7374122"}, 4079, 14975, "fc1282e3a586bebac7c2dc6d"},
	{vector{"niah_multikey_2", 4096, 217, 4088, 14787, "f5eb154a86a3e1391c6f7e7d", "2813693"}, 4069, 14839, "e5dc7154fd4bc6433d64df32"},
	{vector{"niah_multikey_3", 4096, 65, 4040, 7968, "74929865b669cae83762dc1d", "ee9bf3e1-1d27-409a-9d71-a89864976593"}, 2603, 5118, "dc6a1b2c75acb4576614fec5"},
	{vector{"vt", 4096, 143, 4092, 15242, "f9e59dd6b6fe043001f87425", "KDRXW XUFUS MOXDD MNOIT LVXLX"}, 4092, 15242, "34c548dd5917c8c40de833ec"},
	{vector{"fwe", 4096, 0, 4032, 10793, "6da205f616b327237882598f", "ufnllw iwshay rhbtmq"}, 3757, 10793, "96641651006154ebdf347a9b"},
	{vector{"cwe", 4096, 132, 3878, 11381, "d2024d8021c5e2b75874fe9c", "obstacle anthropology want motorboat verify stake cyst contractor amnesty dragster"}, 3979, 11644, "cc67337835f6bbf40abe8156"},
}

// llamaTemplate is the official template of Llama 3 with the text of BOS.
const llamaTemplate = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{t}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"

// llamaCount counts with the tokenizer of Llama 3.
func llamaCount(tb testing.TB) func(string) int {
	path := filepath.Join("..", "..", "..", "shared", "data", "tokenizer", "llama-bpe.gguf")
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal(err)
		}
		tb.Skip("the vocabulary of Llama 3 is not here: ", err)
	}
	f, err := weights.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	vocab, err := tokenizer.FromMetadata(f)
	if err != nil {
		tb.Fatal(err)
	}
	tok, err := tokenizer.New(vocab)
	if err != nil {
		tb.Fatal(err)
	}
	return func(text string) int { return len(tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})) }
}

// TestLlamaVectors needs the official wording: with real tokens a length depends
// on the letters.
func TestLlamaVectors(t *testing.T) {
	w, hashes := wording(t)
	if !hashes {
		t.Skip("go test -ruler DIR names a checkout of NVIDIA/RULER, which these vectors need")
	}
	count := llamaCount(t)
	for _, v := range llamaVectors {
		t.Run(v.row0.task, func(t *testing.T) {
			task, _ := FindTask(v.row0.task)
			g, err := NewGenerator(Options{Task: task, Length: 4096, Seed: 42, Count: count, Wording: w, Template: llamaTemplate})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []vector{v.row0, {tokens: v.tokens, chars: v.chars, hash: v.hash}} {
				r, err := g.Next()
				if err != nil {
					t.Fatal(i, err)
				}
				want.check(t, g, &r, true)
			}
		})
	}
}

// released is where the two test files of the first era are, which the
// AnchorAttention repository has under data/test_data.
var released = flag.String("released", "", "the folder data/test_data of a checkout of Anchor-Attention, whose files are then read and counted")

// TestReleasedFiles counts the tokens of every released row: its length is that
// of the prompt and of the answer. One row counts one token more with the public
// vocabulary.
func TestReleasedFiles(t *testing.T) {
	if *released == "" {
		t.Skip("go test -released DIR names data/test_data of a checkout of Anchor-Attention, which this test reads")
	}
	count, odd := llamaCount(t), 0
	for _, name := range []string{"niah_single_1", "niah_multikey_3"} {
		f, err := os.Open(filepath.Join(*released, name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		in := NewReader(name, f)
		for i := range 8 {
			r, err := in.Next()
			if err != nil {
				t.Fatal(err)
			}
			task, _ := FindTask(name)
			if in.Era() != E1 || !r.Templated() || r.Prompt() != r.Input {
				t.Errorf("%s %d: era %s", name, i, in.Era())
			}
			if at, ok := r.Split(task, nil); !ok || !strings.HasPrefix(r.Input[at:], "What is the special magic") {
				t.Errorf("%s %d: the question is not found", name, i)
			}
			if n := count(r.Prompt()) + task.NewToken; n != r.Length {
				odd++
				t.Logf("%s %d: %d tokens, the file says %d", name, i, n, r.Length)
			}
		}
	}
	if odd > 1 {
		t.Errorf("%d of 16 rows count other tokens than their files say, want 1 at most", odd)
	}
}
