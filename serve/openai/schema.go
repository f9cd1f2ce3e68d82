package openai

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/gollm/gollm/grammar"
	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/tokenizer"
)

// maxSchemas is how many compiled schemas are kept that no request has, with the masks that were made
// for them.
const maxSchemas = 64

// maxSchemaBytes is how long they may be in all, with those of the requests that run or wait: a grammar is up
// to a hundred times its schema.
const maxSchemaBytes = 4 << 20

// schemas are the constraints of response_format, compiled when they are asked for.
type schemas struct {
	tok *tokenizer.Tokenizer

	compiling  sync.Mutex // held while a schema is compiled, one at a time
	vocabulary *grammar.Vocabulary

	mu       sync.Mutex
	compiled map[string]*compiled // by schema; "" is any object
	size     int                  // bytes of these schemas
	asked    uint64               // times that one was asked for

	// Masks ask for these: they must not wait until a schema is compiled.
	tokens   sync.Mutex
	literals map[string][]int32 // see allowLiteral
	objects  []int32            // see objectTokens
}

// compiled is a schema that is compiled.
type compiled struct {
	*grammar.Constraint
	users int    // requests
	asked uint64 // when it was last asked for, by schemas.asked
}

// constraint is that of a schema, "" for any object, which the request of ctx has until it is answered; param
// is the field that has it, and needs are [grammar.Options.Needs]. The error may be a
// [grammar.SchemaError].
func (s *schemas) constraint(ctx context.Context, param, schema string, needs ...string) (*grammar.Constraint, error) {
	e := entryFrom(ctx)
	if c := s.use(e, schema); c != nil {
		return c, nil
	}
	s.compiling.Lock()
	defer s.compiling.Unlock()
	if c := s.use(e, schema); c != nil {
		return c, nil
	}
	if err := s.makeRoom(len(schema)); err != nil {
		return nil, err
	}
	v, err := s.words(param)
	if err != nil {
		return nil, err
	}
	g, err := compile(schema, needs)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.compiled[schema] = &compiled{Constraint: v.Bind(g)}
	s.size += len(schema)
	s.mu.Unlock()
	return s.use(e, schema), nil
}

// use has a request hold a schema that is compiled, nil where it is not.
func (s *schemas) use(e *entry, schema string) *grammar.Constraint {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.compiled[schema]
	if c == nil {
		return nil
	}
	s.asked++
	c.asked = s.asked
	c.users++
	e.schemas = append(e.schemas, c)
	return c.Constraint
}

// release ends what a request holds.
func (s *schemas) release(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range e.schemas {
		c.users--
	}
}

// makeRoom forgets schemas that no request has, those first that were not asked for longest, until another
// one fits.
func (s *schemas) makeRoom(size int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.compiled) >= maxSchemas || s.size+size > maxSchemaBytes {
		oldest, found := "", false
		for schema, c := range s.compiled {
			if c.users == 0 && (!found || c.asked < s.compiled[oldest].asked) {
				oldest, found = schema, true
			}
		}
		if !found {
			break
		}
		s.size -= len(oldest)
		delete(s.compiled, oldest)
	}
	if size <= maxSchemaBytes && s.size+size > maxSchemaBytes { // what is larger than all is refused when it is read
		return busy("the schemas of requests that run or wait have %d bytes, and this one %d, of at most %d; try again later", s.size, size, maxSchemaBytes)
	}
	return nil
}

// words is the vocabulary for schemas.
func (s *schemas) words(param string) (*grammar.Vocabulary, error) {
	if s.vocabulary != nil {
		return s.vocabulary, nil
	}
	texts := make([]string, s.tok.Len())
	for id := range texts {
		texts[id] = s.tok.Piece(int32(id))
	}
	v, err := grammar.NewVocabulary(texts, s.tok.Ends())
	if err != nil {
		return nil, unsupported(param, "this model cannot write JSON: %s", strings.TrimPrefix(err.Error(), "grammar: "))
	}
	s.vocabulary = v
	return v, nil
}

// compile makes a grammar of a schema.
func compile(schema string, needs []string) (*grammar.Grammar, error) {
	if schema == "" {
		return grammar.Object(grammar.Options{}), nil
	}
	return grammar.Compile([]byte(schema), grammar.Options{Needs: needs})
}

// responseFormat asks for text of a form.
type responseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *jsonSchema `json:"json_schema"`
}

// jsonSchema is a schema with what OpenAI's clients say of it.
type jsonSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Strict      *bool           `json:"strict"` // always so here
	Schema      json.RawMessage `json:"schema"`
}

// UnmarshalJSON refuses unknown fields.
func (f *responseFormat) UnmarshalJSON(b []byte) error {
	type plain responseFormat
	return strict(b, (*plain)(f))
}

// constrain gives every request a matcher of the form that is asked for; param is the field
// that asks.
func (s *Server) constrain(ctx context.Context, param string, f *responseFormat, all []serve.Request) error {
	schema := ""
	switch {
	case f == nil || f.Type == "text":
		return nil
	case f.Type == "json_object":
	case f.Type == "json_schema" && f.JSONSchema != nil && len(f.JSONSchema.Schema) > 0:
		schema = string(f.JSONSchema.Schema)
	case f.Type == "json_schema":
		return invalid(param, "%s has no json_schema with a schema", param)
	default:
		return unsupported(param, "%s is %.40q, want text, json_object or json_schema", param, f.Type)
	}
	c, err := s.schemas.constraint(ctx, param, schema)
	if refused := new(grammar.SchemaError); errors.As(err, &refused) {
		return invalid(param, "the schema at %s: %s", refused.Path, refused.Message)
	} else if err != nil {
		return err
	}
	for i := range all {
		all[i].Constraint = c.Matcher()
	}
	return nil
}
