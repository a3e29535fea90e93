package cleaning

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/internal/test/disktest"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

func TestEraseWithoutDisks(t *testing.T) {
	m := newMachine(t)
	got, err := m.EraseDevices(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{}, got); diff != "" {
		t.Errorf("result differs (-want +got):\n%s", diff)
	}
}

// Parity: P3 (names of the fallback switch), U1 (option and override)
func TestEraseFlags(t *testing.T) {
	standard := eraseFlags{concurrency: 1, iterations: 1, zeroize: true, nvme: true, ata: true, guard: true}
	changed := func(change func(*eraseFlags)) eraseFlags {
		f := standard
		change(&f)
		return f
	}
	c := config.Config{GuardSpecialFilesystems: true}
	for _, tt := range []struct {
		name, node string
		want       eraseFlags
	}{
		{"nothing said", `{"uuid": "u"}`, standard},
		{
			"everything said",
			`{"uuid": "u", "driver_internal_info": {"disk_erasure_concurrency": 4, "agent_erase_devices_iterations": 3,
			  "agent_erase_devices_zeroize": false, "agent_enable_nvme_secure_erase": false,
			  "agent_enable_ata_secure_erase": "False", "agent_continue_if_secure_erase_failed": true,
			  "agent_erase_skip_read_only": "true", "wipe_special_filesystems": false}}`,
			eraseFlags{concurrency: 4, iterations: 3, continueOnFailure: true, skipReadOnly: true},
		},
		{
			"the older name", `{"uuid": "u", "driver_internal_info": {"agent_continue_if_ata_erase_failed": true}}`,
			changed(func(f *eraseFlags) { f.continueOnFailure = true }),
		},
		{
			"the newer name wins",
			`{"uuid": "u", "driver_internal_info": {"agent_continue_if_ata_erase_failed": true, ` +
				`"agent_continue_if_secure_erase_failed": false}}`,
			standard,
		},
		{
			"guard off as documented", `{"uuid": "u", "driver_info": {"wipe_special_filesystems": true}}`,
			changed(func(f *eraseFlags) { f.guard = false }),
		},
		{"guard stays on", `{"uuid": "u", "driver_info": {"wipe_special_filesystems": false}, ` +
			`"driver_internal_info": {"wipe_special_filesystems": true}}`, standard},
		{"nonsense", `{"uuid": "u", "driver_internal_info": {"disk_erasure_concurrency": -2, ` +
			`"agent_erase_devices_iterations": "many", "agent_erase_devices_zeroize": []}}`, standard},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, err := node.FromJSON([]byte(tt.node))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, eraseFlagsOf(n, &c), cmp.AllowUnexported(eraseFlags{})); diff != "" {
				t.Errorf("flags differ (-want +got):\n%s", diff)
			}
		})
	}
	if f := eraseFlagsOf(nil, &config.Config{}); f.guard {
		t.Error("guard: got on, want what the option says")
	}
	// The node overrides the option, in both directions.
	for _, option := range []bool{false, true} {
		c := config.Config{EnableDiscardErase: option}
		for value, want := range map[string]bool{`null`: option, `"maybe"`: option, `true`: true, `"False"`: false} {
			n := nodeWith(t, `"driver_internal_info": {"agent_enable_discard_erase": `+value+`}`)
			if f := eraseFlagsOf(n, &c); f.discard != want {
				t.Errorf("discard: option %t, node %s: got %t, want %t", option, value, f.discard, want)
			}
		}
	}
}

// A number of passes that is no number is an error before a disk is written.
func TestEraseIterations(t *testing.T) {
	for value, valid := range map[string]bool{
		`null`: true, `0`: true, `3`: true, `"3"`: true, `" 3 "`: true,
		`"many"`: false, `""`: false, `-1`: false, `"1.5"`: false, `true`: false, `[3]`: false,
	} {
		n, err := node.FromJSON([]byte(`{"uuid": "u", "driver_internal_info": ` +
			`{"agent_erase_devices_iterations": ` + value + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		m := newMachine(t)
		m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
			if !valid {
				t.Errorf("%s: disks are listed", value)
			}
			return nil, nil
		})
		_, err = m.EraseDevices(t.Context(), n)
		if valid && err != nil || !valid && typeOf(err) != "CleaningError" {
			t.Errorf("%s: got %v, want a CleaningError: %v", value, err, !valid)
		}
		_, err = m.PreviewErase(t.Context(), n)
		if valid && err != nil || !valid && typeOf(err) != "CleaningError" {
			t.Errorf("%s: preview: got %v, want a CleaningError: %v", value, err, !valid)
		}
	}
}

// The flags reach the erase of a disk.
//
// Parity: P3 (fallback switch)
func TestEraseOptions(t *testing.T) {
	wait := erase.Wait{Interval: time.Second, Retries: 2}
	for _, want := range []erase.Options{
		{Iterations: 3, Zeroize: true, NVMe: true, NVMeSanitize: true, ATA: true, SCSI: true, Wait: wait},
		{ContinueOnFailure: true},
		{Discard: true},
	} {
		f := eraseFlags{
			iterations: want.Iterations, zeroize: want.Zeroize, nvme: want.NVMe, ata: want.ATA,
			discard: want.Discard, continueOnFailure: want.ContinueOnFailure, wait: want.Wait,
		}
		if diff := cmp.Diff(want, f.options(), cmpopts.IgnoreUnexported(erase.Options{})); diff != "" {
			t.Errorf("options (-want +got):\n%s", diff)
		}
		const recorded = "discard_if_secure_erase_fails" // in the evidence, only if it is on
		if got := newResults(nil, fullErase, f).options[recorded]; (got == true) != want.Discard {
			t.Errorf("evidence: got %s %v, want %t", recorded, got, want.Discard)
		}
	}
}

func TestCollectedErrors(t *testing.T) {
	var c results
	if err := c.err(); err != nil {
		t.Errorf("nothing collected: got %v", err)
	}
	c.addErr(errors.New("/dev/sda: one"))
	c.addErr(errors.New("/dev/sdb: two"))
	err := c.err()
	if err == nil || !strings.Contains(err.Error(), "one") || !strings.Contains(err.Error(), "two") {
		t.Errorf("got %v, want both errors", err)
	}
}

func TestSkippedDisksAreNotErased(t *testing.T) {
	m := newMachine(t, block.Device{Name: "sda", Path: "/dev/sda"}, block.Device{Name: "sdb", Path: "/dev/sdb"})
	n, err := node.FromJSON([]byte(`{"uuid": "u", "properties": {"skip_block_devices": [{"name": "/dev/sda"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	run, err := m.startDiskRun(t.Context(), n, "disk not erased", fullErase)
	if err != nil {
		t.Fatal(err)
	}
	if got := paths(run.disks); !slices.Equal(got, []string{"/dev/sdb"}) {
		t.Errorf("got %v, want /dev/sdb alone", got)
	}
	if n, err = node.FromJSON([]byte(`{"uuid": "u", "properties": {"skip_block_devices": ` +
		`[{"colour": "blue"}]}}`)); err != nil {
		t.Fatal(err)
	}
	_, err = m.startDiskRun(t.Context(), n, "disk not erased", fullErase)
	if typeOf(err) != "" || !strings.Contains(errorText(err), "colour") {
		t.Errorf("unknown hint: got %v, want an error without a type that names it", err)
	}
}
