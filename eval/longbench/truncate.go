package longbench

// Cut is which part of a prompt that is too long goes.
type Cut string

// The cuts.
const (
	Middle Cut = "middle" // the official one
	Left   Cut = "left"
	Right  Cut = "right"
)

// Truncate is the two parts of ids that stay, of at most most tokens in all: for
// [Middle] as many from the beginning as from the end. The official code of
// version 1 drops one more of an odd number, version 2 keeps it at the end (odd).
func (c Cut) Truncate(ids []int32, most int, odd bool) (head, tail []int32) {
	if len(ids) <= most {
		return ids, nil
	}
	switch c {
	case Left:
		return nil, ids[len(ids)-most:]
	case Right:
		return ids[:most], nil
	}
	half := most / 2
	last := half
	if odd {
		last = most - half
	}
	return ids[:half], ids[len(ids)-last:]
}
