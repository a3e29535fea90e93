package image

import (
	"strings"
	"testing"
)

// The declarations of this file are quoted by docs/adding.md.

// parallels is a row of formats: such images are detected, and refused.
var parallels = format{name: "parallels", detect: at(0, "WithoutFreeSpace")}

func TestAddedFormat(t *testing.T) {
	if !parallels.detect([]byte("WithoutFreeSpace\x02\x00")) || parallels.detect([]byte("WithoutFreeSpac")) {
		t.Error("the signature is not detected")
	}
	err := parallels.writable()
	if err == nil || !strings.Contains(err.Error(), "only raw, gpt, iso and qcow2: convert it") {
		t.Errorf("got error %v, want one that names the formats that can be written", err)
	}
}
