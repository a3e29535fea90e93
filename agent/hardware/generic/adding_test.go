package generic

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/hardware"
)

// The declarations of this file are quoted by docs/adding.md.

// readKernel is the step read_kernel: its result is the version of the running kernel.
func (m *Manager) readKernel(context.Context, hardware.Call) (any, error) {
	text, err := os.ReadFile(m.o.System.Proc("sys/kernel/osrelease"))
	if err != nil {
		return nil, fmt.Errorf("read kernel version: %w", err)
	}
	return map[string]string{"kernel": strings.TrimSpace(string(text))}, nil
}

// readKernelRow returns the row for table.
func (m *Manager) readKernelRow() row {
	return row{
		step: hardware.Step{
			Name: "read_kernel", Interface: deployInterface, Run: m.readKernel,
			Help: "Returns the version of the running kernel.",
		},
		offers: map[hardware.Kind]offer{hardware.Clean: {abortable: true}, hardware.Service: {}},
	}
}

func TestAddedStep(t *testing.T) {
	m := newManager(t)
	path := m.o.System.Proc("sys/kernel/osrelease")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("6.12.41\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := m.readKernelRow().step.Run(t.Context(), hardware.Call{})
	if err != nil || fmt.Sprint(got) != "map[kernel:6.12.41]" {
		t.Errorf("got %v and %v, want the version", got, err)
	}
}
