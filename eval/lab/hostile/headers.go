package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
	"github.com/gollm/gollm/weights"
)

// costly is a kind of header that asks for much time or memory, of about size bytes.
type costly struct {
	name  string
	build func(size int) *ggufFile
}

// What a header of the largest size may cost before it is loaded or refused.
const (
	fullHeader   = 63 << 20 // bytes; 64 MiB is the most that is read
	headerTime   = 5 * time.Second
	headerMemory = 1 << 30 // bytes
)

// costlyHeaders are the most expensive headers that we know of.
var costlyHeaders = []costly{
	{"merges whose pairs collide in a hash by the golden ratio", collidingMerges},
	{"as many merges as there is room for", func(size int) *ggufFile {
		f := vocabulary(true, []string{"ab"}, 1)
		f.setMerges(slices.Repeat([]string{"a b"}, min(size/11, 1<<22)))
		return f
	}},
	{"control tokens of 1,000 random bytes", func(size int) *ggufFile { return vocabulary(true, randomTexts(size/1012, 1000), 3) }},
	{"user-defined tokens, each the beginning of the next", func(size int) *ggufFile { return vocabulary(true, chains(size, 4), 4) }},
	{"SentencePiece tokens, each the beginning of the next", func(size int) *ggufFile { return vocabulary(false, chains(size, 6), 1) }},
	{"SentencePiece tokens of one letter in every length", func(size int) *ggufFile { return vocabulary(false, runs(size), 1) }},
	{"as many short tokens as there is room for", func(size int) *ggufFile { return vocabulary(true, counted(min(size/24, 500_000)), 1) }},
	{"as many short SentencePiece tokens as there is room for", func(size int) *ggufFile { return vocabulary(false, counted(min(size/28, 500_000)), 1) }},
	{"empty tokens", func(size int) *ggufFile { return vocabulary(true, make([]string, size/12), 1) }},
	{"one token again and again", func(size int) *ggufFile { return vocabulary(true, slices.Repeat([]string{"xyz"}, size/16), 1) }},
	{"one array of bytes", func(size int) *ggufFile {
		f := vocabulary(true, nil, 0)
		f.set("x", numberArray, append(array(0, size), make([]byte, size)...))
		return f
	}},
	{"arrays of bytes, as many as are read", func(size int) *ggufFile {
		f := vocabulary(true, nil, 0)
		n := min(size, 8_380_000) / 16
		for i := range 16 {
			f.set(fmt.Sprint("x", i), numberArray, append(array(0, n), make([]byte, n)...))
		}
		return f
	}},
	{"keys with long names", func(size int) *ggufFile {
		f := vocabulary(true, nil, 0)
		for i, name := range randomTexts(size/60_000, 59_900) {
			f.setU32(fmt.Sprint(i, name), 1)
		}
		return f
	}},
	{"as many keys as there may be", func(size int) *ggufFile {
		f := vocabulary(true, nil, 0)
		for i, name := range randomTexts(min(size/100, 65_000), 80) {
			f.setU32(fmt.Sprint(i, name), 1)
		}
		return f
	}},
	{"as many tensors as there may be", func(size int) *ggufFile {
		f := vocabulary(true, nil, 0)
		for i, name := range randomTexts(min(size/260, 65_000), 200) {
			f.add(fmt.Sprint(i, name), 0, make([]byte, 4), 1)
		}
		return f
	}},
	{"a template of line ends", ofTemplate("\n")},
	{"a template of brackets", ofTemplate("(")},
	{"a template of statements inside each other", ofTemplate("{% if x %}")},
	{"a template of expressions", ofTemplate("{{ x }}")},
	{"a template of expressions that begin", ofTemplate("{{ (")},
	{"an expression of brackets", ofExpression("(")},
	{"an expression of lists", ofExpression("[")},
	{"an expression of nots", ofExpression("not ")},
	{"an expression of signs", ofExpression("-")},
	{"an expression of filters", ofExpression("x | ")},
	{"a template of megabytes", func(size int) *ggufFile { return template(strings.Repeat("\n", size)) }},
	{"a name and an architecture of megabytes", func(size int) *ggufFile {
		f := vocabulary(true, nil, 0)
		f.keys[0].value = appendString(nil, strings.Repeat("a", size/2))
		f.setString("general.name", strings.Repeat("\x1b", size/2))
		return f
	}},
}

// vocabulary is a model without weights, with more tokens than the necessary ones.
func vocabulary(byteLevel bool, more []string, typ uint32) *ggufFile {
	f := small(device.F32, byteLevel, rand.New(rand.NewPCG(1, 2)))
	f.tensors, f.data = nil, nil
	f.addTokens(more, typ)
	return f
}

// addTokens adds tokens of a type to the vocabulary.
func (f *ggufFile) addTokens(more []string, typ uint32) {
	for i := range f.keys {
		k := &f.keys[i]
		grow := func(each func(b []byte, s string) []byte) {
			k.value = slices.Clone(k.value)
			binary.LittleEndian.PutUint64(k.value[4:], binary.LittleEndian.Uint64(k.value[4:])+uint64(len(more)))
			for _, s := range more {
				k.value = each(k.value, s)
			}
		}
		switch k.name {
		case "tokenizer.ggml.tokens":
			grow(appendString)
		case "tokenizer.ggml.token_type":
			grow(func(b []byte, _ string) []byte { return binary.LittleEndian.AppendUint32(b, typ) })
		case "tokenizer.ggml.scores":
			grow(func(b []byte, s string) []byte { return binary.LittleEndian.AppendUint32(b, uint32(len(s))) })
		}
	}
}

// randomTexts are n texts of a length.
func randomTexts(n, length int) []string {
	rng := rand.New(rand.NewPCG(3, 4))
	all := make([]string, n)
	for i := range all {
		b := make([]byte, length)
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
		all[i] = string(b)
	}
	return all
}

