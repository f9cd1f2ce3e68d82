package tokenizer

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// threadTime returns the processor time that this thread has used, which other
// programs on the machine do not change much.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var r syscall.Rusage
	if err := syscall.Getrusage(thread, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// measure runs a benchmark and reports, beside the time that passed, the processor
// time of one round and, for size > 0, the bytes for each second of it.
func measure(b *testing.B, size int, round func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.SetBytes(int64(size))
	start, rounds := threadTime(), 0
	for b.Loop() {
		round()
		rounds++
	}
	each := (threadTime() - start).Seconds() / float64(rounds)
	b.ReportMetric(each*1e3, "cpu-ms/op")
	if size > 0 {
		b.ReportMetric(float64(size)/each/1e6, "MB/cpu-s")
	}
}

// BenchmarkNew is what the tokenizer adds to the start of the program.
func BenchmarkNew(b *testing.B) {
	for _, name := range sharedVocabs {
		b.Run(name, func(b *testing.B) {
			v := sharedVocab(b, "tokenizer/"+name+".gguf")
			measure(b, 0, func() {
				if _, err := New(v); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkEncode encodes a book with and without the words of an earlier run.
func BenchmarkEncode(b *testing.B) {
	book := readShared(b, "text/war-and-peace.txt")
	texts := map[string]string{"500KB": book[:500_000], "book": book}
	for _, name := range sharedVocabs {
		tok := sharedTokenizer(b, "tokenizer/"+name+".gguf")
		for _, size := range []string{"500KB", "book"} {
			text := texts[size]
			b.Run(name+"/cold/"+size, func(b *testing.B) {
				measure(b, len(text), func() {
					tok.idle = nil
					tok.Encode(text, EncodeOptions{})
				})
			})
			b.Run(name+"/warm/"+size, func(b *testing.B) {
				measure(b, len(text), func() { tok.Encode(text, EncodeOptions{}) })
			})
		}
	}
}

// BenchmarkLongWord encodes 1 MB without a break.
func BenchmarkLongWord(b *testing.B) {
	words := map[string]string{
		"a":   strings.Repeat("a", 1<<20),
		"mix": strings.Repeat("abcdefghijklmnopqrstuvwxyzETAOINSHRDLU", 1<<20/38+1)[:1<<20],
	}
	for _, name := range sharedVocabs {
		tok := sharedTokenizer(b, "tokenizer/"+name+".gguf")
		for _, kind := range []string{"a", "mix"} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				measure(b, 1<<20, func() { tok.Encode(words[kind], EncodeOptions{}) })
			})
		}
	}
}

// BenchmarkDecode decodes the ids of a book.
func BenchmarkDecode(b *testing.B) {
	book := readShared(b, "text/war-and-peace.txt")
	for _, name := range sharedVocabs {
		tok := sharedTokenizer(b, "tokenizer/"+name+".gguf")
		ids := tok.Encode(book, EncodeOptions{})
		b.Run(name, func(b *testing.B) {
			measure(b, len(book), func() { tok.Decode(ids, DecodeOptions{}) })
		})
	}
}
