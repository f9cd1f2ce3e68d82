package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/npy"
	"github.com/gollm/gollm/internal/userfile"
)

// storyText is 117 tokens, so that keys lie in two pages.
const storyText = "Once upon a time, there was a little girl named Lily. She liked to play outside in the park. " +
	"One day, she saw a big red ball under a tree. She ran to it and wanted to play, but a dog came and took the ball away. " +
	"Lily was sad. Then the dog came back and gave her the ball. They played all day and were friends."

// storyRanks are what scripts/channels.py, in float64, makes of storyText: the
// channels of each head, a line for each layer.
const storyRanks = `23761504 32671540 72361504 72361540 76153240 71652340 73561240 73625104
76321540 72635140 32765140 32751640 72365104 23765140 72351604 72315640
32571604 32751604 63751204 63751240 23761540 23765140 26375140 26735104
23671504 23671504 32617504 23657104 31752604 31572604 76351240 76325104
26735140 23765140 63725104 67321504 27631540 27631540 76351240 67531240
`

func TestChannelsAreThoseOfTheScript(t *testing.T) {
	model, path := clitest.Stories(t), filepath.Join(t.TempDir(), "channels.npy")
	out := ok(t, "", "channels", "-m", model, "-p", storyText, "-o", path)
	if want := "5 layers and 8 heads, best first, by 117 tokens"; !strings.Contains(out, want) {
		t.Errorf("it says %q, want %q", out, want)
	}
	a, err := npy.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(a.Shape) != "[5 8 8]" {
		t.Fatalf("an array of shape %v, want [5 8 8]", a.Shape)
	}
	var got strings.Builder
	for i, c := range a.Data {
		fmt.Fprintf(&got, "%.0f", c)
		switch {
		case i%64 == 63:
			got.WriteString("\n")
		case i%8 == 7:
			got.WriteString(" ")
		}
	}
	if got.String() != storyRanks {
		t.Errorf("ranks are\n%s, want\n%s", got.String(), storyRanks)
	}
	// What was written is what --attn reads.
	ok(t, "", "generate", "-m", model, "-p", "Once", "-n", "4", "--temp", "0", "--attn", "doublesparsity(file="+path+",factor=4)")

	ok(t, "", "channels", "-m", model, "-p", storyText, "-o", path, "--limit", "20")
	if b, err := npy.ReadFile(path); err != nil || fmt.Sprint(a.Data) == fmt.Sprint(b.Data) {
		t.Errorf("20 tokens rank as 117 do, error %v", err)
	}
}

func TestChannelsErrors(t *testing.T) {
	model := clitest.Stories(t)
	path := filepath.Join(t.TempDir(), "channels.npy")
	fails(t, console.ExitUsage, []string{"no place", "-o"}, "", "channels", "-m", model, "-p", "a")
	fails(t, console.ExitUsage, []string{"--limit 0"}, "", "channels", "-m", model, "-p", "a", "-o", path, "--limit", "0")
	fails(t, console.ExitUsage, []string{"is the file of -m"}, "", "channels", "-m", model, "-p", "a", "-o", model)
	if userfile.Exists(path) {
		t.Error("a command line that was refused left a file")
	}
}
