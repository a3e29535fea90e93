package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = write
	failed := versionCmd{}.Run()
	os.Stdout = stdout
	if err := write.Close(); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	out, err := io.ReadAll(read)
	if err != nil || !strings.HasPrefix(string(out), "ironroot ") {
		t.Errorf("version: got %q %v", out, err)
	}
}
