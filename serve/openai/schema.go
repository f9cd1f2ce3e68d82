package openai

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/gollm/gollm/grammar"
	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/tokenizer"
)

// maxSchemas is how many compiled schemas are kept, with the masks that were made for them.
const maxSchemas = 64

// maxSchemaBytes is how long they may be in all: a grammar is up to a hundred times its schema.
const maxSchemaBytes = 4 << 20

// schemas are the constraints of response_format, compiled when they are asked for.
type schemas struct {
	tok *tokenizer.Tokenizer

	mu         sync.Mutex
	vocabulary *grammar.Vocabulary
	compiled   map[string]*grammar.Constraint // by schema; "" is any object
	size       int                            // bytes of these schemas

	// Masks ask for these: they must not wait until a schema is compiled.
	tokens   sync.Mutex
	literals map[string][]int32 // see allowLiteral
	objects  []int32            // see objectTokens
}

// constraint is that of a schema, "" for any object; param is the field that has it, and needs are
// [grammar.Options.Needs]. The error may be a [grammar.SchemaError].
func (s *schemas) constraint(param, schema string, needs ...string) (*grammar.Constraint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.compiled[schema]; c != nil {
		return c, nil
	}
	if s.vocabulary == nil {
		texts := make([]string, s.tok.Len())
		for id := range texts {
			texts[id] = s.tok.Piece(int32(id))
		}
		v, err := grammar.NewVocabulary(texts, s.tok.Ends())
		if err != nil {
			return nil, unsupported(param, "this model cannot write JSON: %s", strings.TrimPrefix(err.Error(), "grammar: "))
		}
		s.vocabulary = v
	}
	g, err := compile(schema, needs)
	if err != nil {
		return nil, err
	}
	if len(s.compiled) >= maxSchemas || s.size+len(schema) > maxSchemaBytes {
		clear(s.compiled)
		s.size = 0
	}
	s.size += len(schema)
	c := s.vocabulary.Bind(g)
	s.compiled[schema] = c
	return c, nil
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
func (s *Server) constrain(param string, f *responseFormat, all []serve.Request) error {
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
	c, err := s.schemas.constraint(param, schema)
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
