package ruler

import "strings"

// The words of the built-in text.
var (
	fillerPeople = strings.Fields("baker miller farmer teacher sailor painter doctor nurse singer driver hunter porter clerk judge guard cook mother father child neighbor traveler gardener weaver smith")
	fillerThings = strings.Fields("letter basket lantern wagon bridge table window garden kettle ladder blanket mirror candle hammer violin saddle barrel ribbon needle pillow bucket curtain statue engine")
	fillerKinds  = strings.Fields("old young quiet tall small bright heavy gentle broken golden simple strange narrow wooden empty clever patient honest dusty yellow")
	fillerVerbs  = strings.Fields("found carried sold painted moved cleaned lost repaired watched covered opened borrowed described measured followed admired")
	fillerPlaces = []string{"near the river", "behind the mill", "in the kitchen", "at the market", "on the hill", "by the road", "under the old oak", "beside the church", "across the field", "in the harbor"}
	fillerLinks  = strings.Fields("and but while because before after")
)

// FillerName is what reports call the built-in text.
const FillerName = "essay-substitute (built-in sentences)"

// Filler is about n words of plain sentences that mean nothing, the same for a
// seed: a text to hide needles in where there is no essay. It is far more uniform
// than an essay, so that a report must say that it was used.
func Filler(seed uint64, n int) string {
	r := newRandom(seed)
	var b strings.Builder
	for count := 0; count < n; {
		s := fillerSentence(r)
		count += len(strings.Fields(s))
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s)
	}
	return b.String()
}

// fillerSentence is one sentence.
func fillerSentence(r *random) string {
	s := fillerClause(r)
	if r.below(4) == 0 {
		s += " " + pick(r, fillerLinks) + " " + fillerClause(r)
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

func fillerClause(r *random) string {
	s := fillerNoun(r, fillerPeople) + " " + pick(r, fillerVerbs) + " " + fillerNoun(r, fillerThings)
	if r.below(5) < 3 {
		s += " " + pick(r, fillerPlaces)
	}
	return s
}

func fillerNoun(r *random, nouns []string) string {
	if r.below(2) == 0 {
		return "the " + pick(r, fillerKinds) + " " + pick(r, nouns)
	}
	return "the " + pick(r, nouns)
}

// pick is random.choice.
func pick(r *random, list []string) string { return list[r.below(len(list))] }
