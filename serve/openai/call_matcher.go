package openai

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gollm/gollm/grammar"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
)

// callGrammar constrains answers with calls of functions.
type callGrammar struct {
	s      *schemas
	format *chat.CallFormat
	calls  *grammar.Constraint // of a call, or of a list of them
	many   bool                // several calls one behind the other
	text   bool                // text may stand where there is no call
	open   int32               // the token of format.Open, of format.Tag where that is empty; [tokenizer.None]: there is none
}

// calls is the grammar of the answers that a toolset wants.
func (s *schemas) calls(ctx context.Context, t *toolset) (*callGrammar, error) {
	c, err := s.constraint(ctx, "tools", t.grammarText(), t.schemaPaths()...)
	if refused := new(grammar.SchemaError); errors.As(err, &refused) {
		return nil, t.blame(refused)
	} else if err != nil {
		return nil, err
	}
	g := &callGrammar{s: s, format: t.format, calls: c, many: t.many && !t.format.List, text: !t.forced, open: tokenizer.None}
	if id, ok := s.tok.ID(or(t.format.Open, t.format.Tag)); ok {
		g.open = id
	} else if g.text && t.format.Open != "" {
		return nil, unsupported("tools", "strict functions need a vocabulary that has %s as one token, or tool_choice required", t.format.Open)
	}
	return g, nil
}

// callPhase is where in an answer a callMatcher is.
type callPhase int

// The phases.
const (
	beforeText   callPhase = iota // nothing but white space was written
	inText                        // there may be a call yet, unless the answer had to begin with it
	inCall                        // inside a call, or behind it where nothing may follow
	inLiteral                     // inside of what the format has between
	betweenCalls                  // another call, or the end
)

// callMatcher follows one answer. It is a [serve.Constraint].
type callMatcher struct {
	*callGrammar
	phase   callPhase
	m       *grammar.Matcher // of the call
	literal string           // the rest of it, in the phase inLiteral
	then    callPhase        // behind the literal
	ended   bool
	mask    []uint32
}

func (g *callGrammar) matcher() *callMatcher {
	m := &callMatcher{callGrammar: g, phase: inCall, m: g.calls.Matcher(), mask: make([]uint32, (g.s.tok.Len()+31)/32)}
	if g.text {
		m.phase = beforeText
	}
	return m
}

// MaskContext is the tokens that may come next.
func (m *callMatcher) MaskContext(ctx context.Context) ([]uint32, error) {
	clear(m.mask)
	switch m.phase {
	case inCall:
		return m.m.MaskContext(ctx)
	case inLiteral:
		m.s.allowLiteral(m.mask, m.literal)
	case betweenCalls:
		if !m.ended {
			m.allowEnds()
		}
		if m.many {
			m.s.allowLiteral(m.mask, m.next())
		}
	default:
		for i := range m.mask {
			m.mask[i] = ^uint32(0)
		}
		if m.phase == beforeText && m.format.Open == "" {
			return m.mask, m.beginAsCall(ctx)
		}
	}
	return m.mask, nil
}

// next is what stands between two calls.
func (m *callMatcher) next() string { return "\n" + m.format.Open + "\n" }

// beginAsCall leaves of the tokens that begin an object those that begin a call.
func (m *callMatcher) beginAsCall(ctx context.Context) error {
	calls, err := m.m.MaskContext(ctx)
	if err != nil {
		return err
	}
	for _, id := range m.s.objectTokens() {
		m.mask[id>>5] = m.mask[id>>5]&^(1<<(id&31)) | calls[id>>5]&(1<<(id&31))
	}
	return nil
}

func (m *callMatcher) allowEnds() {
	for _, id := range m.s.tok.Ends() {
		set(m.mask, id)
	}
}

func set(mask []uint32, id int32) { mask[id>>5] |= 1 << (id & 31) }

// AcceptToken goes on with a token that the mask allows.
func (m *callMatcher) AcceptToken(id int32) error {
	if m.phase != inCall && m.s.tok.EndOfGeneration(id) {
		m.ended = true
		return nil
	}
	switch m.phase {
	case inCall:
		return m.inCall(id)
	case betweenCalls:
		m.expect(m.next(), inCall)
		m.follow(id)
	case inLiteral:
		m.follow(id)
	default:
		return m.inText(id)
	}
	return nil
}

// inText goes on with a token of text, with which a call may begin.
func (m *callMatcher) inText(id int32) error {
	text := strings.TrimLeft(m.s.tok.Piece(id), " \n\r\t")
	switch {
	case id == m.open && (m.format.Open != "" || m.phase == beforeText):
		m.phase = inCall
		if m.format.Close != "" {
			m.expect("\n", inCall)
		}
	case m.phase == beforeText && m.format.Open == "" && strings.HasPrefix(text, "{"):
		m.phase = inCall
		return m.inCall(id)
	case text != "":
		m.phase = inText
	}
	return nil
}

// inCall goes on with a token of a call, which may be its last one.
func (m *callMatcher) inCall(id int32) error {
	if err := m.m.AcceptToken(id); err != nil {
		return err
	}
	if m.format.Close == "" || !m.m.Done() {
		return nil // behind a call without anything that closes it the matcher wants the end
	}
	then := betweenCalls
	if m.text && m.many {
		then = inText
	}
	m.m = m.calls.Matcher()
	m.expect("\n"+m.format.Close, then)
	return nil
}

// expect wants a text, and then another phase.
func (m *callMatcher) expect(literal string, then callPhase) {
	m.phase, m.literal, m.then = inLiteral, literal, then
}

// follow goes on in a literal.
func (m *callMatcher) follow(id int32) {
	if m.literal = strings.TrimPrefix(m.literal, m.s.shown(id)); m.literal == "" {
		m.phase = m.then
	}
}

// shown is the text of a token, of a control token too.
func (s *schemas) shown(id int32) string {
	if s.tok.Special(id) {
		return s.tok.Text(id)
	}
	return s.tok.Piece(id)
}

// allowLiteral allows the tokens that a text begins with.
func (s *schemas) allowLiteral(mask []uint32, text string) {
	s.tokens.Lock()
	ids, ok := s.literals[text]
	s.tokens.Unlock()
	if !ok {
		for id := range int32(s.tok.Len()) {
			if t := s.shown(id); t != "" && strings.HasPrefix(text, t) {
				ids = append(ids, id)
			}
		}
		s.tokens.Lock()
		s.literals[text] = ids
		s.tokens.Unlock()
	}
	for _, id := range ids {
		set(mask, id)
	}
}

// objectTokens are the tokens that begin a JSON object, behind white space too.
func (s *schemas) objectTokens() []int32 {
	s.tokens.Lock()
	defer s.tokens.Unlock()
	if s.objects == nil {
		for id := range int32(s.tok.Len()) {
			if strings.HasPrefix(strings.TrimLeft(s.tok.Piece(id), " \n\r\t"), "{") {
				s.objects = append(s.objects, id)
			}
		}
	}
	return slices.Clip(s.objects)
}
