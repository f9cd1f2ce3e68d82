package chat

import (
	"slices"
	"strings"
)

// CallFormat is how a template writes calls of functions, and a model that was trained with
// it answers with them.
type CallFormat struct {
	Open      string // in front of a call, or of the list of them; "": an answer is text or a call
	Tag       string // control token that may stand in front of an answer that is a call, "" for none
	Close     string // behind a call
	Arguments string // the member that holds the arguments, beside name
	List      bool   // calls are the elements of one JSON array
	ShortIDs  bool   // ids of calls have nine letters and digits
}

// The formats, by what is in a template that writes them: Mistral's, that of Hermes and Qwen,
// and that of Llama 3.1.
var callFormats = []struct {
	has, lacks []string
	CallFormat
}{
	{[]string{"tools", "[TOOL_CALLS]"}, []string{"[ARGS]"}, CallFormat{Open: "[TOOL_CALLS]", Arguments: "arguments", List: true, ShortIDs: true}},
	{[]string{"tools", "<tool_call>", "</tool_call>"}, []string{"<function="}, CallFormat{Open: "<tool_call>", Close: "</tool_call>", Arguments: "arguments"}},
	{[]string{"tools", `"parameters": `, "<|start_header_id|>"}, nil, CallFormat{Tag: "<|python_tag|>", Arguments: "parameters"}},
}

// Calls is how the template writes calls, nil where it knows no tools, or writes them in a
// format that is not known here.
func (t *Template) Calls() *CallFormat {
	contains := func(text string) bool { return strings.Contains(t.source, text) }
	lacks := func(text string) bool { return !contains(text) }
	for _, f := range callFormats {
		if !slices.ContainsFunc(f.has, lacks) && !slices.ContainsFunc(f.lacks, contains) {
			return &f.CallFormat
		}
	}
	return nil
}
