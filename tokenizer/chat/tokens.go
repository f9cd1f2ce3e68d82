package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// lex returns the tokens of a template. It refuses tags that are too long for the
// parser.
func lex(source string) ([]*tokens.Token, error) {
	plain := strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n") // as positions count
	settings := jinjaConfig()
	settings.LeftStripBlocks = false // stripBlock does it
	stream := tokens.LexAll(source, settings)
	var all []*tokens.Token
	begin := 0 // of the tag
	for {
		t := stream.Current()
		switch t.Type {
		case tokens.EOF:
			return append(all, t), nil
		case tokens.Error: // which has no line
			line := 1 + strings.Count(plain[:min(t.Pos, len(plain))], "\n")
			return nil, lineError{line, "it cannot be read from here on: " + shorten(t.Val)}
		case tokens.BlockBegin, tokens.CommentBegin:
			all = stripBlock(all, plain, t)
			begin = len(all)
		case tokens.VariableBegin:
			begin = len(all)
		}
		all = append(all, t)
		if len(all)-begin > maxTagTokens {
			return nil, lineError{t.Line, fmt.Sprintf("a tag has more than %d tokens", maxTagTokens)}
		}
		if t.Type == tokens.BlockEnd || t.Type == tokens.VariableEnd {
			all = append(all[:begin], groupIn(all[begin:])...)
			begin = len(all)
		}
		stream.Next()
	}
}

// stripBlock takes the white space before a tag or a comment away where it is all that the
// line has there. gonja takes it away after other tags of the line, too.
func stripBlock(all []*tokens.Token, plain string, begin *tokens.Token) []*tokens.Token {
	if len(all) == 0 || strings.HasSuffix(begin.Val, "+") {
		return all
	}
	data := all[len(all)-1]
	line := strings.LastIndexByte(data.Val, '\n') + 1
	starts := line > 0 || data.Pos == 0 || plain[data.Pos-1] == '\n'
	if data.Type != tokens.Data || !starts || strings.Trim(data.Val[line:], " \t") != "" {
		return all
	}
	if data.Val = data.Val[:line]; line == 0 {
		all = all[:len(all)-1]
	}
	return all
}

// groupIn puts what a tag has at the right of "in" into parentheses where it calculates
// or filters: gonja takes no more than a name or a literal there.
func groupIn(tag []*tokens.Token) []*tokens.Token {
	open, closed := make([]int, len(tag)+1), make([]int, len(tag)+1)
	found := false
	loop := len(tag) > 1 && tag[1].Type == tokens.Name && tag[1].Val == "for"
	for i, t := range tag {
		if t.Type != tokens.In {
			continue
		}
		if loop { // of the loop itself
			loop = false
			continue
		}
		if end, more := operandEnd(tag, i+1); more {
			open[i+1]++
			closed[end]++
			found = true
		}
	}
	if !found {
		return tag
	}
	var out []*tokens.Token
	for i, t := range tag {
		for range closed[i] {
			out = append(out, &tokens.Token{Type: tokens.RightParenthesis, Val: ")", Line: t.Line, Col: t.Col})
		}
		for range open[i] {
			out = append(out, &tokens.Token{Type: tokens.LeftParenthesis, Val: "(", Line: t.Line, Col: t.Col})
		}
		out = append(out, t)
	}
	return out
}

// operandEnd is where the operand ends that begins at token i of a tag, and whether
// it calculates or filters.
func operandEnd(tag []*tokens.Token, i int) (end int, more bool) {
	depth := 0
	for ; i < len(tag); i++ {
		switch t := tag[i]; t.Type {
		case tokens.LeftParenthesis, tokens.LeftBracket, tokens.LeftBrace:
			depth++
		case tokens.RightParenthesis, tokens.RightBracket, tokens.RightBrace:
			if depth--; depth < 0 {
				return i, more
			}
		case tokens.BlockEnd, tokens.VariableEnd:
			return i, more
		case tokens.And, tokens.Or, tokens.Not, tokens.In, tokens.Is, tokens.Comma, tokens.Colon, tokens.Assign, tokens.Equals, tokens.Ne,
			tokens.GreaterThan, tokens.GreaterThanOrEqual, tokens.LowerThan, tokens.LowerThanOrEqual:
			if depth == 0 {
				return i, more
			}
		case tokens.Name:
			if depth == 0 && (t.Val == "if" || t.Val == "else" || t.Val == "recursive") {
				return i, more
			}
		case tokens.Pipe:
			more = more || depth == 0
		default:
			more = more || depth == 0 && operators[t.Type] != nil
		}
	}
	return i, more
}

// lineError is an error in a line of a template, from 1 on.
type lineError struct {
	line int
	text string
}

func (e lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.text) }

// located makes a parser of tags name the line of the tag in errors that name none.
func located(f *fence, parse parser.ControlStructureParser) parser.ControlStructureParser {
	return func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		line := args.Current().Line
		if line == 0 { // the tag has no arguments
			line = p.Current().Line
		}
		n, err := parse(p, args)
		if err == nil || errors.As(err, new(lineError)) {
			return n, err
		}
		if s := new(parser.SyntaxError); errors.As(err, &s) && s.Line > 0 {
			return n, err
		}
		return n, lineError{line, cause(f, err).Error()}
	}
}
