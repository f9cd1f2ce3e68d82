package grammar

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// formats is the automata of the formats, made when they are asked for. Each accepts texts of its
// format only. docs/structured-output.md says which of them it leaves out.
var formats = map[string]func() *chars{
	"date":      whole(date),
	"time":      whole(timeOfDay),
	"date-time": whole(date + "T" + timeOfDay),
	"duration":  whole(duration),
	"email":     whole(`(?:` + atext + `{1,64}|` + atext + `{1,12}(?:\.` + atext + `{1,12}){0,4})@(?:` + hostname + `)`),
	"hostname":  whole(hostname),
	"ipv4":      whole(ipv4),
	"ipv6":      whole(ipv6),
	"uuid":      whole(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`),
}

// whole is the automaton of what a pattern of this package matches whole.
func whole(pattern string) func() *chars {
	return sync.OnceValue(func() *chars {
		w := work(maxWork)
		c, err := compilePattern(pattern, false, &w)
		if err != nil {
			panic(err) // the pattern is a constant
		}
		return c
	})
}

// formatNames lists the formats.
func formatNames() string { return strings.Join(slices.Sorted(maps.Keys(formats)), ", ") }

const (
	// date knows how many days a month has, and leap years.
	date = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|` +
		`(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`

	timeOfDay = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`

	duration = `P(?:[0-9]{1,9}W|` +
		`(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)(?:T` + clock + `)?|T` + clock + `)`
	clock = `(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)`

	atext = `[0-9A-Za-z!#$%&'*+/=?^_{|}~-]`

	// hostname has labels of at most 63 characters, and of at most 253 in all.
	hostname   = longLabel + `(?:\.` + longLabel + `){0,2}|` + shortLabel + `(?:\.` + shortLabel + `){0,7}`
	longLabel  = `[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?`
	shortLabel = `[0-9A-Za-z](?:[0-9A-Za-z-]{0,28}[0-9A-Za-z])?`

	ipv4  = octet + `(?:\.` + octet + `){3}`
	octet = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`

	ipv6 = `(?:` + h16 + `:){7}` + h16 + `|(?:` + h16 + `:){1,7}:|(?:` + h16 + `:){1,6}:` + h16 + `|(?:` + h16 + `:){1,5}(?::` + h16 + `){2}|(?:` +
		h16 + `:){1,4}(?::` + h16 + `){3}|(?:` + h16 + `:){1,3}(?::` + h16 + `){4}|(?:` + h16 + `:){1,2}(?::` + h16 + `){5}|` + h16 + `:(?::` + h16 + `){6}|:(?:(?::` +
		h16 + `){1,7}|:)`
	h16 = `[0-9a-fA-F]{1,4}`
)
