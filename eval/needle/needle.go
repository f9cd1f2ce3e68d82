package needle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Grid is what is asked: every length at every depth, in several rounds with
// needles of their own.
type Grid struct {
	Lengths []int // tokens of the text around the needle and the instruction
	Depths  []int // percent of the text before the needle
	Rounds  int
	Seed    uint64
}

// Spread is n whole numbers from low to high at equal distances, halves rounded
// to even.
func Spread(low, high, n int) []int {
	if n < 2 {
		return []int{low}
	}
	list := make([]int, n)
	for i := range list {
		list[i] = int(math.RoundToEven(float64(low) + float64(high-low)*float64(i)/float64(n-1)))
	}
	return list
}

// The sentences. The instruction has the text and the question.
const (
	needleText  = "\nThe special magic %s number is: %s\n"
	question    = "What is the special magic %s number?"
	instruction = "A special magic number is hidden in the text below. Find it and answer the question after the text.\n\n"
	closing     = "\n\nQuestion: %s\nAnswer: "
)

// cities name the needles.
var cities = strings.Fields(`Amsterdam Athens Bangkok Barcelona Beijing Berlin Bogota Boston Brussels Budapest Cairo Chicago
	Copenhagen Dakar Delhi Dublin Geneva Hanoi Havana Helsinki Istanbul Jakarta Johannesburg Karachi Kyoto Lagos Lima Lisbon
	London Madrid Manila Melbourne Milan Montreal Moscow Mumbai Nairobi Naples Osaka Oslo Paris Prague Quito Reykjavik Rome
	Santiago Seattle Seoul Shanghai Singapore Stockholm Sydney Tokyo Toronto Vienna Warsaw Zurich`)

// reserved is the tokens of a length that are kept for the instruction and the
// answer.
const reserved = 200

// Coder is the tokenizer that prompts are made with.
type Coder interface {
	Encode(text string) []int32
	Text(id int32) string // what a token stands for
}

// Case is one prompt.
type Case struct {
	Prompt   []int32 // without BOS
	Split    int     // the token where the question begins
	Position int     // the token where the needle begins
	Length   int
	Depth    int // percent
	Round    int
	Answer   string
	Seed     uint64
}

// Cases is how many prompts a length has.
func (g Grid) Cases() int { return len(g.Depths) * g.Rounds }

// Check reports what is wrong with the grid.
func (g Grid) Check() error {
	for _, n := range g.Lengths {
		if n <= 2*reserved {
			return fmt.Errorf("needle: a length of %d tokens, want more than %d: %d are kept for the instruction", n, 2*reserved, reserved)
		}
	}
	for _, d := range g.Depths {
		if d < 0 || d > 100 {
			return fmt.Errorf("needle: a depth of %d %%, want 0 to 100", d)
		}
	}
	if len(g.Lengths) == 0 || len(g.Depths) == 0 || g.Rounds < 1 {
		return fmt.Errorf("needle: %d lengths, %d depths and %d rounds, want one of each at least", len(g.Lengths), len(g.Depths), g.Rounds)
	}
	return nil
}

// Make is case number i of a length: depths first, then rounds. hay is the tokens
// of the haystack of all rounds, which is read from another place each round and
// from its beginning after its end.
func (g Grid) Make(c Coder, hay []int32, length, i int) (Case, error) {
	k := Case{Length: length, Depth: g.Depths[i%len(g.Depths)], Round: i / len(g.Depths)}
	if len(hay) == 0 {
		return k, fmt.Errorf("needle: the haystack has no tokens")
	}
	r := rand.New(rand.NewPCG(g.Seed, uint64(length)<<32|uint64(k.Depth)<<16|uint64(k.Round)))
	k.Seed = g.Seed
	city := cities[r.IntN(len(cities))]
	k.Answer = strconv.Itoa(1000000 + r.IntN(9000000))
	pin := c.Encode(fmt.Sprintf(needleText, city, k.Answer))
	text := cutHay(hay, k.Round*len(hay)/max(g.Rounds, 1), min(length, length-reserved-len(pin)))
	at := len(text)
	if k.Depth < 100 {
		at = sentenceEnd(c, text, len(text)*k.Depth/100)
	}
	head := c.Encode(instruction)
	tail := c.Encode(fmt.Sprintf(closing, fmt.Sprintf(question, city)))
	k.Position = len(head) + at
	k.Prompt = slices.Concat(head, text[:at], pin, text[at:], tail)
	k.Split = len(k.Prompt) - len(tail)
	return k, nil
}

// cutHay is n tokens from a place on, around the end.
func cutHay(hay []int32, from, n int) []int32 {
	text := make([]int32, 0, max(n, 0))
	for len(text) < n {
		from %= len(hay)
		part := hay[from:min(len(hay), from+n-len(text))]
		text = append(text, part...)
		from += len(part)
	}
	return text
}

// sentenceEnd is the last place up to at that follows a token which is a full
// stop and nothing else; 0 where there is none.
func sentenceEnd(c Coder, text []int32, at int) int {
	for at > 0 && c.Text(text[at-1]) != "." {
		at--
	}
	return at
}

// Correct is 1 where an answer has the number, else 0.
func (k *Case) Correct(answer string) float64 {
	if strings.Contains(answer, k.Answer) {
		return 1
	}
	return 0
}
