//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
)

// TestChatRemote talks with gollm serve: the answers are those that the server gives to the
// same messages, whose earlier ones are sent along.
func TestChatRemote(t *testing.T) {
	key := clitest.WriteFile(t, "key", "secret\n")
	_, url, _ := startServer(t, "--template", "llama2", "--api-key-file", key, "--ctx", "512")
	args := []string{"chat", "--url", strings.TrimSuffix(url, "/v1"), "--api-key-file", key, "-n", "20", "--temp", "0", "--system", "Be kind.", "-v"}
	r := gollm("Hello.\nAnd now?\n/stats\n", args...)
	if r.Code != 0 {
		t.Fatal(r.Errs)
	}
	messages := []savedMessage{{"system", "Be kind."}, {"user", "Hello."}}
	answers := strings.Split(strings.TrimSuffix(r.Out, "\n"), "\n")
	got := ""
	for i := range 2 {
		text := said(t, url, "secret", messages)
		got += strings.TrimLeft(text, " \n") + "\n"
		messages = append(messages, savedMessage{"assistant", strings.TrimSpace(text)}, savedMessage{"user", "And now?"})
		if i == 1 && r.Out != got {
			t.Errorf("the answers are %q, want %q", answers, got)
		}
	}
	if !strings.Contains(r.Errs, "20 tokens") || !strings.Contains(r.Errs, "attention dense, density 1") {
		t.Errorf("/stats says %q", r.Errs)
	}
	for _, c := range []struct {
		words []string
		args  []string
	}{
		{[]string{"401", "the API key is missing or wrong"}, []string{"--url", url}},
		{[]string{"-m other", "stories260K"}, []string{"--url", url, "--api-key-file", key, "-m", "other"}},
		{[]string{"attn", "none of those"}, []string{"--url", url, "--api-key-file", key, "--attn", "topk"}},
		{[]string{"does not answer"}, []string{"--url", "http://127.0.0.1:1"}},
	} {
		fails(t, console.ExitFailure, c.words, "Hi\n", append([]string{"chat"}, c.args...)...)
	}
	for _, c := range []struct{ word, flag, value string }{
		{"--ctx does nothing with --url", "--ctx", "512"}, {"--device does nothing", "--device", "cpu"}, {"--template does nothing", "--template", "llama2"},
		{"want the address of a server", "--url", "127.0.0.1:80"}, {"password", "--url", "http://a:b@127.0.0.1"}, {"--temp -1", "--temp", "-1"},
	} {
		fails(t, console.ExitUsage, []string{c.word}, "", "chat", "--url", url, c.flag, c.value)
	}
	fails(t, console.ExitUsage, []string{"--api-key-file is for --url"}, "", "chat", "-m", clitest.Stories(t), "--api-key-file", key)
}

// said is the greedy answer of 20 tokens to messages, not streamed.
func said(t *testing.T, url, key string, messages []savedMessage) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"messages": messages, "temperature": 0, "max_tokens": 20})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, url+"/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+key)
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var got struct {
		Choices []struct{ Message savedMessage }
	}
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil || len(got.Choices) != 1 {
		t.Fatal(r.Status, err)
	}
	return got.Choices[0].Message.Content
}

// otherServer answers as a server of somebody else may.
func otherServer(t *testing.T, models string, answer func(w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, models)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const oneModel = `{"object":"list","data":[{"id":"some/model"}]}`

// TestChatOtherServers reads what other servers write, and says what is wrong with it.
func TestChatOtherServers(t *testing.T) {
	for _, c := range []struct{ models, answer, out, word string }{
		{oneModel, ": comment\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\ndata:{\"choices\":[{\"delta\":{\"content\":\"One\\n\"},\"finish_reason\":null}],\"usage\":null}\r\n\r\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", "One\n", ""},
		{oneModel, "data: {\"choices\":[{\"delta\":{\"content\":\"Half\"}}]}\n\n", "Half\n", "in the middle of an answer"},
		{oneModel, "data: {\"error\":{\"message\":\"out of\\u001b[2Jpaper\"}}\n\n", "", `out of\x1b[2Jpaper`},
		{oneModel, "data: <html>\n\n", "", "not JSON"},
		{oneModel, "data: " + strings.Repeat("x", maxReply+1), "", "too long"},
		{`{"data":[{"id":"a"},{"id":"b"}]}`, "", "", "name one with -m: a, b"},
		{`<html>`, "", "", "address of an OpenAI endpoint"},
		{`{"data":[]}`, "", "", "lists no models"},
	} {
		url := otherServer(t, c.models, func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body["model"] != "some/model" || len(body) != 4 {
				t.Errorf("%v, %v", body, err)
			}
			_, _ = io.WriteString(w, c.answer)
		})
		r := gollm("Hi\n", "chat", "--url", url)
		if r.Out != c.out || (r.Code == 0) != (c.word == "") || !strings.Contains(r.Errs, c.word) {
			t.Errorf("%.60q: %d %q %q, want %q %q", c.answer, r.Code, r.Out, r.Errs, c.out, c.word)
		}
	}
	elsewhere := otherServer(t, oneModel, nil)
	url := otherServer(t, oneModel, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere+"/v1/chat/completions", http.StatusTemporaryRedirect)
	})
	fails(t, console.ExitFailure, []string{"307"}, "Hi\n", "chat", "--url", url)
}

// TestChatRemoteInterrupt stops an answer, of which the server learns, and goes on talking.
func TestChatRemoteInterrupt(t *testing.T) {
	gone := make(chan struct{})
	url := otherServer(t, oneModel, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for {
			select {
			case <-r.Context().Done():
				close(gone)
				return
			case <-time.After(time.Millisecond):
				fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\n")
				w.(http.Flusher).Flush()
			}
		}
	})
	y := &typist{}
	in, keys := io.Pipe()
	y.keys, y.in = keys, in
	cmd := &cobra.Command{}
	cmd.Flags().Bool("verbose", false, "")
	cmd.SetOut(pane{y, &y.out})
	cmd.SetErr(pane{y, &y.err})
	c := chatFlags{url: url, limit: -1}
	r, err := c.newRemote(cmd)
	if err == nil {
		err = r.choose(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	y.session = c.emptySession(cmd)
	y.remote, y.interactive = r, true
	done := make(chan error, 1)
	go func() { done <- y.run(t.Context()) }()
	y.typeLine(t, "Hi")
	y.await(t, "word word")
	y.interrupts <- os.Interrupt
	y.await(t, "[stopped]")
	<-gone
	y.typeLine(t, "/system")
	y.await(t, "There is no system prompt.")
	y.keys.Close()
	if err := <-done; err != nil || len(y.messages) != 2 || !strings.HasPrefix(y.messages[1].Content, "word word") {
		t.Errorf("%v, %+v", err, y.messages)
	}
}
