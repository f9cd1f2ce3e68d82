package main

import (
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/userfile"
)

func main() {
	console.Main(newRoot(), userfile.DropParts)
}
