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

// Progress is told of each answer. The numbers are of the unit and shard.
type Progress func(done, total int, e Extra, t Times)

// Answerers is what answers, and turns the tokens of an answer into text.
type Answerers struct {
	*Answerer
	Decode func(ids []int32) string
}

// Answer answers what is left of the unit, in order, and adds it to the log. When
// ctx is done it returns after the sample under way, which is lost.
func (u *Unit) Answer(ctx context.Context, l *Log, s Shard, a Answerers, report Progress) error {
	total := s.Size(u.Count)
	return u.Each(func(line int, make func() (Sample, error)) error {
		if !s.Has(line) || l.Done(line) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		sample, err := make()
		if err != nil {
			return err
		}
		row, extra, t, err := a.one(ctx, line, sample)
		if err != nil {
			return fmt.Errorf("%s, sample %d: %w", u.Name, line, err)
		}
		if err := l.Append(row, extra, t); err != nil {
			return err
		}
		if report != nil {
			report(l.Len(), total, extra, t)
		}
		return nil
	})
}

// one answers a sample.
func (a Answerers) one(ctx context.Context, line int, s Sample) (row any, e Extra, t Times, err error) {
	reply, err := a.Answerer.Answer(ctx, s.Request)
	if err != nil {
		return nil, e, t, err
	}
	// What ends inside a character is graded as it is written: with U+FFFD.
	text := strings.ToValidUTF8(a.Decode(reply.Tokens), "\uFFFD")
	score, err := s.Grade(text)
	if err != nil {
		return nil, e, t, err
	}
	e = Extra{
		Line: line, Score: score, Prompt: len(s.Prompt), New: len(reply.Tokens),
		Finish: string(reply.Finish), Truncated: s.Truncated, BOS: s.BOS, Dense: s.Split,
	}
	if e.BOS == nil {
		e.BOS = []int{}
	}
	return s.Row(text), e, reply.Times, nil
}

// First answers the first n samples of the unit without keeping the answers, for
// audits.
func (u *Unit) First(ctx context.Context, n int, a Answerers) error {
	return u.Each(func(line int, make func() (Sample, error)) error {
		if line >= n {
			return nil
		}
		s, err := make()
		if err != nil {
			return err
		}
		if _, _, _, err = a.one(ctx, line, s); err != nil {
			return fmt.Errorf("%s, sample %d: %w", u.Name, line, err)
		}
		return nil
	})
}
