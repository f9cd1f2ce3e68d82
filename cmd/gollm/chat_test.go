package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/model/modeltest"
)

// talker is a random model whose template shows the roles.
func talker(t *testing.T, context int) string {
	t.Helper()
	return clitest.RandomModel(t, modeltest.Shape{Context: context, Keys: map[string]any{
		"tokenizer.chat_template": "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
	}})
}

func TestChatAnswersEachLine(t *testing.T) {
	r := gollm("Hello\n\n  \nAnd you?", "chat", "-m", talker(t, 512), "-n", "5", "--temp", "0")
	if r.Code != 0 || r.Errs != "" || strings.Count(r.Out, "\n") < 2 || strings.Contains(r.Out, ">") {
		t.Errorf("code %d, stdout %q, stderr %q, want two answers and nothing else", r.Code, r.Out, r.Errs)
	}
}

// What the cache has is not read again, and the answers are those of a
// conversation without a cache.
func TestChatReusesTheCache(t *testing.T) {
	model := talker(t, 2048)
	args := []string{"chat", "-m", model, "-n", "6", "--temp", "0"}
	r := gollm("Hello, how are you?\nWhat is the weather like?\nBye\n", append(args, "-v")...)
	if r.Code != 0 {
		t.Fatal(r.Errs)
	}
	var cached, total []int
	for _, m := range regexp.MustCompile(`(\d+) tokens, (\d+) of them in the cache`).FindAllStringSubmatch(r.Errs, -1) {
		total, cached = append(total, number(t, m[1])), append(cached, number(t, m[2]))
	}
	if len(total) != 3 || cached[0] != 0 || cached[1] < total[0] || cached[2] < total[1] {
		t.Errorf("%v of %v tokens were in the cache, want at least the prompts before", cached, total)
	}
	answers := strings.Split(strings.TrimSuffix(r.Out, "\n"), "\n")
	prompt := "<s>[user]Hello, how are you?[assistant]" + answers[0] + "[user]What is the weather like?[assistant]"
	alone := clitest.Decode[generateReport](t, ok(t, "", "generate", "-m", model, "-p", prompt, "-n", "6", "--temp", "0", "--json"))
	if got := strings.TrimLeft(alone.Text, " \n"); got != answers[1] {
		t.Errorf("with the cache the second answer is %q, without %q", answers[1], got)
	}
}

// An attention method that keeps sums beside each page goes back to a page
// boundary, and what lies behind that is read again.
func TestChatReadsAgainWhatTruncateDropped(t *testing.T) {
	model := talker(t, 2048)
	args := []string{"-m", model, "-n", "6", "--temp", "0", "--attn", "sketchwalk(density=1)"}
	long := strings.Repeat("How are you? ", 12)
	answers := strings.Split(strings.TrimSuffix(ok(t, long+"\nWhat is the weather like?\n", append([]string{"chat"}, args...)...), "\n"), "\n")
	prompt := "<s>[user]" + long + "[assistant]" + answers[0] + "[user]What is the weather like?[assistant]"
	alone := clitest.Decode[generateReport](t, ok(t, "", append([]string{"generate", "-p", prompt, "--json"}, args...)...))
	if got := strings.TrimLeft(alone.Text, " \n"); len(answers) != 2 || got != answers[1] {
		t.Errorf("the answers are %q, without a cache the second is %q", answers, got)
	}
}

// --stop ends an answer, as it does in generate.
func TestChatStop(t *testing.T) {
	args := []string{"chat", "-m", talker(t, 512), "-n", "12", "--temp", "0"}
	free := ok(t, "Hello\n", args...)
	words := []rune(strings.TrimSpace(free))
	if len(words) < 4 {
		t.Fatalf("the answer %q is too short to be cut", free)
	}
	stop := string(words[2:4])
	before, _, _ := strings.Cut(strings.TrimLeft(free, " "), stop)
	if got := ok(t, "Hello\n", append(args, "--stop", stop)...); strings.TrimRight(got, "\n") != strings.TrimRight(before, "\n") {
		t.Errorf("with --stop %q the answer is %q, want %q", stop, got, before)
	}
}

