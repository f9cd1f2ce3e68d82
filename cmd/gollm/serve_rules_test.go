//go:build unix

package main

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gollm/gollm/internal/clitest"
)

// TestServeListens holds where the server listens, and who is answered there: this machine alone
// unless a key is wanted, or --no-auth said.
func TestServeListens(t *testing.T) {
	key := clitest.WriteFile(t, "key", "secret\n")
	for _, c := range []struct {
		args                []string
		address             string
		open, keyed, others int // status without a key, with it, and without it under another name
	}{
		{nil, "127.0.0.1", 200, 200, 403},
		{[]string{"--api-key-file", key}, "127.0.0.1", 401, 200, 401},
		{[]string{"--host", "127.0.0.2", "--no-auth"}, "127.0.0.2", 200, 200, 200},
		{[]string{"--host", "0.0.0.0", "--api-key-file", key}, "[::]", 401, 200, 401},
	} {
		_, url, _ := startServer(t, c.args...)
		host := strings.TrimPrefix(url, "http://")
		if !strings.HasPrefix(host, c.address+":") {
			t.Errorf("%v: it listens at %s, want %s", c.args, url, c.address)
		}
		url = strings.Replace(url, "[::]", "127.0.0.1", 1)
		for _, ask := range []struct {
			key, host string
			want      int
		}{{"", "", c.open}, {"secret", "", c.keyed}, {"", "other.example", c.others}} {
			r, err := http.NewRequest("GET", url+"/models", nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Host = ask.host; ask.key != "" {
				r.Header.Set("Authorization", "Bearer "+ask.key)
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != ask.want {
				t.Errorf("%v, key %q, host %q: status %d, want %d", c.args, ask.key, ask.host, res.StatusCode, ask.want)
			}
		}
	}
}

// TestServeLimits tries the limits of a connection: headers that are too large, that do not
// come, and a connection without a request.
func TestServeLimits(t *testing.T) {
	server := httpServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if server.ReadHeaderTimeout != 10*time.Second || server.IdleTimeout != 2*time.Minute || server.MaxHeaderBytes != 64<<10 {
		t.Errorf("%v for a header, %v idle, %d bytes: docs/serve.md has others", server.ReadHeaderTimeout, server.IdleTimeout, server.MaxHeaderBytes)
	}
	server.ReadHeaderTimeout, server.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer server.Close()
	for _, c := range []struct{ request, answer string }{
		{"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
		{"GET / HTTP/1.1\r\nHost: a\r\nX: ", ""},
		{"", ""},
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404 "},
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, c.request); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		if !strings.HasPrefix(line, c.answer) || c.answer == "" && line != "" {
			t.Errorf("%.40q is answered with %q, want %q", c.request, line, c.answer)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%.40q: the connection stays: %v", c.request, err)
		}
	}
}

// TestIdleGivesWay: where all connections are idle, a new one is answered at once, and the
// one that has been idle for longest is closed.
func TestIdleGivesWay(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limited(inner, 3)
	server := httpServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	server.ConnState = l.note
	go server.Serve(l)
	defer server.Close()
	var readers []*bufio.Reader
	for i := range 6 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	for i, r := range readers[:3] {
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("connection %d is open: %v", i, err)
		}
	}
}
