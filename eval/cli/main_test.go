package cli

import (
	"context"
	"io"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/userfile"
)

// newRoot is a gollm that has no other command than eval.
func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "gollm", Version: "gollm as its tests run it"}
	root.AddCommand(New(""))
	return root
}

var testProgram = clitest.Program(func(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	return console.Run(ctx, newRoot(), args, in, out, errs)
})

var gollm, ok, fails = testProgram.Run, testProgram.OK, testProgram.Fails

func TestMain(m *testing.M) {
	clitest.Main(m, func() { console.Main(newRoot(), userfile.DropParts) })
}
