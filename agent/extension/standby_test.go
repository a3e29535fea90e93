package extension

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/command"
	"ironroot/agent/config"
	"ironroot/agent/power"
)

// Parity: K1, K2 (MD5 disabled)
func TestPrepareImageValidatesInTheRequest(t *testing.T) {
	const sum = "c5c3321ac2d78ee1f3f7bdca0d28feb0ade2c02ed3cfc0238f87dd982bb56553"
	for _, tt := range []struct {
		name   string
		change map[string]any
		field  string
	}{
		{"no id", map[string]any{"id": nil}, "'id'"},
		{"no urls", map[string]any{"urls": nil}, "'urls'"},
		{"urls is a string", map[string]any{"urls": "http://192.0.2.1/i"}, "'urls'"},
		{"urls is empty", map[string]any{"urls": []string{}}, "'urls'"},
		{"checksum is empty", map[string]any{"checksum": ""}, "'checksum'"},
		{"checksum is no text", map[string]any{"checksum": 5}, "'checksum'"},
		{"os_hash_algo alone", map[string]any{"os_hash_value": nil}, "'os_hash_value'"},
		{"os_hash_value alone", map[string]any{"os_hash_algo": nil}, "'os_hash_algo'"},
		{"os_hash_value is empty", map[string]any{"os_hash_value": ""}, "'os_hash_value'"},
		{"no checksum at all", map[string]any{"os_hash_algo": nil, "os_hash_value": nil}, "'checksum'"},
		{
			"MD5 alone, which is disabled",
			map[string]any{"os_hash_algo": nil, "os_hash_value": nil, "checksum": strings.Repeat("a", 32)},
			"'checksum' is an MD5 sum",
		},
		{"partition image without a size", map[string]any{"image_type": "partition"}, "'root_mb'"},
		{
			"partition image without a word on preserve_ephemeral",
			map[string]any{
				"image_type": "partition", "root_mb": 5, "swap_mb": 0, "ephemeral_mb": 1, "ephemeral_format": "ext4",
			},
			"'preserve_ephemeral'",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.deps.Config.Update(func(c *config.Config) { c.MD5Enabled = false })
			info := map[string]any{
				"id": "i", "urls": []string{"http://192.0.2.1/i"}, "os_hash_algo": "sha256", "os_hash_value": sum,
			}
			for key, value := range tt.change {
				info[key] = value
			}
			a := r.run("standby.prepare_image", map[string]any{"image_info": info})
			if a.status != http.StatusBadRequest || !strings.Contains(a.FaultString, tt.field) {
				t.Errorf("got %d %q, want 400 and a text that names %s", a.status, a.FaultString, tt.field)
			}
			if n := r.count(); n != 0 {
				t.Errorf("got %d records, want none", n)
			}
		})
	}
	r := newRig(t)
	if a := r.run("standby.prepare_image", map[string]any{}); a.status != http.StatusBadRequest || r.count() != 0 {
		t.Errorf("without image_info: got %d %q and %d records, want 400 and none", a.status, a.FaultString, r.count())
	}
}

func TestPrepareImageWithoutADisk(t *testing.T) {
	a := newRig(t).run("standby.prepare_image", map[string]any{"image_info": map[string]any{
		"id": "i", "urls": []string{"http://192.0.2.1/i"}, "checksum": strings.Repeat("a", 64),
	}})
	if a.Status != "FAILED" || a.Error.Type != "DeviceNotFound" || a.Error.Code != http.StatusNotFound {
		t.Errorf("got %+v, want DeviceNotFound", a.Error)
	}
}

// Commands of standby without parameters return what the protocol specifies.
func TestStandbyWithoutParameters(t *testing.T) {
	r := newRig(t)
	if a := r.run("standby.get_partition_uuids", map[string]any{}); a.Status != "SUCCEEDED" ||
		string(a.Result) != "{}" {
		t.Errorf("get_partition_uuids: got %s %s, want {}", a.Status, a.Result)
	}
	if a := r.run("standby.sync", map[string]any{}); a.Status != "SUCCEEDED" || string(a.Result) != "null" {
		t.Errorf("sync: got %s %s %+v, want null", a.Status, a.Result, a.Error)
	}
	for _, name := range []string{"run_image", "power_off"} {
		if a := r.run("standby."+name, map[string]any{}); a.Status != "FAILED" || a.Error.Type != "SystemRebootError" {
			t.Errorf("%s without --destructive: got %+v, want FAILED with a SystemRebootError", name, a)
		}
	}
}

