package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
)

// body reads the body of a request, which must be JSON.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		e := invalid("", "the media type is %.80q, want application/json", r.Header.Get("Content-Type"))
		e.status = http.StatusUnsupportedMediaType
		return nil, e
	}
	u, err := s.newUpload(w, r)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(u)
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		e := invalid("", "the body is larger than %d bytes", large.Limit)
		e.status = http.StatusRequestEntityTooLarge
		return nil, e
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e := invalid("", "the body comes too slowly: all of it must be there after %v, and a twelfth more every %v", s.conf.BodyTime, s.conf.BodyTime/growth)
		e.status = http.StatusRequestTimeout
		return nil, e
	}
	if api := new(apiError); errors.As(err, &api) {
		return nil, api
	}
	if err != nil {
		return nil, invalid("", "the body cannot be read: %v", err)
	}
	_ = u.to.SetReadDeadline(time.Time{}) // from here on reading waits for the client to go away
	return b, nil
}

// decode reads a JSON object into the struct that dst points to. A key that is no field of
// it must have one of the values that ignored lists for it, null included.
func decode(b []byte, dst any, ignored map[string][]string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return jsonError(err)
	}
	if fields == nil {
		return invalid("", "the body is null, want an object")
	}
	known := fieldsOf(reflect.TypeOf(dst).Elem())
	for name, value := range fields {
		if slices.Contains(known, name) {
			continue
		}
		allowed, ok := ignored[name]
		switch {
		case !ok:
			return unsupported(name, "unknown field %.80q%s; the fields are %s", name, habit(name, known), strings.Join(known, ", "))
		case len(allowed) > 0 && string(value) != "null" && !slices.Contains(allowed, compact(value)):
			return unsupported(name, "%s is not supported%s; leave it out, or say %s", name, habit(name, known), strings.Join(allowed, " or "))
		}
	}
	return jsonError(json.Unmarshal(b, dst))
}

// habits are fields of vLLM and llama-server, with those that do the like here.
var habits = map[string]string{
	"repetition_penalty": "repeat_penalty", "max_new_tokens": "max_tokens", "n_predict": "max_tokens", "max_length": "max_tokens",
	"max_tokens": "max_output_tokens", "max_completion_tokens": "max_tokens", "prompt_logprobs": "echo", "n_probs": "logprobs",
	"guided_json": "response_format", "json_schema": "response_format", "structured_outputs": "response_format",
	"text": "prompt", "content": "prompt", "stop_sequences": "stop", "messages": "input",
}

// habit is the hint for an unknown field that others have, "" where there is none.
func habit(name string, known []string) string {
	if ours := habits[name]; slices.Contains(known, ours) {
		return ", want " + ours
	}
	return ""
}

// with is the union of two maps.
func with(a, b map[string][]string) map[string][]string {
	all := map[string][]string{}
	for _, m := range []map[string][]string{a, b} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// compact is JSON without spaces.
func compact(b []byte) string {
	var out bytes.Buffer
	_ = json.Compact(&out, b) // of what was parsed
	return out.String()
}

// fieldsOf are the JSON names of a struct's fields, embedded structs included.
func fieldsOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		if f.Anonymous {
			names = append(names, fieldsOf(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// strict reads JSON into dst, whose fields are all that there may be.
func strict(b []byte, dst any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(dst)
}

// jsonError is what a client is told of JSON that cannot be read.
func jsonError(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var api *apiError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &api):
		return api
	case errors.As(err, &syntax):
		return invalid("", "the body is not JSON: %v, at byte %d", syntax, syntax.Offset)
	case errors.As(err, &kind):
		field := kind.Field
		for _, embedded := range []string{"params.", "sampled.", "dialogue."} { // which are no fields of JSON
			field = strings.TrimPrefix(field, embedded)
		}
		return invalid(field, "%s is a JSON %.40s, want %s", or(field, "the body"), kind.Value, typeText(kind.Type))
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if name, ok := strings.CutPrefix(text, "unknown field "); ok {
		return unsupported(strings.Trim(name, `"`), "unknown field %.80s", name)
	}
	return invalid("", "the body cannot be read: %.200s", text)
}

// or is the first text that is not empty.
func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// typeText is a Go type in JSON's words.
func typeText(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeText(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64:
		return "a whole number in range"
	}
	return "a number in range"
}
