package longbench

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The files of the Python package jieba, and the SHA-256 of them all, one after the
// other, in version 0.42.1.
var splitterFiles = []string{"dict.txt", "finalseg/prob_start.py", "finalseg/prob_trans.py", "finalseg/prob_emit.py"}

const splitterHash = "9a119f903359e53c2bc99c64488c9836650ce3912cdadc785eab91e7c8b09884"

// unlikely is the logarithm of the probability of what a table does not have.
const unlikely = -3.14e100

// Splitter splits Chinese text into words as the Python package jieba does with its
// defaults: the likeliest path through the words of a dictionary, by how often each
// occurs, and for what is left in single characters the likeliest tags of a hidden
// Markov model. It is safe for several goroutines.
type Splitter struct {
	Hash  string // SHA-256 of the files
	Known bool   // they are those of jieba 0.42.1

	// logs is the logarithm of the share of each word, NaN for what only words begin
	// with.
	logs  map[string]float64
	once  float64 // of a word that occurs once
	start [tags]float64
	trans [tags][tags]float64
	emit  [tags]map[rune]float64
}

// LoadSplitter reads the tables of jieba from the folder of its package, which
// python3 -c 'import jieba; print(jieba.__path__[0])' prints.
func LoadSplitter(dir string) (*Splitter, error) {
	var files [4][]byte
	sum := sha256.New()
	for i, name := range splitterFiles {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, fmt.Errorf("longbench: %s is not the folder of the Python package jieba: %w", dir, err)
		}
		files[i] = b
		sum.Write(b)
	}
	s := &Splitter{Hash: hex.EncodeToString(sum.Sum(nil))}
	s.Known = s.Hash == splitterHash
	if err := s.readWords(files[0]); err != nil {
		return nil, fmt.Errorf("longbench: %s/%s:%w", dir, splitterFiles[0], err)
	}
	for i, read := range []func(tag int, key string, x float64){s.setStart, s.setTrans, s.setEmit} {
		if err := readTable(files[i+1], i > 0, read); err != nil {
			return nil, fmt.Errorf("longbench: %s/%s: %w", dir, splitterFiles[i+1], err)
		}
	}
	return s, nil
}

// readWords reads the dictionary: a word, how often it occurs, and more, with blanks
// between them. Its error begins with the line.
func (s *Splitter) readWords(b []byte) error {
	s.logs = map[string]float64{}
	counts, total := map[string]int64{}, int64(0)
	in := bufio.NewScanner(bytes.NewReader(b))
	for number := 1; in.Scan(); number++ {
		fields := strings.Split(strings.TrimSpace(in.Text()), " ")
		if len(fields) < 2 {
			return fmt.Errorf("%d: %q, want a word and how often it occurs", number, in.Text())
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%d: %q, want a word and how often it occurs", number, in.Text())
		}
		counts[fields[0]] = n
		total += n
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf(" %w", err)
	}
	if total == 0 {
		return fmt.Errorf(" no word occurs")
	}
	all, known := logarithm(total), map[int64]float64{}
	s.once = logarithm(1) - all
	for word, n := range counts {
		for i := range word + "." {
			if _, ok := s.logs[word[:i]]; !ok && i > 0 {
				s.logs[word[:i]] = math.NaN()
			}
		}
		if n == 0 {
			continue
		}
		if _, ok := known[n]; !ok {
			known[n] = logarithm(n) - all
		}
		s.logs[word] = known[n]
	}
	return nil
}

// logarithm is the natural logarithm of n, rounded correctly, as the C library of
// Python rounds it: paths that are equally likely are told apart by the last bit.
func logarithm(n int64) float64 {
	const bits = 128
	number := func(x int64) *big.Float { return new(big.Float).SetPrec(bits).SetInt64(x) }
	// ln(m·2^k) = ln m + k·ln 2, and ln m = 2·(z + z³/3 + z⁵/5 + …) with z = (m-1)/(m+1).
	series := func(m *big.Float) *big.Float {
		z := new(big.Float).SetPrec(bits).Quo(new(big.Float).SetPrec(bits).Sub(m, number(1)), new(big.Float).SetPrec(bits).Add(m, number(1)))
		square, sum := new(big.Float).SetPrec(bits).Mul(z, z), number(0)
		for i := int64(1); z.Sign() != 0 && z.MantExp(nil) > -bits; i += 2 { // |z| is 1/3 at most
			sum.Add(sum, new(big.Float).SetPrec(bits).Quo(z, number(i)))
			z.Mul(z, square)
		}
		return sum.Mul(sum, number(2))
	}
	m := number(n)
	k := m.MantExp(m) // m is 1/2 or more, and below 1
	ln := series(m)
	ln.Add(ln, new(big.Float).SetPrec(bits).Mul(series(number(2)), number(int64(k))))
	x, _ := ln.Float64()
	return x
}

// tags are those of the model: where in a word a character is.
const tags = 4

// tagNames are their names: begin, end, middle, single. The order is that of the
// letters, by which the package tells equals apart.
const tagNames = "BEMS"

func (s *Splitter) setStart(tag int, _ string, x float64) { s.start[tag] = x }

func (s *Splitter) setTrans(tag int, key string, x float64) {
	if to := strings.Index(tagNames, key); to >= 0 {
		s.trans[tag][to] = x
	}
}

func (s *Splitter) setEmit(tag int, key string, x float64) {
	if s.emit[tag] == nil {
		s.emit[tag] = map[rune]float64{}
	}
	for _, c := range key {
		s.emit[tag][c] = x
	}
}

// tableEntry is a key of a Python dictionary, and its number or the beginning of a
// dictionary in it.
var tableEntry = regexp.MustCompile(`'(\\u[0-9a-f]{4}|[^'\\])'\s*:\s*(\{|-?[0-9][0-9.e+-]*)`)

// readTable reads a table from Python source: {tag: number}, or nested {tag: {key:
// number}}.
func readTable(source []byte, nested bool, set func(tag int, key string, x float64)) error {
	tag, seen := -1, 0
	for _, m := range tableEntry.FindAllSubmatch(source, -1) {
		key := string(m[1])
		if code, ok := strings.CutPrefix(key, `\u`); ok {
			c, _ := strconv.ParseUint(code, 16, 32) // four digits, as the pattern says
			key = string(rune(c))
		}
		if string(m[2]) == "{" || !nested {
			if tag = strings.Index(tagNames, key); tag < 0 {
				return fmt.Errorf("a tag %q, want one of %s", key, tagNames)
			}
			seen |= 1 << tag
		}
		if string(m[2]) == "{" {
			continue
		}
		x, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil || tag < 0 {
			return fmt.Errorf("%q is no number of a tag", m[0])
		}
		set(tag, key, x)
	}
	if seen != 1<<tags-1 {
		return fmt.Errorf("it lacks some of the tags %s; the file is not one that this version can read", tagNames)
	}
	return nil
}
