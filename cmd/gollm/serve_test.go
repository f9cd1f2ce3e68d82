//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/serve/openai"
	"github.com/gollm/gollm/sparse"
)

// startServer starts gollm serve on a free port and returns its address and what it logs
// behind the line that says so.
func startServer(t *testing.T, args ...string) (cmd *exec.Cmd, url string, log *bufio.Reader) {
	t.Helper()
	cmd = clitest.Process(append([]string{"serve", "-m", clitest.Stories(t), "--port", "0", "-t", "1"}, args...)...)
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	log = bufio.NewReader(errs)
	for {
		line, err := log.ReadString('\n')
		if err != nil {
			t.Fatal("it ends before it listens")
		}
		if m := regexp.MustCompile(`msg=listening url=(\S+)`).FindStringSubmatch(line); m != nil {
			return cmd, m[1], log
		}
	}
}

// complete asks for a completion and returns status and body, "" for an error.
func complete(url, body string) (int, string) {
	r, err := http.Post(url+"/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}

// long is a request that runs for a second or two: a bias keeps it from ending.
const long = `{"prompt":"Once","max_tokens":500,"temperature":0,"logit_bias":{"1":-100,"2":-100}}`

// TestServe answers with what generate writes. SIGTERM lets a request finish, a second one
// ends it; both end the server with code 0.
func TestServe(t *testing.T) {
	var got struct{ Choices []struct{ Text string } }
	for _, signals := range []int{1, 2} {
		cmd, url, log := startServer(t, "--attn", "dense", "--attn", "streaming(sink=2,window=30)")
		for attn, prompt := range map[string]string{"dense": "Once upon a time", "streaming(sink=2,window=30)": "Tom"} {
			status, body := complete(url, `{"prompt":"`+prompt+`","max_tokens":60,"temperature":0,"attn":"`+attn+`"}`)
			want := ok(t, "", "generate", "-m", clitest.Stories(t), "-p", prompt, "-n", "60", "--temp", "0", "--attn", attn)
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || got.Choices[0].Text != want {
				t.Errorf("%s: %d %s, want %q", attn, status, body, want)
			}
		}
		status := make(chan int)
		go func() {
			code, _ := complete(url, long)
			status <- code
		}()
		waitRunning(t, url)
		var text strings.Builder
		for range signals {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for !strings.Contains(text.String(), "msg=draining") {
				line, err := log.ReadString('\n')
				if err != nil {
					t.Fatalf("no word of draining in %s", &text)
				}
				text.WriteString(line)
			}
		}
		if code := <-status; (code == 200) != (signals == 1) {
			t.Errorf("after %d signals the request gets status %d", signals, code)
		}
		io.Copy(&text, log)
		if err := cmd.Wait(); err != nil || !strings.Contains(text.String(), "msg=closed") {
			t.Errorf("after %d signals: %v\n%s", signals, err, &text)
		}
	}
}

// waitRunning waits until a request runs.
func waitRunning(t *testing.T, url string) {
	t.Helper()
	for range 500 {
		r, err := http.Get(strings.TrimSuffix(url, "/v1") + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if strings.Contains(string(b), `vllm:num_requests_running{model_name="stories260K"} 1`) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nothing runs")
}

// TestServeSmallCache tells clients how long a sequence can be where the cache is smaller than --ctx.
func TestServeSmallCache(t *testing.T) {
	_, url, _ := startServer(t, "--cache", "128")
	r, err := http.Get(url + "/models")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); !strings.Contains(string(b), `"max_model_len":128`) {
		t.Errorf("%s, want max_model_len 128", b)
	}
}

// TestServeCommandLine refuses what makes no sense, and what would let others in.
func TestServeCommandLine(t *testing.T) {
	model := clitest.Stories(t)
	empty := clitest.WriteFile(t, "key", " \n")
	for _, c := range []struct {
		code  int
		words string
		args  []string
	}{
		{console.ExitUsage, "--host 0.0.0.0 is not this machine alone", []string{"--host", "0.0.0.0"}},
		{console.ExitUsage, "--host example.org is not this machine alone", []string{"--host", "example.org"}},
		{console.ExitUsage, "--port 65536, want 0 to 65535", []string{"--port", "65536"}},
		{console.ExitUsage, "--ctx 3x, want a number of tokens", []string{"--ctx", "3x"}},
		{console.ExitUsage, `--name "a\xff\x1b" has characters`, []string{"--name", "a\xff\x1b"}},
		{console.ExitUsage, "--slots 0, want 1 to 1024", []string{"--slots", "0"}},
		{console.ExitUsage, "is there twice", []string{"--attn", "dense", "--attn", "dense"}},
		{console.ExitUsage, "no method is called", []string{"--attn", "nothing"}},
		{console.ExitUsage, "--allow-origin example.org, want scheme and host", []string{"--allow-origin", "example.org"}},
		{console.ExitUsage, "--allow-origin https://example.org/, want scheme and host", []string{"--allow-origin", "https://example.org/"}},
		{console.ExitUsage, "-np: how many sequences run at once is --slots", []string{"-np", "4"}},
		{console.ExitUsage, "--api-key: the key is in a file", []string{"--api-key", "x"}},
		{console.ExitUsage, "--drain -1s, want 0 or more", []string{"--drain", "-1s"}},
		{console.ExitFailure, "holds no key", []string{"--host", "0.0.0.0", "--api-key-file", empty}},
		{console.ExitFailure, "no such file", []string{"--api-key-file", empty + "x"}},
		{console.ExitFailure, "of memory are available", []string{"--cache", "1000m"}},
	} {
		fails(t, c.code, []string{c.words}, "", append([]string{"serve", "-m", model}, c.args...)...)
	}
}

// TestLimitedListener accepts as many connections as it may, and another one once one of
// them has ended.
func TestLimitedListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limited(inner, 2)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	one, two := <-accepted, <-accepted
	select {
	case <-accepted:
		t.Error("a third connection is accepted")
	case <-time.After(50 * time.Millisecond):
	}
	one.Close()
	one.Close()
	three := <-accepted
	two.Close()
	three.Close()
	l.Close()
	if _, open := <-accepted; open {
		t.Error("a closed listener accepts")
	}
}

// TestServeDocs holds the table of docs/serve.md, which says where a prompt may begin with
// cached pages, against the methods.
func TestServeDocs(t *testing.T) {
	page := contents(t, "../../docs/serve.md")
	for _, m := range sparse.Methods() {
		spec, err := sparse.Parse(m.Name)
		if err != nil {
			t.Fatal(err)
		}
		unit, why := spec.PrefixUnit()
		line := fmt.Sprintf("| `%s` | at multiples of %d tokens |\n", m.Name, unit)
		if unit == 0 {
			line = fmt.Sprintf("| `%s` | no: %s |\n", m.Name, why)
		}
		if !strings.Contains(page, line) {
			t.Errorf("docs/serve.md has no line %s", line)
		}
	}
}

// TestModelName makes of any name of a file one that clients and metrics can say.
func TestModelName(t *testing.T) {
	for path, want := range map[string]string{
		"a/Llama 3.gguf": "Llama 3", "a/.gguf": "model", "b\xff\n\x1b[31m.gguf": "b___[31m", "ä\u202e模型.gguf": "ä_模型", "none": "none",
	} {
		s := &serveFlags{}
		s.model.Path = path
		name := s.modelName()
		if name != want {
			t.Errorf("%q: %q, want %q", path, name, want)
		}
		openai.NewMetrics(name, []string{"dense"}) // panics where the name is no label
	}
}
