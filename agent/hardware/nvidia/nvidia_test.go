package nvidia

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/status"
	"ironroot/storage/sysfs"
)

// rig is a manager on a machine whose network cards and tools are fakes.
type rig struct {
	*cards
	options Options
	log     bytes.Buffer
	files   map[string]string // content by URL
	opened  []string
	phases  []string
}

// newRig returns a rig. A device is ADDRESS VENDOR:DEVICE CLASS, as lspci shows it.
func newRig(t *testing.T, devices ...string) *rig {
	t.Helper()
	r := &rig{cards: &cards{Cards: map[string]*card{}}, files: map[string]string{}}
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, device := range devices {
		f := strings.Fields(device)
		id, model, _ := strings.Cut(f[1], ":")
		dir := "sys/bus/pci/devices/" + f[0] + "/"
		write(dir+"vendor", "0x"+id+"\n")
		write(dir+"device", "0x"+model+"\n")
		write(dir+"class", "0x"+f[2]+"00\n")
		if len(f) > 3 {
			write(dir+"physfn/vendor", "0x"+id+"\n")
		}
	}
	write("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n")
	r.options = Options{
		Config: config.NewLive(&config.Config{}),
		System: sysfs.Root{Path: root},
		Tools:  r,
		Images: r,
		Board:  phases{Trackers: (*status.Board)(nil), rig: r},
		Log:    slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	return r
}

// FindTools implements [ToolFinder].
func (r *rig) FindTools(_ context.Context, names ...string) (Tools, error) {
	if want := []string{"mstflint", "mstconfig", "mstfwreset"}; !slices.Equal(names, want) {
		return nil, fmt.Errorf("got %q, want %q", names, want)
	}
	return r, nil
}

// Open implements [Opener].
func (r *rig) Open(_ context.Context, url string, verify bool) (io.ReadCloser, error) {
	r.opened = append(r.opened, url)
	text, ok := r.files[url]
	if !ok || !verify {
		return nil, errors.New("status 404")
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// phases records the progress of a rig.
type phases struct {
	status.Trackers
	status.Tracker
	rig *rig
}

// Track implements [status.Trackers].
func (p phases) Track(_ *slog.Logger, what, device string) status.Tracker {
	p.rig.phases = append(p.rig.phases, what+" of "+device)
	return p
}

// SetPhase implements [status.Tracker].
func (p phases) SetPhase(phase string, _ int, done, _ int64) {
	if done > 0 {
		phase += fmt.Sprintf(": %d bytes", done)
	}
	p.rig.phases = append(p.rig.phases, phase)
}

// End implements [status.Tracker].
func (p phases) End() { p.rig.phases = append(p.rig.phases, "end") }

// run runs a step through a set of managers. The argument is JSON, with ' instead of ".
func (r *rig) run(t *testing.T, step, argument string) (string, error) {
	t.Helper()
	return r.runContext(t, t.Context(), step, argument)
}

// runContext is run with a context of the step.
func (r *rig) runContext(t *testing.T, ctx context.Context, step, argument string) (string, error) {
	t.Helper()
	managers, err := hardware.Load(t.Context(), []hardware.Manager{New(r.options)}, r.options.Log)
	if err != nil {
		t.Fatal(err)
	}
	var args map[string]json.RawMessage
	if err := json.Unmarshal([]byte(strings.ReplaceAll(argument, "'", `"`)), &args); err != nil {
		t.Fatal(err)
	}
	result, err := managers.Execute(ctx, hardware.Service, step, hardware.Call{Args: args})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), `"`, "'"), nil
}

// checkCalls compares the commands of tools that write.
func (r *rig) checkCalls(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.Calls); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

// checkFault compares an error with the type and a part of the details of a fault.
func checkFault(t *testing.T, err error, kind, details string) {
	t.Helper()
	var got *fault.Error
	if err == nil || !errors.As(fault.From(err), &got) || got.Type != kind || !strings.Contains(got.Details, details) {
		t.Errorf("got %v of type %T, want %s with %q", err, err, kind, details)
		if got != nil {
			t.Logf("got type %s", got.Type)
		}
	}
}

// The devices of the tests: a card with two ports, one with InfiniBand, and others.
var devices = []string{
	"0000:3b:00.0 15b3:101d 0200", "0000:3b:00.1 15b3:101d 0200", "0000:5e:00.0 15b3:101B 0207",
	"0000:00:1f.6 8086:15bb 0200", "0000:5f:00.0 15b3:1976 0604", "0000:3b:00.2 15b3:101e 0200 virtual",
}

// table has the steps of the manager of the same name in ironic-python-agent, without the descriptions of arguments.
const table = `[
	{"step": "update_nvidia_nic_firmware_image", "priority": 0, "interface": "deploy", "reboot_requested": true,
		"abortable": false, "argsinfo": {"images": {"description": "", "required": true}}},
	{"step": "update_nvidia_nic_firmware_settings", "priority": 0, "interface": "deploy", "reboot_requested": true,
		"abortable": false, "argsinfo": {"settings": {"description": "", "required": true}}}
]`

// Parity: F8 (list of steps)
func TestSteps(t *testing.T) {
	m := New(newRig(t, devices...).options)
	if m.Class() != "MellanoxDeviceHardwareManager" || m.Name() != m.Class() || m.Version() != "1" {
		t.Errorf("got %s, %s %s", m.Class(), m.Name(), m.Version())
	}
	var want any
	if err := json.Unmarshal([]byte(table), &want); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []hardware.Kind{hardware.Clean, hardware.Deploy, hardware.Service} {
		steps := m.Steps(kind, nil, nil)
		for i := range steps {
			for name, info := range steps[i].ArgsInfo {
				if info.Description == "" {
					t.Errorf("%s: argument %s has no description", steps[i].Name, name)
				}
				info.Description = ""
				steps[i].ArgsInfo[name] = info
			}
		}
		text, err := json.Marshal(steps)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s steps (-want +got):\n%s", kind, diff)
		}
	}
}