func TestChatNoSpecialRefusesMessages(t *testing.T) {
	model := talker(t, 512)
	ok(t, "Hi</s>\n", "chat", "-m", model, "-n", "3", "--temp", "0")
	fails(t, console.ExitFailure, []string{"the user message", "--no-special"}, "Hi</s>\n", "chat", "-m", model, "-n", "3", "--temp", "0", "--no-special")
	fails(t, console.ExitFailure, []string{"the system message", "--no-special"}, "Hi\n", "chat", "-m", model, "-n", "3", "--system", "a</s>", "--no-special")
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestChatCommands(t *testing.T) {
	r := gollm("/help\n/system\n/system Be kind\n/system\n/stats\nHi\n/stats\n/clear\n/exit\nnot read\n",
		"chat", "-m", talker(t, 512), "-n", "3", "--temp", "0", "--system", "Be brief")
	if r.Code != 0 {
		t.Fatal(r.Errs)
	}
	at := 0
	for _, word := range []string{"/clear", `"Be brief"`, "begins anew", `"Be kind"`, "0 of 512 tokens", "prompt tokens at", "of 512 tokens", "forgotten"} {
		i := strings.Index(r.Errs[at:], word)
		if i < 0 {
			t.Fatalf("no %q after %q", word, r.Errs[at:])
		}
		at += i
	}
	if strings.Count(r.Out, "\n") > 3 {
		t.Errorf("stdout %q, want one answer", r.Out)
	}
}

// What is taken back, answered again or loaded keeps what the cache has of it.
func TestChatGoesBackInTheCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "talk.json")
	r := gollm(strings.Join([]string{
		"Hello, how are you?", "What is the weather like?", "/save " + file, "/regen", "/undo", "Bye", "/clear", "/load " + file, "And now?", "",
	}, "\n"), "chat", "-v", "-m", talker(t, 2048), "-n", "6", "--temp", "1.5", "--top-k", "0", "--seed", "4")
	if r.Code != 0 {
		t.Fatal(r.Errs)
	}
	var cached, total []int
	for _, m := range regexp.MustCompile(`(\d+) tokens, (\d+) of them in the cache`).FindAllStringSubmatch(r.Errs, -1) {
		total, cached = append(total, number(t, m[1])), append(cached, number(t, m[2]))
	}
	if len(total) != 5 {
		t.Fatalf("%d answers: %s", len(total), r.Errs)
	}
	if cached[2] != total[2]-1 || total[2] != total[1] {
		t.Errorf("/regen: %d of %d tokens are in the cache, want all but the last of %d", cached[2], total[2], total[1])
	}
	if cached[3] < total[0] || total[3] >= total[1] {
		t.Errorf("/undo: %d of %d tokens are in the cache, want the first turn, of more than %d", cached[3], total[3], total[0])
	}
	if cached[4] < total[0] || total[4] <= total[1] {
		t.Errorf("/load: %d of %d tokens are in the cache, want the first turn, of more than %d", cached[4], total[4], total[0])
	}
	answers := strings.Split(r.Out, "\n")
	if answers[1] == answers[2] {
		t.Errorf("/regen wrote %q again", answers[1])
	}
	for _, word := range []string{"2 turns, is in " + file, "taken back; 1 turn left", "goes on: 2 turns"} {
		if !strings.Contains(r.Errs, word) {
			t.Errorf("no %q in %q", word, r.Errs)
		}
	}
}

// A conversation is saved with its system prompt and loaded as it was; a file of
// somebody else is not written over without -f.
func TestChatSaveAndLoad(t *testing.T) {
	model, file := talker(t, 512), filepath.Join(t.TempDir(), "talk.json")
	args := []string{"chat", "-m", model, "-n", "3", "--temp", "0"}
	ok(t, "Hi\u202e there\n/save "+file+"\nMore\n/save "+file+"\n", append(args, "--system", "Be kind")...)
	var talk []savedMessage
	text := clitest.ReadFile(t, file)
	if err := json.Unmarshal([]byte(text), &talk); err != nil || len(talk) != 5 || talk[0] != (savedMessage{"system", "Be kind"}) || talk[1] != (savedMessage{"user", "Hi\u202e there"}) {
		t.Fatalf("%v, %+v", err, talk)
	}
	clitest.Harmless(t, "/save", text)
	again := filepath.Join(t.TempDir(), "again.json")
	ok(t, "/load "+file+"\n/save "+again+"\n/load "+again+"\n/save "+again+"\n", args...)
	if got := clitest.ReadFile(t, again); got != text {
		t.Errorf("%q is loaded and saved as %q", text, got)
	}
	fails(t, console.ExitFailure, []string{"/save: " + again + " exists", "/save -f " + again}, "/save "+again+"\n", args...)
	ok(t, "/save -f "+again+"\n", args...)
	if got := clitest.ReadFile(t, again); got != "[]\n" {
		t.Errorf("-f wrote %q", got)
	}
	missing := filepath.Join(t.TempDir(), "missing", "a.json")
	for line, word := range map[string]string{
		"/save": "no file is named", "/load": "no file is named", "/undo": "no message to take back", "/regen": "no answer to write again",
		"/load " + missing: "no such file", "/save " + missing: "no such file", "/load " + t.TempDir(): "no regular file",
		"/load " + model: "no JSON array of messages", "/load " + clitest.WriteFile(t, "a.json", `{"messages": []}`): "no JSON array",
		"/load " + clitest.WriteFile(t, "b.json", `[{"role": "assistant", "content": "a"}]`): `message 1 has the role "assistant", want user`,
		"/load " + clitest.WriteFile(t, "c.json", `[{"role": "user", "content": "a"}]`):      "the last message has no answer",
	} {
		fails(t, console.ExitFailure, []string{"gollm: " + line[:5], word}, line+"\n", args...)
	}
}

