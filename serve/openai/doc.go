// Package openai answers the requests of OpenAI's clients with a [serve.Scheduler], over
// HTTP.
//
// The few types:
//
//   - [Config]: the scheduler, the model's words, and the limits.
//   - [Server]: the handler of all endpoints. Make it with [New].
//
// The rules:
//
//  1. A field that is not honoured is an error, unless it has OpenAI's default: nobody
//     should measure what was not done.
//  2. Errors have OpenAI's shape. 400: the request makes no sense; 401: the key; 404: the
//     model or the path; 413: the body; 415: the media type; 422: a field that is not
//     honoured; 429: the queue is full; 503: the server shuts down.
//  3. What a client wrote in a message never becomes a special token, whatever the
//     template does with it. A prompt of /v1/completions is the text of the model itself,
//     special tokens included.
//  4. A client that goes away, or does not read for [Config.Patience], loses its request.
//  5. No text of a prompt or an answer is logged unless [Config.LogText] says so.
//
// Start reading at server.go, then completions.go, then run.go.
package openai
