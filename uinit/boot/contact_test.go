//go:build linux

package boot

import (
	"slices"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/status"
	"ironroot/agent/vmedia"
)

// calls records how the agent starts.
type calls []string

func (c *calls) Postpone() { *c = append(*c, "postpone") }
func (c *calls) Resume()   { *c = append(*c, "resume") }

// Modules of other devices are postponed only if the agent contacts Ironic and the network does not wait for a disk.
// Then each phase of the agent's start postpones them.
func TestContactIsWanted(t *testing.T) {
	for cmdline, want := range map[string]bool{
		"ipa-api-url=http://192.0.2.1": true,
		"ipa-api-url=mdns":             true,
		"quiet":                        false,
		"ipa-api-url=http://192.0.2.1 boot_method=vmedia":  false,
		"ipa-api-url=http://192.0.2.1 ir_pub_id=3e2f-1234": false,
	} {
		params := config.ParseCmdline(cmdline)
		settings, err := config.Load(config.Sources{Params: params})
		if err != nil {
			t.Fatal(err)
		}
		m, made := &Machine{Settled: make(chan struct{})}, calls{}
		m.coldplug = &made
		media, san := vmedia.New(vmedia.Options{Params: params}), &sanDisks{settled: make(chan struct{})}
		d := agentOptions(m, settings, nil, media, san, status.NewBoard("1", nil)).Machine.Drivers
		d.Enter(status.Network)
		d.Enter(status.Lookup)
		if got := slices.Equal(made, calls{"postpone", "postpone"}); got != want || !want && len(made) > 0 {
			t.Errorf("%s: got calls %q, want modules postponed at each phase: %t", cmdline, made, want)
		}
		if d.Settled() != san.settled {
			t.Errorf("%s: the agent does not wait for the disks of a network", cmdline)
		}
		made = nil
		if d.Resume(); !slices.Equal(made, calls{"resume"}) {
			t.Errorf("%s: got calls %q, want one that resumes", cmdline, made)
		}
	}
}