// chains are texts that begin with each other, up to 1,000 bytes, in letters counted by
// prefixes of some bytes.
func chains(size, prefix int) []string {
	var all []string
	for c := 0; size > 0; c++ {
		text := fmt.Sprintf("%0*d", prefix, c)
		for len(text) < 1000 && size > 0 {
			text += "a"
			all = append(all, text)
			size -= len(text) + 16
		}
	}
	return all
}

// runs are one letter in lengths up to 1,024, for one letter after the other.
func runs(size int) []string {
	var all []string
	for r := rune(0x4e00); size > 0; r++ {
		for n := 2; n <= 1024/3 && size > 0; n++ {
			all = append(all, strings.Repeat(string(r), n))
			size -= 3*n + 16
		}
	}
	return all
}

// counted are n short texts.
func counted(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("~%x", i)
	}
	return all
}

// collidingMerges has pairs whose numbers, times the golden ratio, begin alike.
func collidingMerges(size int) *ggufFile {
	const letters = 6000 // tokens, each of two bytes, so that any two make one that is there
	f := vocabulary(true, nil, 0)
	var tokens, merges []string
	base := 3 + 256 + 4
	name := func(i int) string { return fmt.Sprintf("%04x", i) }
	for i := range letters {
		tokens = append(tokens, name(i))
	}
	for left := 0; left < letters && size > 0; left++ {
		for right := 0; right < letters && size > 0; right++ {
			if (uint64(base+left)<<32|uint64(base+right))*0x9E3779B97F4A7C15>>56 != 7 {
				continue
			}
			merges = append(merges, name(left)+" "+name(right))
			tokens = append(tokens, name(left)+name(right))
			size -= 2*8 + 4 + 17
		}
	}
	f.addTokens(tokens, 1)
	f.setMerges(merges)
	return f
}

// setMerges gives the vocabulary other merges.
func (f *ggufFile) setMerges(merges []string) {
	const key = "tokenizer.ggml.merges"
	f.keys = slices.DeleteFunc(f.keys, func(k field) bool { return k.name == key })
	f.setStrings(key, merges)
}

// template is a vocabulary with a chat template.
func template(text string) *ggufFile {
	f := vocabulary(true, nil, 0)
	for i := range f.keys {
		if f.keys[i].name == "tokenizer.chat_template" {
			f.keys[i].value = appendString(nil, text)
		}
	}
	return f
}

// ofTemplate is a template of one text again and again, as long as one may be.
func ofTemplate(text string) func(size int) *ggufFile {
	const longest = 1 << 16
	return func(size int) *ggufFile { return template(strings.Repeat(text, min(size, longest)/len(text))) }
}

// ofExpression is a template of one expression, as long as one may be.
func ofExpression(text string) func(size int) *ggufFile {
	const longest = 1 << 16
	return func(size int) *ggufFile {
		return template("{{ " + strings.Repeat(text, min(size, longest-10)/len(text)) + "x }}")
	}
}

// loadHeaders loads every header in a process of its own, and prints what that took.
func loadHeaders(out io.Writer) error {
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	over := 0
	for _, c := range costlyHeaders {
		path := filepath.Join(dir, "header.gguf")
		if err := os.WriteFile(path, c.build(fullHeader).bytes(), 0o600); err != nil {
			return err
		}
		text, err := exec.Command(self, "-header", path).CombinedOutput()
		line := strings.TrimSpace(string(text))
		if err != nil {
			over++
			line = "OVER: " + line[:min(len(line), 300)]
		}
		fmt.Fprintf(out, "%-56s %s\n", c.name, line)
	}
	if over > 0 {
		return fmt.Errorf("%d headers cost more than %v and %d MiB", over, headerTime, headerMemory>>20)
	}
	return nil
}

// loadHeader loads one file and prints the time and the most memory that this took.
func loadHeader(out io.Writer, path string) error {
	begin := time.Now()
	f, err := weights.Open(path)
	result := "refused"
	if err == nil {
		result = useHeader(f)
	}
	took, cores, memory := time.Since(begin), coreTime(), peakMemory()
	fmt.Fprintf(out, "%5.2f s  %5.2f core-s  %4d MiB  %s\n", took.Seconds(), cores.Seconds(), memory>>20, result)
	if min(took, cores) > headerTime || memory > headerMemory { // other programs may make it wait
		return errors.New("that is too much")
	}
	return nil
}

// useHeader does with a header what a command does before the weights are used, and says
// what was refused.
func useHeader(f *weights.File) string {
	var all []string
	note := func(what string, err error) {
		if err == nil {
			all = append(all, what)
			return
		}
		text := err.Error()
		all = append(all, "no "+what+" ("+text[max(0, len(text)-60):]+")")
	}
	vocab, err := tokenizer.FromMetadata(f)
	var tok *tokenizer.Tokenizer
	if err == nil {
		tok, err = tokenizer.New(vocab)
	}
	note("tokenizer", err)
	if tok != nil {
		tok.Encode(strings.Repeat("000001aaaab ", 1<<13), tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
	}
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err == nil {
		_, err = model.Load(f, dev)
	}
	note("model", err)
	source, err := f.StringOr("tokenizer.chat_template", "")
	if err == nil {
		var t *chat.Template
		if t, err = chat.Parse(source); err == nil {
			_, err = t.Render(context.Background(), chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "a"}}})
		}
	}
	note("template", err)
	return strings.Join(all, ", ")
}

// peakMemory is the most bytes of memory that this process has had, 0 where the system
// does not say.
func peakMemory() int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kb int64
		if n, _ := fmt.Sscanf(s.Text(), "VmHWM: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}
