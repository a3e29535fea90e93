//go:build linux

package bmcuser

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/ipmi"

	"ironroot/agent/hardware"
)

// fakeBMC records requests.
type fakeBMC struct {
	name     string // of the user
	fails    byte   // command that fails
	code     byte   // of the failure
	requests []string
}

func (b *fakeBMC) SendRecv(_ ipmi.NetFn, command ipmi.Command, data []byte) ([]byte, error) {
	b.requests = append(b.requests, fmt.Sprintf("%02x %x", byte(command), data))
	if byte(command) == b.fails {
		return nil, ipmi.CompletionError(b.code)
	}
	return append([]byte{0}, b.name...), nil
}

func (b *fakeBMC) Close() error { return nil }

func run(t *testing.T, b *fakeBMC, args string) (any, error) {
	t.Helper()
	m := New(hardware.Machine{Log: slog.New(slog.DiscardHandler)})
	m.(*manager).bmc = b
	managers, err := hardware.Load(t.Context(), []hardware.Manager{m}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var parsed map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &parsed); err != nil {
		t.Fatal(err)
	}
	return managers.Execute(context.Background(), hardware.Clean, "create_bmc_user", hardware.Call{Args: parsed})
}

const arguments = `{"id": 4, "name": "ironic", "password": "correct horse", "privilege": "administrator"}`

func TestCreate(t *testing.T) {
	b := &fakeBMC{name: "ironic\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}
	got, err := run(t, b, arguments)
	if diff := cmp.Diff(map[string]any{"id": byte(4), "name": "ironic"}, got); err != nil || diff != "" {
		t.Errorf("got %v and %v (-want +got):\n%s", got, err, diff)
	}
	want := []string{
		"46 04",
		"45 0469726f6e696300000000000000000000",
		"47 8402636f727265637420686f72736500000000000000",
		"43 910404",
		"47 0401",
		"47 8403636f727265637420686f72736500000000000000",
	}
	if diff := cmp.Diff(want, b.requests); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
}

// A BMC that rejects the number of a user without name has no such user yet.
func TestCreateFirst(t *testing.T) {
	b := &fakeBMC{fails: getUserName, code: 0xcc}
	if _, err := run(t, b, arguments); err != nil || len(b.requests) != 6 {
		t.Errorf("got %v after requests %q, want a user", err, b.requests)
	}
}

func TestCreateFails(t *testing.T) {
	for _, tt := range []struct {
		bmc        fakeBMC
		args, want string
	}{
		{fakeBMC{name: "admin"}, arguments, `create BMC user 4: got name "admin", want none or "ironic"`},
		{fakeBMC{fails: setUserAccess, code: 0xc1}, arguments, "create BMC user 4: set access: "},
		{fakeBMC{fails: getUserName, code: 0xc0}, arguments, "create BMC user 4: get name: "}, // busy
		{fakeBMC{}, `{"id": 4, "nam": "ironic"}`, `arguments: json: unknown field "nam"`},
		{fakeBMC{}, `{"id": 1, "name": "ironic", "password": "p"}`, "id 1: want 2 to 63"},
		{fakeBMC{}, `{"id": 4, "password": "p"}`, `name "": want 1 to 16 bytes`},
		{fakeBMC{}, `{"id": 4, "name": "ironic"}`, "password: want 1 to 20 bytes"},
		{fakeBMC{}, `{"id": 4, "name": "ironic", "password": "p", "channel": 16}`, "channel 16: want 1 to 15"},
		{fakeBMC{}, `{"id": 4, "name": "ironic", "password": "p", "privilege": "root"}`, `privilege "root": want `},
	} {
		if _, err := run(t, &tt.bmc, tt.args); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.args, err, tt.want)
		}
	}
}
