package published

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
)

// mrcr is the conversations of OpenAI, in which the i-th of several like answers is asked for.
var mrcr = &Suite{
	Name: "mrcr", Title: "MRCR",
	Sets: []Set{
		{Name: "2needle", File: "2needle", questions: mrcrQuestions, score: prefixed},
		{Name: "4needle", File: "4needle", questions: mrcrQuestions, score: prefixed},
		{Name: "8needle", File: "8needle", questions: mrcrQuestions, score: prefixed},
	},
	Subsets: bins(),
}

// firstBin and lastBin are the tokens that the first bin of MRCR begins with and the last
// ends with; each bin ends at twice its beginning.
const firstBin, lastBin = 4096, 1 << 20

// bins names the bins of MRCR.
func bins() []string {
	names := []string{"below 4k"}
	for n := firstBin; n < lastBin; n *= 2 {
		names = append(names, Bin(2*n))
	}
	return append(names, Bin(lastBin+1))
}

// Bin is the bin of a prompt and its answer of so many tokens.
func Bin(tokens int) string {
	if tokens < firstBin {
		return "below 4k"
	}
	for n := firstBin; n < lastBin; n *= 2 {
		if tokens <= 2*n {
			return fmt.Sprintf("%dk-%dk", n/1024, 2*n/1024)
		}
	}
	return "above 1024k"
}

// mrcrTokens is the tokens that an answer may have; MRCR does not limit them.
const mrcrTokens = 2048

// mrcrQuestions is the question of a row.
func mrcrQuestions(d Set, row []byte, _ *Options) ([]Question, error) {
	var r struct {
		Prompt  *string `json:"prompt"`
		Answer  *string `json:"answer"`
		Marker  *string `json:"random_string_to_prepend"`
		Needles int     `json:"n_needles"`
	}
	if err := jsonl.Decode(row, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Prompt == nil:
		return nil, jsonl.Missing(row, "prompt", "the conversation, a list of messages as JSON in a text")
	case r.Answer == nil:
		return nil, jsonl.Missing(row, "answer", "the right answer")
	case r.Marker == nil || *r.Marker == "":
		return nil, jsonl.Missing(row, "random_string_to_prepend", "what the answer has to begin with")
	case d.Name != fmt.Sprintf("%dneedle", r.Needles):
		return nil, fmt.Errorf("the field n_needles is %d in a file of %s", r.Needles, d.Name)
	}
	talk, err := conversation(*r.Prompt)
	if err != nil {
		return nil, fmt.Errorf("the field prompt: %w", err)
	}
	q := Question{Talk: talk, From: len(talk) - 1, Most: mrcrTokens}
	var b strings.Builder
	for i, m := range talk {
		if i == q.From {
			q.Split = b.Len()
		}
		b.WriteString(map[string]string{"user": "User: ", "assistant": "Assistant: ", "system": ""}[m.Role] + m.Content + "\n\n")
	}
	q.Text = b.String() + "Assistant:"
	truth, _ := json.Marshal(*r.Answer) // a text is always JSON
	q.Answer = Answer{Truth: truth, Marker: r.Marker, Needles: r.Needles}
	return []Question{q}, nil
}

// conversation reads a list of messages, of which the last is the user's.
func conversation(text string) ([]Message, error) {
	var list []struct {
		Role    string  `json:"role"`
		Content *string `json:"content"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("want a list of messages: %w", jsonl.Plain(err))
	}
	var talk []Message
	for i, m := range list {
		if m.Content == nil || m.Role != "user" && m.Role != "assistant" && m.Role != "system" {
			return nil, fmt.Errorf("message %d has the role %.20q, want a message of system, user or assistant with a content", i, m.Role)
		}
		talk = append(talk, Message{Role: m.Role, Content: *m.Content})
	}
	if len(talk) == 0 || talk[len(talk)-1].Role != "user" {
		return nil, fmt.Errorf("want a conversation that ends with a message of the user")
	}
	return talk, nil
}
