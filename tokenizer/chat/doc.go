// Package chat turns a conversation into the text that a model was trained to
// answer: by the Jinja template that the model's file carries, or by a built-in
// format for files without one.
//
// The few types:
//
//   - [Conversation]: messages, and the strings that a template may print.
//   - [Template]: from [Parse] or [Builtin]; [Template.Render] gives the text.
//   - [Detect]: the built-in format that a vocabulary calls for.
//
// The text is to be encoded with special tokens parsed and without a second BOS.
// That holds for the messages too: a user who writes <|eot_id|> ends the turn, as
// with Hugging Face and llama.cpp, because a template may move and change what the
// messages say, so that afterwards nobody knows which part was whose. Where users
// are not trusted, check messages with tokenizer.Tokenizer.HasSpecial first.
//
// A template in a file is not trusted. gonja lexes, parses and evaluates it, inside
// a fence:
//
//  1. It loads nothing: every loader call is refused, and the tags that load other
//     templates do not exist.
//  2. It sees copies, made anew for each call. Values do not change once made,
//     except the attributes of namespace(), which no other value can contain.
//  3. Only the filters, functions and methods of this package exist, each bounded
//     in what it makes. Every operator, list, printed value and loop passes a check
//     of size, depth, steps and time (fence.go, rewrite.go).
//  4. Macros, and the bodies that call tags give them, call each other at most
//     [maxCalls] deep; loops are not recursive.
//  5. A template has at most 64 KiB, a tag at most 2,000 tokens.
//
// What cannot be parsed is told with its line. The tags are if, for, set, macro, call,
// filter, with, raw, break, continue and generation.
//
// Templates are rendered as Hugging Face does: trim_blocks and lstrip_blocks are
// on, raise_exception and (with a date) strftime_now exist, tojson writes as
// Python's json.dumps does and keeps the order of keys. None and undefined are one
// value, which prints as nothing.
//
// Start reading at chat.go, then jinja.go, then fence.go.
package chat
