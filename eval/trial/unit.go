package trial

import (
	"context"
	"fmt"
	"strings"
)

// Sample is one prompt, ready to be answered.
type Sample struct {
	Request
	Truncated int   // tokens before the prompt was cut; 0 where it was not
	BOS       []int // where the prompt has the token that begins a text
	Alarms    []Alarm
	Tokens    func(ids []int32) // is told of the answer's tokens, before Grade and Row; may be nil
	Grade     func(answer string) (float64, error)
	Row       func(answer string) any // the suite's own fields of the answer's line
}

// Unit is a file of samples.
type Unit struct {
	Info
	// Each calls f for the samples in the order of their lines, from 0. make makes
	// the sample; it is not called for those that are answered. Each returns the
	// first error.
	Each func(f func(line int, make func() (Sample, error)) error) error
}

// Progress is told of each answer, and under which of the runner's attention
// methods it was given.
type Progress func(turn int, e Extra, t Times)

// Answerers is what answers, and turns the tokens of an answer into text.
type Answerers struct {
	*Answerer
	Decode func(ids []int32) string
}

// Answer answers what is left of the unit, in order, and adds it to the logs, of
// which there is one for each attention method of the runner. When ctx is done it
// returns after the sample under way, whose answers that are not written are lost.
func (u *Unit) Answer(ctx context.Context, logs []*Log, s Shard, a Answerers, report Progress) error {
	return u.Each(func(line int, make func() (Sample, error)) error {
		if !s.Has(line) {
			return nil
		}
		var turns []int
		for i, l := range logs {
			if !l.Done(line) {
				turns = append(turns, i)
			}
		}
		if len(turns) == 0 {
			return nil
		}
		return u.sample(ctx, line, make, a, turns, func(turn int, row any, e Extra, t Times) error {
			err := logs[turn].Append(row, e, t)
			if err == nil && report != nil {
				report(turn, e, t)
			}
			return err
		})
	})
}

// First answers the first n samples of the unit without keeping the answers, for
// audits; each is told of every answer.
func (u *Unit) First(ctx context.Context, n int, a Answerers, turns []int, each func(turn int)) error {
	return u.Each(func(line int, make func() (Sample, error)) error {
		if line >= n {
			return nil
		}
		return u.sample(ctx, line, make, a, turns, func(turn int, _ any, _ Extra, _ Times) error {
			each(turn)
			return nil
		})
	})
}

// sample makes a sample and answers it under some of the attention methods.
func (u *Unit) sample(ctx context.Context, line int, make func() (Sample, error), a Answerers, turns []int, done func(turn int, row any, e Extra, t Times) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := make()
	if err != nil {
		return err
	}
	err = a.Answerer.Answer(ctx, s.Request, turns, func(turn int, r Reply) error {
		row, extra, err := a.graded(line, s, r)
		if err != nil {
			return err
		}
		if u.Unscored {
			extra.Score = nil
		}
		return done(turn, row, extra, r.Times)
	})
	if err != nil {
		return fmt.Errorf("%s, sample %d: %w", u.Name, line, err)
	}
	return nil
}

// graded is the line of an answer.
func (a Answerers) graded(line int, s Sample, r Reply) (row any, e Extra, err error) {
	// What ends inside a character is graded as it is written: with U+FFFD.
	text := strings.ToValidUTF8(a.Decode(r.Tokens), "\uFFFD")
	if s.Tokens != nil {
		s.Tokens(r.Tokens)
	}
	score, err := s.Grade(text)
	if err != nil {
		return nil, e, err
	}
	e = Extra{
		Line: line, Score: &score, Prompt: len(s.Prompt), New: len(r.Tokens),
		Finish: string(r.Finish), Truncated: s.Truncated, BOS: s.BOS, Dense: s.Split, Alarms: s.Alarms,
	}
	if e.BOS == nil {
		e.BOS = []int{}
	}
	return s.Row(text), e, nil
}
