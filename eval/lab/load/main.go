// Command load is the clients of gollm serve, many and bad ones:
//
//	load soak -n 10000 -clients 64        # mixed requests, a tenth of them cancelled: every answer is that of the request alone
//	load connections                      # clients that are slow, deaf, half closed, idle, or send too much
//	load bench -m FILE -clients 1,4,16,64 # tokens a second and times to the first token
//	load prefix -m FILE -attn "a;b"       # time to the first token of a second question behind one document
//
// soak, connections and prefix start bin/gollm serve on a free port of this machine and talk to
// nothing else. bench does so, too, and with -peer in turns with llama.cpp's server.
//
// Start reading at soak.go.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	commands := map[string]func(context.Context, []string) error{"soak": runSoak, "connections": runConnections, "bench": runBench, "prefix": runPrefix}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "load: say soak, connections, bench or prefix; -h behind it lists its options")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
