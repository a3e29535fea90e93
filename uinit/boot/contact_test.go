//go:build linux

package boot

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/status"
	"ironroot/agent/vmedia"
)

// Each phase of the agent's start postpones the modules of other devices. The first heartbeat ends that, also one that
// failed.
func TestContactBoard(t *testing.T) {
	for _, result := range []error{nil, errors.New("refused")} {
		var calls []string
		note := func(call string) func() { return func() { calls = append(calls, call) } }
		board := status.NewBoard("1", nil)
		b := contactBoard{board, note("postpone"), note("resume")}
		b.Enter(status.Network)
		b.Enter(status.Lookup)
		b.HeartbeatDone(result)
		if diff := cmp.Diff([]string{"postpone", "postpone", "resume"}, calls); diff != "" {
			t.Errorf("heartbeat %v: %s", result, diff)
		}
		if s := board.State(); s.Phase != status.Lookup || s.Beat.Failed != (result != nil) {
			t.Errorf("heartbeat %v: the board has phase %s and heartbeat %+v", result, s.Phase, s.Beat)
		}
	}
}

// Modules of other devices are postponed only if the agent contacts Ironic and the network does not wait for a disk. An
// agent that needs drivers, or whose heartbeat is done, ends that.
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
		var calls []string
		m := &Machine{
			Postpone: func() { calls = append(calls, "postpone") },
			Resume:   func() { calls = append(calls, "resume") },
		}
		o := agentOptions(m, settings, nil, vmedia.New(vmedia.Options{Params: params}), status.NewBoard("1", nil))
		if _, got := o.Board.(contactBoard); got != want || (o.NeedDrivers != nil) != want {
			t.Errorf("%s: got modules postponed %v and drivers requested %v, want %v",
				cmdline, got, o.NeedDrivers != nil, want)
			continue
		}
		if !want {
			continue
		}
		o.Board.Enter(status.Lookup)
		o.NeedDrivers()
		o.Board.HeartbeatDone(nil)
		if diff := cmp.Diff([]string{"postpone", "resume", "resume"}, calls); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", cmdline, diff)
		}
	}
}
