package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
)

// The reference of the options is generated and must not lag behind their declarations.
func TestReferenceIsUpToDate(t *testing.T) {
	var want bytes.Buffer
	if err := config.Reference(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("docs/configuration.md is not what `make docs` writes (-generated +file):\n%s", diff)
	}
}