// An answer that is not written again stays.
func TestChatRegenKeepsTheAnswer(t *testing.T) {
	y := newTypist(t, talker(t, 512), 512)
	y.entries = &plainLines{}
	y.options.MaxTokens = 3
	if err := y.handle(t.Context(), "Hi"); err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(y.messages)
	y.speaker.NoSpecial, y.system = true, "a</s>"
	if err := y.handle(t.Context(), "/regen"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(y.shown(), "--no-special") || !reflect.DeepEqual(y.messages, before) {
		t.Errorf("%+v, want %+v; %q", y.messages, before, y.shown())
	}
}

func TestMessagesThatGoOn(t *testing.T) {
	for _, tt := range []struct {
		text, longer string
		more         bool
	}{
		{"one", "one", false}, {`one\`, "one\n", true}, {`"""`, "\"\"\"\n", true}, {`"""one`, "\"\"\"one\n", true}, {`"""one"""`, `"""one"""`, false},
		{`say """`, `say """`, false}, {"\"\"\"doc\"\"\"\ncode", "\"\"\"doc\"\"\"\ncode", false},
	} {
		if longer, more := goesOn(tt.text); longer != tt.longer || more != tt.more {
			t.Errorf("%q: %q, %v", tt.text, longer, more)
		}
	}
	for text, want := range map[string]string{
		"one": "one", "\"\"\"\none\ntwo\n\"\"\"": "one\ntwo", `"""one"""`: "one", "\"\"\"doc\"\"\"\ncode": "\"\"\"doc\"\"\"\ncode", `"""one`: `"""one`,
		`"""a""" and """b"""`: `"""a""" and """b"""`,
	} {
		if got := unquoted(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestChatCompletes(t *testing.T) {
	dir := t.TempDir() + "/"
	for _, name := range []string{"one.json", "other.json", ".hidden"} {
		if err := os.WriteFile(dir+name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"sub", 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	for text, want := range map[string][]string{
		"": nil, "hello": nil, "/un": {"/undo"}, "/s": {"/save ", "/stats", "/system "}, "/nothing": nil, "/system a": nil, "/undo\n/": nil,
		"/load " + dir: {"/load " + dir + "one.json", "/load " + dir + "other.json", "/load " + dir + "sub/"}, "/save " + dir + "on": {"/save " + dir + "one.json"},
		"/load ~/ot": {"/load ~/other.json"}, "/load " + dir + ".h": {"/load " + dir + ".hidden"}, "/load /no/such/": nil,
	} {
		if got := completeEntry(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, c := range chatCommands() {
		if !strings.Contains(chatHelp, " "+c.name) {
			t.Errorf("/help does not list %s", c.name)
		}
	}
}

// People who know other programs leave with their words.
func TestChatEnds(t *testing.T) {
	for _, word := range []string{"/exit", "/quit", "/bye"} {
		if r := gollm(word+"\nHi\n", "chat", "-m", talker(t, 512), "-n", "3"); r.Code != console.ExitOK || r.Out != "" || strings.Contains(r.Errs, "no command") {
			t.Errorf("%s: code %d, stdout %q, stderr %q", word, r.Code, r.Out, r.Errs)
		}
	}
}

// Where nobody types, nobody would see that a line was left out.
func TestChatRefusesPipedLinesThatAreNoCommand(t *testing.T) {
	r := gollm("/nonsense\nHi\n", "chat", "-m", talker(t, 512), "-n", "3", "--temp", "0")
	if r.Code != console.ExitFailure || r.Out != "" || !strings.Contains(r.Errs, "/nonsense is no command") {
		t.Errorf("code %d, stdout %q, stderr %q", r.Code, r.Out, r.Errs)
	}
	y := newTypist(t, talker(t, 512), 512)
	done := make(chan error, 1)
	go func() { done <- y.run(t.Context()) }()
	y.typeLine(t, "/nonsense")
	y.await(t, "/nonsense is no command")
	y.typeLine(t, "/exit")
	if err := <-done; err != nil {
		t.Errorf("a slip ended the conversation: %v", err)
	}
}

// A format whose tokens the model has is used without a warning.
func TestChatTemplateThatFits(t *testing.T) {
	if r := gollm("Hi\n", "chat", "-m", clitest.Stories(t), "--template", "llama2", "-n", "2"); r.Code != 0 || strings.Contains(r.Errs, "does not have") {
		t.Errorf("exit code %d, %q", r.Code, r.Errs)
	}
}

func TestChatTemplateThatDoesNotFit(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{Keys: map[string]any{"tokenizer.ggml.tokens": plainTokens(320)}})
	r := gollm("Hi\n", "chat", "-m", model, "--template", "llama3", "-n", "2")
	if r.Code != console.ExitOK || !strings.Contains(r.Errs, "needs the tokens <|start_header_id|> <|end_header_id|> <|eot_id|>, which "+model) {
		t.Errorf("code %d, stderr %q", r.Code, r.Errs)
	}
	for _, text := range []string{"# A page\n", "{{ bos_token }}", "messages"} {
		page := clitest.WriteFile(t, "README.md", text)
		fails(t, console.ExitFailure, []string{page, "is no chat template", "llama3"}, "Hi\n", "chat", "-m", model, "--template", page)
	}
}

// Where lines are not edited the terminal cuts them; a line that may be cut is not
// sent.
func TestChatRefusesLinesThatTheTerminalCuts(t *testing.T) {
	y := newTypist(t, talker(t, 512), 512)
	y.options.MaxTokens = 2
	done := make(chan error, 1)
	go func() { done <- y.run(t.Context()) }()
	y.typeLine(t, strings.Repeat("x", longestLine))
	y.await(t, "it is not sent")
	y.typeLine(t, strings.Repeat("x", longestLine-1))
	y.await(t, "the conversation has 41")
	y.keys.Close()
	if err := <-done; err != nil || len(y.messages) != 0 {
		t.Errorf("%v, %d messages", err, len(y.messages))
	}
}

func TestChatContinuedLines(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("one\\\ntwo\\\nthree\r\nfour\nfive\\"))
	for _, want := range []string{"one\ntwo\nthree", "four", "five"} {
		if got, err := readMessage(r); got != want || (err != nil && err != io.EOF) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

func TestChatFullContextSaysWhatToDo(t *testing.T) {
	model := talker(t, 512)
	long := strings.Repeat("word ", 40)
	fails(t, console.ExitFailure, []string{"the conversation has", "the context holds 64", "/clear", "--ctx"}, long, "chat", "-m", model, "--ctx", "64")
	y := newTypist(t, model, 64)
	y.options.IgnoreEnd = true
	done := make(chan error, 1)
	go func() { done <- y.run(t.Context()) }()
	y.typeLine(t, "Hi")
	y.await(t, "the context is full and the answer incomplete: /clear")
	y.typeLine(t, long)
	y.await(t, "the context holds 64")
	y.typeLine(t, "/exit")
	if err := <-done; err != nil {
		t.Errorf("a full context ended the program: %v", err)
	}
}

func TestChatWithoutTemplate(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{Keys: map[string]any{"tokenizer.ggml.tokens": plainTokens(320)}})
	fails(t, console.ExitFailure, []string{"has no chat template", "plain gollm generate", "--template"}, "Hi\n", "chat", "-m", model)
}

// plainTokens is a vocabulary without the tokens of any chat format.
func plainTokens(n int) []string {
	tokens := []string{"<none>", "<begin>", "<end>"}
	for b := range 256 {
		tokens = append(tokens, "<0x"+strings.ToUpper(strconv.FormatInt(int64(b)+256, 16)[1:])+">")
	}
	for len(tokens) < n {
		tokens = append(tokens, "▁w"+strconv.Itoa(len(tokens)))
	}
	return tokens
}

// typist is a terminal session in which a test types and reads.
type typist struct {
	*session
	keys *io.PipeWriter
	in   io.Reader

	mu       sync.Mutex
	out, err strings.Builder
}

// shown is what was printed so far.
func (y *typist) shown() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.out.String() + y.err.String()
}

// pane is one of a typist's streams.
type pane struct {
	y *typist
	b *strings.Builder
}

func (p pane) Write(b []byte) (int, error) {
	p.y.mu.Lock()
	defer p.y.mu.Unlock()
	return p.b.Write(b)
}

// await waits until the session has shown a text.
func (y *typist) await(t *testing.T, text string) {
	t.Helper()
	for range 2000 {
		if strings.Contains(y.shown(), text) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%q did not appear in %q", text, y.shown())
}

func (y *typist) typeLine(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(y.keys, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// run is a conversation on lines.
func (y *typist) run(ctx context.Context) error {
	return y.talk(ctx, &plainLines{session: y.session, lines: readLines(y.in)})
}

// newTypist makes a session that believes in a terminal.
func newTypist(t *testing.T, model string, context int) *typist {
	t.Helper()
	y := &typist{}
	in, keys := io.Pipe()
	y.keys = keys
	cmd := &cobra.Command{}
	cmd.Flags().Bool("verbose", false, "")
	cmd.SetOut(pane{y, &y.out})
	cmd.SetErr(pane{y, &y.err})
	c := chatFlags{model: openmodel.Flags{Path: model, Device: "cpu"}, cache: openmodel.CacheFlags{KV: "f16", Attn: "dense", Context: context}, limit: -1}
	m, err := c.model.Open(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if y.session, err = c.newSession(cmd, m); err != nil {
		t.Fatal(err)
	}
	y.interactive = true
	y.in = in
	return y
}

func TestChatInterruptStopsTheAnswerOnly(t *testing.T) {
	y := newTypist(t, talker(t, 4096), 4096)
	y.options.IgnoreEnd = true // the answer ends with the interrupt
	done := make(chan error, 1)
	go func() { done <- y.run(t.Context()) }()
	y.await(t, "> ")
	y.interrupts <- os.Interrupt
	y.await(t, "Ctrl-D or /exit ends")
	y.typeLine(t, "Hi")
	for range 1000 { // until some of the answer is there
		if len(y.shown()) > 200 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	y.interrupts <- os.Interrupt
	y.await(t, "[stopped]")
	y.typeLine(t, "/stats")
	y.await(t, "of 4096 tokens of context are used")
	y.keys.Close()
	if err := <-done; err != nil {
		t.Errorf("Ctrl-D: %v", err)
	}
	if len(y.messages) != 2 || y.messages[1].Content == "" {
		t.Errorf("the answer so far is not kept: %+v", y.messages)
	}
}

func TestChatPipeInterrupted(t *testing.T) {
	cmd := clitest.Process("chat", "-m", talker(t, 512), "--ctx", "60000", "-n", "-1", "--top-k", "0", "--temp", "3", "--seed", "3")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "Hi\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	if code := clitest.Wait(t, cmd); code != console.ExitInterrupted {
		t.Errorf("exit code %d, want %d", code, console.ExitInterrupted)
	}
}

func TestCommonPrefix(t *testing.T) {
	for _, tt := range []struct {
		a, b []int32
		want int
	}{{nil, nil, 0}, {[]int32{1}, nil, 0}, {[]int32{1, 2}, []int32{1, 3}, 1}, {[]int32{1, 2}, []int32{1, 2, 3}, 2}} {
		if got := commonPrefix(tt.a, tt.b); got != tt.want {
			t.Errorf("commonPrefix(%v, %v) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestConversation(t *testing.T) {
	roles := func(system string) (all []string) {
		for _, m := range openmodel.Conversation(system, nil, "Hi") {
			all = append(all, m.Role+" "+m.Content)
		}
		return all
	}
	if got := roles(""); !slices.Equal(got, []string{"user Hi"}) {
		t.Error(got)
	}
	if got := roles("Be kind"); !slices.Equal(got, []string{"system Be kind", "user Hi"}) {
		t.Error(got)
	}
}
