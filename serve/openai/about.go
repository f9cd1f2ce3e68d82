package openai

import (
	"context"
	"net/http"
	"strings"

	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
)

// modelCard describes the model.
type modelCard struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	OwnedBy string   `json:"owned_by"`
	Context int      `json:"max_model_len"`
	Attn    []string `json:"attn"` // what a request may name
}

func (s *Server) card() modelCard {
	return modelCard{s.conf.Model, "model", s.started.Unix(), "gollm", s.conf.Scheduler.Fits(0), s.conf.Attn}
}

// models lists the model.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{"list", []modelCard{s.card()}})
	return nil
}

// model describes the model, if that is its name.
func (s *Server) model(w http.ResponseWriter, name string) error {
	if name != s.conf.Model {
		return s.noModel(name)
	}
	writeJSON(w, http.StatusOK, s.card())
	return nil
}

// health says that the server takes requests.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	if err := s.conf.Scheduler.Err(); err != nil {
		return failure(http.StatusServiceUnavailable, "%v", err)
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// version says which gollm this is.
func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"version": s.conf.Version})
	return nil
}

// dialogue is what a body says of a conversation that nobody answers.
type dialogue struct {
	Messages []message `json:"messages"`
	Tools    []tool    `json:"tools"`
	Answer   *bool     `json:"add_generation_prompt"` // the text ends where the answer would begin; so by default
}

// toolset is the functions of the conversation.
func (d *dialogue) toolset(s *Server) (*toolset, error) {
	c := chatRequest{Tools: d.Tools}
	if err := c.check(); err != nil {
		return nil, err
	}
	return s.toolsOf(c.functions(), nil, nil)
}

// ignoredDialogue are fields of a conversation that change nothing here.
var ignoredDialogue = map[string][]string{"continue_final_message": {"false"}, "chat_template": {"null"}, "chat_template_kwargs": {"{}"}}

// tokenizeRequest is the body of /tokenize: a prompt or a conversation.
type tokenizeRequest struct {
	Model            string  `json:"model"`
	Prompt           *string `json:"prompt"`
	AddSpecialTokens *bool   `json:"add_special_tokens"` // of a prompt
	Names            bool    `json:"return_token_strs"`
	dialogue
}

// tokenize turns a text or a conversation into token ids.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	var q tokenizeRequest
	if err := s.read(w, r, &q, ignoredDialogue); err != nil {
		return err
	}
	ids, err := s.tokensOf(r.Context(), &q)
	if err != nil {
		return err
	}
	var names []string
	if q.Names {
		names = make([]string, len(ids))
		for i, id := range ids {
			names[i] = tokenName(s.conf.Tokenizer, id)
		}
	}
	writeJSON(w, http.StatusOK, struct {
		Count  int      `json:"count"`
		Limit  int      `json:"max_model_len"`
		Tokens []int32  `json:"tokens"`
		Names  []string `json:"token_strs,omitempty"`
	}{len(ids), s.conf.Scheduler.Fits(0), ids, names})
	return nil
}

// tokensOf is the tokens of a prompt as /v1/completions, or of a conversation as
// /v1/chat/completions has them.
func (s *Server) tokensOf(ctx context.Context, q *tokenizeRequest) ([]int32, error) {
	if q.Prompt == nil && q.Messages != nil {
		if value(q.AddSpecialTokens, false) {
			return nil, unsupported("add_special_tokens", "add_special_tokens beside messages: the template says which there are; leave it out, or say false")
		}
		tools, err := q.toolset(s)
		if err != nil {
			return nil, err
		}
		return s.conversation(ctx, q.Messages, tools, value(q.Answer, true))
	}
	switch {
	case q.Prompt == nil:
		return nil, invalid("prompt", "there is no prompt, want a string, or messages")
	case q.Messages != nil || q.Tools != nil || q.Answer != nil:
		return nil, invalid("messages", "prompt beside messages, tools or add_generation_prompt: say one")
	}
	ids := s.conf.Tokenizer.Encode(*q.Prompt, tokenizer.EncodeOptions{ParseSpecial: true})
	if value(q.AddSpecialTokens, true) {
		ids = withBOS(s.conf.Tokenizer, ids)
	}
	return ids, nil
}

// tokenizerInfo names the special tokens that clients ask for which tokenize by the server.
func (s *Server) tokenizerInfo(w http.ResponseWriter, _ *http.Request) error {
	tok := s.conf.Tokenizer
	writeJSON(w, http.StatusOK, struct {
		BOS   string `json:"bos_token,omitempty"`
		EOS   string `json:"eos_token,omitempty"`
		Limit int    `json:"model_max_length"`
	}{tok.Text(tok.BOS()), tok.Text(tok.EOS()), s.conf.Scheduler.Fits(0)})
	return nil
}

// detokenize turns token ids into their text, special tokens included.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Model  string   `json:"model"`
		Tokens tokenIDs `json:"tokens"`
	}
	if err := s.read(w, r, &q, nil); err != nil {
		return err
	}
	for i, id := range q.Tokens {
		if id < 0 || int(id) >= s.conf.Tokenizer.Len() {
			return invalid("tokens", "token %d is id %d, want 0 to %d", i, id, s.conf.Tokenizer.Len()-1)
		}
	}
	stream := s.conf.Tokenizer.Stream(tokenizer.DecodeOptions{ShowSpecial: true})
	var text strings.Builder
	for _, id := range q.Tokens {
		text.WriteString(stream.Next(id))
		if int64(text.Len()) > s.conf.MaxBody {
			return invalid("tokens", "the text of the tokens is larger than %d bytes, which is as much as a request may have", s.conf.MaxBody)
		}
	}
	text.WriteString(stream.Flush())
	writeJSON(w, http.StatusOK, map[string]string{"prompt": text.String()})
	return nil
}

// applyTemplate is the text that the model would continue in a conversation.
func (s *Server) applyTemplate(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Model string `json:"model"`
		dialogue
	}
	if err := s.read(w, r, &q, ignoredDialogue); err != nil {
		return err
	}
	tools, err := q.toolset(s)
	if err != nil {
		return err
	}
	text, err := s.render(r.Context(), q.Messages, tools, chat.Conversation{AddGenerationPrompt: value(q.Answer, true)})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]string{"prompt": text})
	return nil
}
