package agent

import (
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// A setting without effect is logged once, without its value, wherever it was set.
func TestSettingsWithoutEffectAreLogged(t *testing.T) {
	testenv.ExpectPanics(t)
	ironic := newIronic(t)
	ironic.config["agent_containers"] = map[string]any{"allowed_containers": []string{"a"}, "runner": "docker"}
	ironic.config["tls_cipher_suites"] = "HIGH:nonsense"
	failures := 1
	r := startAgent(t, func(o *Options) {
		o.Forever = true
		o.Config.DiskUtils.DDBlockSize = "4M"
		o.Machine.Drivers = onEnter(nil, func(phase string) {
			if failures--; phase == "configuration" && failures == 0 {
				panic("start over")
			}
		})
	}, "--api-url="+ironic.URL)
	r.beat(ironic)
	console := r.console.String()
	for _, name := range []string{"disk_utils.dd_block_size", "container.runner"} {
		if got := strings.Count(console, "setting has no effect name="+name+" "); got != 1 {
			t.Errorf("lines about %s: got %d, want 1", name, got)
		}
	}
	if got := strings.Count(console, "setting has no effect"); got != 2 {
		t.Errorf("all such lines: got %d, want 2", got)
	}
	const ignored = "unsupported cipher names ignored option=tls_cipher_suites names=nonsense"
	if got := strings.Count(console, ignored); got != 1 {
		t.Errorf("lines about ciphers: got %d, want 1", got)
	}
	if t.Failed() {
		t.Log(console)
	}
}
