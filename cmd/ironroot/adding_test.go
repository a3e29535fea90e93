package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/alecthomas/kong"
)

// The declarations of this file are quoted by docs/adding.md.

// platformCmd prints the platform that the program was built for.
type platformCmd struct {
	Separator string `default:"/" help:"Text between the operating system and the architecture."`

	out io.Writer
}

// Run prints the platform.
func (c *platformCmd) Run() error {
	_, err := fmt.Fprintln(c.out, runtime.GOOS+c.Separator+runtime.GOARCH)
	return err
}

// addedCLI has the row of cli.
type addedCLI struct {
	Platform platformCmd `cmd:"" help:"Print the platform that the program was built for."`
}

func TestAddedOperatorCommand(t *testing.T) {
	var out bytes.Buffer
	parser, err := kong.New(&addedCLI{Platform: platformCmd{out: &out}}, kong.Writers(os.Stdout, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := parser.Parse([]string{"platform", "--separator=-"})
	if err != nil {
		t.Fatal(err)
	}
	if err := ctx.Run(); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), runtime.GOOS+"-"+runtime.GOARCH+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
