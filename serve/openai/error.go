package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/gollm/gollm/serve"
)

// apiError is an error as OpenAI's clients know it.
type apiError struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // the field; null where none is to blame
	Code    *string `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

// invalid is a request that makes no sense; param is the field, "" for none.
func invalid(param, format string, args ...any) *apiError {
	e := &apiError{status: http.StatusBadRequest, Type: "invalid_request_error", Message: fmt.Sprintf(format, args...)}
	if param != "" {
		e.Param = &param
	}
	return e
}

// unsupported is a field that is not honoured.
func unsupported(param, format string, args ...any) *apiError {
	e := invalid(param, format, args...)
	e.status = http.StatusUnprocessableEntity
	return e.code("unsupported_parameter")
}

// code names the error for programs.
func (e *apiError) code(c string) *apiError {
	e.Code = &c
	return e
}

// failure is an error that is none of the client's doing.
func failure(status int, format string, args ...any) *apiError {
	e := invalid("", format, args...)
	e.status, e.Type = status, "server_error"
	return e
}

// busy is a request that may be answered later.
func busy(format string, args ...any) *apiError {
	e := failure(http.StatusTooManyRequests, format, args...)
	e.Type = "rate_limit_error"
	return e.code("rate_limit_exceeded")
}

// asAPI is what a client is told of an error.
func asAPI(err error) *apiError {
	var api *apiError
	var full *serve.BusyError
	var long *serve.TooLongError
	var wrong *serve.RequestError
	text := strings.TrimPrefix(err.Error(), "serve: ")
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &full):
		return busy("%s", text)
	case errors.As(err, &long):
		return invalid("", "%s; ask for fewer tokens, or start gollm serve with a longer --ctx or a larger --cache", text).code("context_length_exceeded")
	case errors.As(err, &wrong):
		return invalid("", "%s", text)
	case errors.Is(err, serve.ErrClosed):
		return failure(http.StatusServiceUnavailable, "%s", text)
	}
	return failure(http.StatusInternalServerError, "%s", text)
}

// errGone is what the log has of a request whose client went away, with the status that
// proxies log for it; no client reads it.
var errGone = &apiError{status: 499, Type: "server_error", Message: "the client went away"}

// retryAfter is how many seconds a client should wait that found the queue full.
const retryAfter = "1"

// writeError answers with an error.
func writeError(w http.ResponseWriter, err error) {
	e := asAPI(err)
	if e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter)
	}
	writeJSON(w, e.status, errorBody{e})
}

// errorBody is an error in an answer or in an event.
type errorBody struct {
	Error *apiError `json:"error"`
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // fails only where the client is gone
}