// stopped is a machine that records how it was stopped.
type stopped struct {
	power.Refused
	reboots, powerOffs int
}

func (s *stopped) Reboot(context.Context) error { s.reboots++; return nil }
func (s *stopped) PowerOff(context.Context) error {
	s.powerOffs++
	return errors.New("the power stays on")
}

func TestStop(t *testing.T) {
	r := newRig(t)
	machine := &stopped{}
	r.deps.Power = machine
	for _, c := range standby(r.deps).Commands {
		switch c.Name {
		case "run_image":
			if result, err := c.Call(t.Context(), nil); result != nil || err != nil || machine.reboots != 1 {
				t.Errorf("run_image: got %v, %v and %d restarts, want null and one", result, err, machine.reboots)
			}
		case "power_off":
			if _, err := c.Call(t.Context(), nil); err == nil || machine.powerOffs != 1 {
				t.Errorf("power_off: got %v and %d attempts, want the error and one", err, machine.powerOffs)
			}
		}
	}
}

// The clock is set before the machine stops. If it must be set and cannot be, the machine does not stop.
func TestStopSetsTheClock(t *testing.T) {
	r := newRig(t)
	machine := &stopped{}
	r.deps.Power = machine
	for _, failure := range []error{nil, errors.New("no answer")} {
		before := -1
		r.deps.Stop = &stopping{setClocks: func() error {
			before = machine.reboots
			return failure
		}}
		extension := standby(r.deps)
		i := slices.IndexFunc(extension.Commands, func(c command.Command) bool { return c.Name == "run_image" })
		_, err := extension.Commands[i].Call(t.Context(), nil)
		if !errors.Is(err, failure) || before == -1 || (machine.reboots > before) != (failure == nil) {
			t.Errorf("clock error %v: got %v, %d restarts before the clock was set and %d after",
				failure, err, before, machine.reboots)
		}
	}
}

// Sessions of network disks end after the disks were synced and before the machine stops.
func TestStopDetaches(t *testing.T) {
	for _, name := range []string{"run_image", "power_off"} {
		r := newRig(t)
		machine := &stopped{}
		r.deps.Power = machine
		detached := 0
		r.deps.Stop = &stopping{detach: func(ctx context.Context) {
			if _, limited := ctx.Deadline(); !limited || machine.reboots+machine.powerOffs > 0 {
				t.Errorf("%s: detached with a limit %t, after %d stops", name, limited,
					machine.reboots+machine.powerOffs)
			}
			detached++
		}}
		extension := standby(r.deps)
		i := slices.IndexFunc(extension.Commands, func(c command.Command) bool { return c.Name == name })
		_, _ = extension.Commands[i].Call(t.Context(), nil) // the machine's error of TestStop
		if detached != 1 || machine.reboots+machine.powerOffs != 1 {
			t.Errorf("%s: detached %d times and stopped %d times, want once each", name, detached,
				machine.reboots+machine.powerOffs)
		}
	}
}

func TestInstallBootloader(t *testing.T) {
	r := newRig(t)
	r.disks = append(r.disks, testDisk())
	params := map[string]any{
		"root_uuid": "0x00000000", "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil, "target_boot_mode": "bios",
	}
	if a := r.run("image.install_bootloader", params); a.Status != "SUCCEEDED" || string(a.Result) != "null" {
		t.Errorf("whole disk: got %+v, want null", a)
	}
	params["root_uuid"] = "1d6e5e4c-6b04-4d1e-9d4b-0c5a2b8a7e11"
	a := r.run("image.install_bootloader", params)
	if a.Status != "FAILED" || a.Error.Type != "InvalidImage" ||
		!strings.Contains(a.Error.Details, "bootloaders disabled") {
		t.Errorf("partition image: got %+v, want InvalidImage", a.Error)
	}
	params["ignore_bootloader_failure"] = true
	if a := r.run("image.install_bootloader", params); a.Status != "SUCCEEDED" {
		t.Errorf("ignored: got %+v, want success", a)
	}
	delete(params, "root_uuid")
	if a := r.run("image.install_bootloader", params); a.Status != "FAILED" ||
		!strings.Contains(a.Error.Details, "'root_uuid'") {
		t.Errorf("without root_uuid: got %+v, want a failure that names it", a.Error)
	}
}
