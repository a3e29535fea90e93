package journal

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/nftables/expr"

	"ironroot/agent/inventory/machinetest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/storage/sysfs"
)

// Rules that nft created in a private network namespace are listed with their tables and chains.
//
// Parity: E11
func TestPacketFilter(t *testing.T) {
	testenv.Programs(t, "nft")
	nettest.EnterNamespace(t)
	sys := sysfs.Root{Path: t.TempDir()}
	empty, err := packetFilter(t.Context(), sys)
	if err != nil || string(empty) != "no rules\n" {
		t.Errorf("without rules: got %q and %v, want it said", empty, err)
	}
	nft := exec.CommandContext(t.Context(), "nft", "-f", "-")
	nft.Stdin = strings.NewReader(`table inet guard {
		chain input { type filter hook input priority -5; policy drop; tcp dport 22 counter accept; jump more; }
		chain more { meta l4proto icmp drop; }
	}
	table ip nat { chain out { type nat hook postrouting priority srcnat; masquerade; }; }
	`)
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	got, err := packetFilter(t.Context(), sys)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"table inet guard\n", "  chain input (type filter, hook input, priority -5, policy drop)\n",
		"Data:0016}; counter packets 0 bytes 0; accept\n", "jump more\n", "  chain more\n", "Data:01}; drop\n",
		"table ip nat\n", "  chain out (type nat, hook postrouting, priority 100, policy accept)\n", ": masq {",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("got no %q in\n%s", want, got)
		}
	}
	if got := strings.Count(string(got), "  chain "); got != 3 {
		t.Errorf("got %d chains, want each of 3 in its table only", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := packetFilter(ctx, sys); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got error %v", err)
	}
	legacy, err := packetFilter(t.Context(), machinetest.Unpack(t, `
proc/net/ip_tables_names: filter\nnat\n
proc/net/ip6_tables_names/
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"(ip_tables_names): filter nat\n", "(ip6_tables_names): read ", "table inet guard\n",
	} {
		if !strings.Contains(string(legacy), want) {
			t.Errorf("legacy tables: got no %q in\n%s", want, legacy)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for want, verdict := range map[string]expr.Verdict{
		"accept": {Kind: expr.VerdictAccept}, "goto other": {Kind: expr.VerdictGoto, Chain: "other"},
		"verdict -2": {Kind: expr.VerdictBreak},
	} {
		if got := expressions([]expr.Any{&verdict}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
