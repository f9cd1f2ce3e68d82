package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/tokenizer/chat"
)

// listen serves on a port of this machine.
func (s testServer) listen(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// dial sends a request and returns the connection.
func dial(t *testing.T, address, request string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// TestBadClients closes half a connection, reads nothing, sends a body without an end, and
// goes away; others are answered meanwhile, and in the end everything is back.
func TestBadClients(t *testing.T) {
	s := serveStories(t, nil)
	address := s.listen(t)
	body := `{"prompt":"Once","max_tokens":250,"stream":true,"logprobs":20,"logit_bias":{"1":-100,"2":-100}}`
	request := "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	deaf := dial(t, address, request) // reads nothing
	gone := dial(t, address, request) // goes away
	if line, err := bufio.NewReader(gone).ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
		t.Fatal(line, err)
	}
	half := dial(t, address, request) // says that it will send no more
	mute := dial(t, address, request[:len(request)-9])
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for range 3 {
		r, err := http.Post("http://"+address+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"Tom","max_tokens":3}`))
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatal(r, err)
		}
		r.Body.Close()
	}
	mute.Close()
	deaf.Close()
	for range 500 {
		if st := s.conf.Scheduler.Stats(); st.Running+st.Waiting == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%+v after five seconds", s.conf.Scheduler.Stats())
}

// TestLogOfGoneClient wants the log to say that a client went away, and what was computed for it.
func TestLogOfGoneClient(t *testing.T) {
	s := serveStories(t, nil)
	for _, c := range []struct{ path, body string }{
		{"/v1/completions", `"prompt":"Once","max_tokens":250,"stream":true`},
		{"/v1/completions", `"prompt":"Once","max_tokens":250`},
		{"/v1/responses", `"input":"Once","max_output_tokens":200,"stream":true`},
		{"/v1/responses", `"input":"Once","max_output_tokens":200`},
	} {
		log := ""
		for try := 0; try < 20 && !strings.Contains(log, "went away"); try++ { // where the answer was faster
			s.log.Reset()
			ctx, cancel := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, "POST", c.path, strings.NewReader(`{`+c.body+`,"logit_bias":{"1":-100,"2":-100}}`))
			r.Header.Set("Content-Type", "application/json")
			go func() {
				for s.conf.Scheduler.Stats().Running == 0 && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
			s.ServeHTTP(httptest.NewRecorder(), r)
			cancel()
			log = s.log.String()
		}
		if !strings.Contains(log, "the client went away") || strings.Contains(log, "shutting down") || !strings.Contains(log, "prompt_tokens=") || strings.Contains(log, "prompt_tokens=0") {
			t.Errorf("%s %s: the log says %s", c.path, c.body, log)
		}
	}
}

// TestDeafClient asks for more than the buffers of a connection hold and reads nothing: the
// handler gives up, with a stream and without.
func TestDeafClient(t *testing.T) {
	s := serveStories(t, func(c *Config) { c.Patience = 50 * time.Millisecond })
	ended := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(4096); err != nil {
			t.Error(err)
		}
		return ctx
	}
	server.Start()
	t.Cleanup(server.Close)
	for _, stream := range []string{"true", "false"} {
		body := `{"prompt":"Once","max_tokens":250,"stream":` + stream + `,"logprobs":20,"logit_bias":{"1":-100,"2":-100}}`
		conn := dial(t, server.Listener.Addr().String(), "")
		if err := conn.SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Errorf("stream %s: the handler still waits for its client", stream)
			conn.Close()
			<-ended
		}
	}
}

// TestSlowBody sends bodies that do not end: they are given up after a while, also where nobody
// reads them, and the connection is closed.
func TestSlowBody(t *testing.T) {
	s := serveStories(t, func(c *Config) { c.BodyTime = 50 * time.Millisecond })
	address := s.listen(t)
	for path, want := range map[string]int{"/v1/completions": http.StatusRequestTimeout, "/v1/nothing": http.StatusNotFound} {
		conn := dial(t, address, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		r, err := http.ReadResponse(in, nil)
		if err != nil || r.StatusCode != want {
			t.Fatalf("%s: %v, %v", path, r, err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("%s: the connection is open: %v", path, err)
		}
	}
	if status, body := s.ask("POST", "/v1/completions", `{"prompt":"Once","max_tokens":3}`); status != http.StatusOK {
		t.Error(status, body)
	}
}

// TestStalledBody sends nearly all of a body and stops: what is there is not held until the time for the
// whole body is over.
func TestStalledBody(t *testing.T) {
	s := serveStories(t, func(c *Config) { c.BodyTime = growth * time.Second })
	conn := dial(t, s.listen(t), "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"+strings.Repeat(" ", 900))
	if err := conn.SetReadDeadline(time.Now().Add((growth - 3) * time.Second)); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || r.StatusCode != http.StatusRequestTimeout {
		t.Fatal(r, err)
	}
	if n := s.held.Load(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// TestManyLargeBodies holds bodies of which no more fit into memory: others are told to come
// again, until one of them is answered. What was announced and did not come keeps nobody out.
func TestManyLargeBodies(t *testing.T) {
	s := serveStories(t, func(c *Config) { c.MaxBody = 1000 })
	address := s.listen(t)
	var held []net.Conn
	for range 2 * heldBodies {
		held = append(held, dial(t, address, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"))
	}
	wait := func(bytes int64) {
		t.Helper()
		for range 500 {
			if s.held.Load() == bytes {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%d bytes are held, want %d", s.held.Load(), bytes)
	}
	wait(2 * heldBodies)
	if status, body := s.ask("POST", "/v1/completions", `{"prompt":"Once","max_tokens":3}`); status != http.StatusOK {
		t.Error("beside slow ones:", status, body)
	}
	for _, conn := range held[:heldBodies] {
		if _, err := io.WriteString(conn, strings.Repeat(" ", 990)); err != nil {
			t.Fatal(err)
		}
	}
	wait(heldBodies*991 + heldBodies)
	text := `{"prompt":"Tom","max_tokens":3}` + strings.Repeat(" ", 900)
	for what, body := range map[string]io.Reader{"of a length": strings.NewReader(text), "in chunks": struct{ io.Reader }{strings.NewReader(text)}} {
		r, err := http.Post("http://"+address+"/v1/completions", "application/json", body)
		if err != nil || r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
			t.Fatal(what, r, err)
		}
		r.Body.Close()
	}
	for _, conn := range held {
		conn.Close()
	}
	wait(0)
	if status, body := s.ask("POST", "/v1/completions", `{"prompt":"Once","max_tokens":3}`); status != http.StatusOK {
		t.Error(status, body)
	}
}

// heldWhile is a template that tells how many bytes of bodies a server holds while it renders.
type heldWhile struct {
	format
	see func()
}

// Render renders a conversation.
func (h heldWhile) Render(ctx context.Context, c chat.Conversation) (string, error) {
	h.see()
	return h.format.Render(ctx, c)
}

// TestHeldIsWhatCame has a client that does not say how large its body is, and whose request
// holds no more than came while it is answered.
func TestHeldIsWhatCame(t *testing.T) {
	held := int64(-1)
	var s testServer
	s = serveStories(t, func(c *Config) {
		c.Template = heldWhile{c.Template.(format), func() { held = s.held.Load() }}
	})
	body := `{"messages":[{"role":"user","content":"a"}],"max_tokens":0}`
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
	r.ContentLength = -1
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusOK || held != int64(len(body)) || s.held.Load() != 0 {
		t.Errorf("%d: a body of %d bytes held %d, and %d behind it", w.Code, len(body), held, s.held.Load())
	}
}

// FuzzRequest sends any body to any endpoint: it is answered, with JSON or a stream.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"prompt":"Once","max_tokens":2}`, `{"prompt":[[1,2],[3]],"n":2,"max_tokens":1,"echo":true,"logprobs":3,"logit_bias":{"5":1}}`,
		`{"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":1}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"</s>"}]}],"max_tokens":1,"stop":["a","b"],"seed":-1,"temperature":1e-30}`,
		`{"prompt":"` + strings.Repeat("[", 50) + `","max_tokens":0}`, `{"tokens":[1,2,3]}`,
		`{"prompt":"a","max_tokens":2,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"array","items":{"$ref":"#"}}}}}`, `{"prompt":"\ud800","max_tokens":1,"top_p":0.1,"min_p":1,"repeat_penalty":0.01}`,
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":[1]}"}}]},{"role":"tool","tool_call_id":"1","content":"b"}],"max_tokens":3,` +
			`"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"enum":[1]}}}}}],"tool_choice":"required","stream":true}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"c"}],` +
			`"instructions":"b","max_output_tokens":2,"stream":true,"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"text"}}}`,
	} {
		for i := range 6 { // of paths
			f.Add(uint8(i), []byte(body))
		}
	}
	parsed, err := chat.Parse(callTemplates["hermes"])
	if err != nil {
		f.Fatal(err)
	}
	s := serveStories(f, func(c *Config) { c.Template = format{parsed, "<s>", "</s>"} })
	paths := []string{"/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize", "/apply-template"}
	f.Fuzz(func(t *testing.T, path uint8, body []byte) {
		var v struct {
			Stream bool `json:"stream"`
			Tokens int  `json:"max_tokens"`
			Output int  `json:"max_output_tokens"`
			N      int  `json:"n"`
		}
		if json.Unmarshal(body, &v); v.Tokens > 8 || v.Output > 8 || v.N > 8 {
			return // right, and slow
		}
		status, text := s.ask("POST", paths[int(path)%len(paths)], string(body))
		switch {
		case status >= 500 || status < 200:
			t.Fatalf("%d %s", status, text)
		case status == 200 && (strings.HasPrefix(text, "data: ") || strings.HasPrefix(text, "event: ")):
		case !json.Valid([]byte(text)):
			t.Fatalf("%d %q", status, text)
		}
	})
}
