package serve

import (
	"iter"
	"sync"
)

// Answer is what comes back of a request. The scheduler never waits for its reader: pieces
// that nobody has read yet are kept.
type Answer struct {
	mu     sync.Mutex
	pieces []Piece       // not read yet
	news   chan struct{} // capacity 1: there are pieces, or the end
	ended  bool
	result Result
	err    error
}

func newAnswer() *Answer { return &Answer{news: make(chan struct{}, 1)} }

// Pieces are the pieces in their order, each once. The sequence ends with the answer,
// which a request whose context is done does within a step.
func (a *Answer) Pieces() iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		for {
			pieces, ended := a.take()
			for _, p := range pieces {
				if !yield(p) {
					return
				}
			}
			if ended {
				return
			}
		}
	}
}

// take waits for news and returns what was not read yet, and whether that was the end.
func (a *Answer) take() ([]Piece, bool) {
	<-a.news
	a.mu.Lock()
	defer a.mu.Unlock()
	pieces := a.pieces
	a.pieces = nil
	if a.ended {
		a.tell()
	}
	return pieces, a.ended
}

// Result is how the answer ended. It is valid once Pieces has ended.
func (a *Answer) Result() (Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.result, a.err
}

// emit hands over a piece.
func (a *Answer) emit(p Piece) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pieces = append(a.pieces, p)
	a.tell()
}

// end ends the answer.
func (a *Answer) end(r Result, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended, a.result, a.err = true, r, err
	a.tell()
}

func (a *Answer) tell() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}