// The manager supports machines with a network controller of the vendor. Bridges of the vendor, and virtual functions,
// are none.
//
// Parity: F8 (support)
func TestSupport(t *testing.T) {
	for i, device := range devices {
		want := hardware.None
		if i < 3 {
			want = hardware.Mainline
		}
		if got := New(newRig(t, device).options).Support(t.Context()); got != want {
			t.Errorf("%s: got level %d, want %d", device, got, want)
		}
	}
	if got := New(newRig(t).options).Support(t.Context()); got != hardware.None {
		t.Errorf("no PCI devices: got level %d, want %d", got, hardware.None)
	}
}

// noTools implements [ToolFinder].
type noTools struct{}

func (noTools) FindTools(context.Context, ...string) (Tools, error) {
	return nil, errors.New("programs mstflint: not in a manager root of this image")
}

// Without the tools, the steps fail with what to do, and nothing is fetched.
func TestWithoutTools(t *testing.T) {
	r := newRig(t, devices...)
	r.options.Tools = noTools{}
	for step, argument := range map[string]string{
		"update_nvidia_nic_firmware_image":    "{'images': [" + entry("http://h/f", "MT_1", "1.2.3", nil) + "]}",
		"update_nvidia_nic_firmware_settings": "{'settings': [{'deviceID': '101d', 'globalConfig': {'A': 1}}]}",
	} {
		_, err := r.run(t, step, argument)
		checkFault(t, err, "HardwareManagerConfigurationError", ""+
			"programs mstflint: not in a manager root of this image: add a userland with "+
			"Debian's packages mstflint, pciutils and procps by ironroot image --manager-root DIR")
	}
	if len(r.opened) > 0 {
		t.Errorf("got requests for %q, want none", r.opened)
	}
}
