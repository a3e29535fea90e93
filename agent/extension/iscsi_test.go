package extension

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ironroot/agent/command"
	"ironroot/internal/test/testenv"
	"ironroot/storage/iscsitarget"
)

const (
	targetName    = "iqn.2008-10.org.openstack:b77a8c26-f785-4c57-91f5-b6ad41a2e08d"
	oldTargetName = "iqn-b77a8c26-f785-4c57-91f5-b6ad41a2e08d" // of Ironic before 4.0
)

// exports records what is exported.
type exports struct {
	started  []iscsitarget.Export
	device   string
	startErr error
	stopErr  error
	stopped  int
	kept     error  // of the last Stop
	onStart  func() // before the device is exported
}

func (e *exports) Start(ctx context.Context, x iscsitarget.Export, before func(context.Context) error) error {
	if e.startErr != nil {
		return e.startErr
	}
	if err := before(ctx); err != nil {
		return err
	}
	if e.onStart != nil {
		e.onStart()
	}
	e.started, e.device = append(e.started, x), x.Device
	return nil
}

func (e *exports) Stop(context.Context) error {
	if e.device == "" {
		return e.kept
	}
	e.stopped++
	e.device, e.kept = "", e.stopErr
	return e.stopErr
}

func (e *exports) Forget() { e.kept = nil }

func (e *exports) Device() string { return e.device }

// diskFile adds a disk that is a file to the machine, and returns its path.
func (r *rig) diskFile() string {
	r.t.Helper()
	d := testDisk()
	d.Path = filepath.Join(r.t.TempDir(), "disk")
	if err := os.WriteFile(d.Path, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Truncate(d.Path, 64<<20); err != nil {
		r.t.Fatal(err)
	}
	r.disks = append(r.disks, d)
	return d.Path
}

// The root disk is exported at the address that the command was sent to, for the client's address.
//
// Parity: E14 (parameters)
func TestStartISCSITarget(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	for _, c := range []struct {
		name, params string
		port         uint16
		iqn          string // pattern
	}{
		{"Ironic", `{"iqn": "` + targetName + `", "portal_port": 3261, "wipe_disk_metadata": false}`, 3261, targetName},
		{
			"null", `{"iqn": null, "portal_port": null, "wipe_disk_metadata": null}`, 3260,
			`iqn\.2008-10\.org\.openstack:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`,
		},
		{"first protocol", `{"iqn": "` + targetName + `"}`, 3260, targetName},
		{"before 4.0", `{"iqn": "` + oldTargetName + `"}`, 3260, oldTargetName},
		{"nothing", `{}`, 3260, `iqn\.2008-10\.org\.openstack:[0-9a-f-]{36}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			disk := r.diskFile()
			a := r.run("iscsi.start_iscsi_target", json.RawMessage(c.params))
			var result map[string]string
			if a.Status != "SUCCEEDED" || json.Unmarshal(a.Result, &result) != nil || len(result) != 1 {
				t.Fatalf("got %+v %+v, want a result", a, a.Error)
			}
			name := result["iscsi_target_iqn"]
			if !regexp.MustCompile(`^` + c.iqn + `$`).MatchString(name) {
				t.Errorf("got iscsi_target_iqn %q, want %s", name, c.iqn)
			}
			want := iscsitarget.Export{Name: name, Device: disk, Portal: netip.AddrPortFrom(local, c.port), Peer: local}
			if len(r.targets.started) != 1 || r.targets.started[0] != want {
				t.Errorf("got exports %v, want %v", r.targets.started, want)
			}
		})
	}
}

// With wipe_disk_metadata, the disk has no signature when it is exported; without, it is not changed.
func TestStartISCSITargetWipes(t *testing.T) {
	testenv.Programs(t, "sgdisk", "wipefs")
	for _, wipe := range []bool{false, true} {
		r := newRig(t)
		disk := r.diskFile()
		testenv.Run(t, "sgdisk", "-n", "1:2048:+16M", disk)
		r.targets.onStart = func() {
			found := testenv.Run(t, "wipefs", "--no-act", "--noheadings", "--output", "TYPE", disk)
			if got := strings.Contains(found, "gpt"); got == wipe {
				t.Errorf("wipe_disk_metadata %v: got signatures %q", wipe, found)
			}
		}
		a := r.run("iscsi.start_iscsi_target", map[string]any{"wipe_disk_metadata": wipe})
		if a.Status != "SUCCEEDED" {
			t.Errorf("wipe_disk_metadata %v: got %+v %+v", wipe, a, a.Error)
		}
	}
}

// Parameters that cannot be used are rejected in the request.
func TestStartISCSITargetBadParameters(t *testing.T) {
	for _, c := range []struct{ params, want string }{
		{`{"iqn": ""}`, "parameter iqn"},
		{`{"iqn": "iqn-5"}`, "iqn-5"},
		{`{"iqn": "iqn.2008-10.org.openstack:a/b"}`, "a/b"},
		{`{"iqn": 5}`, "parameter iqn"},
		{`{"portal_port": 0}`, "parameter portal_port"},
		{`{"portal_port": 65536}`, "parameter portal_port"},
		{`{"portal_port": -1}`, "parameter portal_port"},
		{`{"portal_port": "3260"}`, "parameter portal_port"},
		{`{"wipe_disk_metadata": "yes"}`, "parameter wipe_disk_metadata"},
	} {
		r := newRig(t)
		r.diskFile()
		a := r.run("iscsi.start_iscsi_target", json.RawMessage(c.params))
		if a.status != http.StatusBadRequest || !strings.Contains(a.FaultString, c.want) || len(r.targets.started) > 0 {
			t.Errorf("%s: got %d %q, want 400 and %q", c.params, a.status, a.FaultString, c.want)
		}
		if _, err := find(t, iscsiTarget(r.deps), "start_iscsi_target").Run(t.Context(), command.Params{
			"iqn": json.RawMessage(`7`),
		}); err == nil {
			t.Error("got no error of the command itself")
		}
	}
}

func TestStartISCSITargetFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*rig)
		kind    string
		details string
	}{
		{"no disk", func(r *rig) { r.disks = nil }, "DeviceNotFound", "choose the root disk"},
		{"read-only", func(r *rig) { r.disks[0].ReadOnly = true }, "ISCSIError", "disk is read-only"},
		{"busy", func(r *rig) {
			r.targets.startErr = errors.New("export x: device or resource busy")
		}, "ISCSIError", "export x: device or resource busy"},
	} {
		r := newRig(t)
		r.diskFile()
		c.change(r)
		a := r.run("iscsi.start_iscsi_target", map[string]any{"iqn": targetName})
		if a.Status != "FAILED" || a.Error.Type != c.kind || !strings.Contains(a.Error.Details, c.details) {
			t.Errorf("%s: got %+v %+v, want %s with %q", c.name, a, a.Error, c.kind, c.details)
		}
	}
	r := newRig(t)
	r.diskFile()
	_, err := find(t, iscsiTarget(r.deps), "start_iscsi_target").Run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "address of the client is unknown") {
		t.Errorf("without a connection: got %v", err)
	}
}

// The export ends before the boot loader is installed. If that fails, the boot loader is not installed, whatever
// ignore_bootloader_failure says.
//
// Parity: E14 (end)
func TestInstallBootloaderEndsExport(t *testing.T) {
	for _, failure := range []error{nil, &iscsitarget.SessionError{Target: targetName, Initiators: []string{"iqn.a"}}} {
		r := newRig(t)
		r.diskFile()
		r.targets.stopErr = failure
		params := map[string]any{
			"root_uuid": "0x00000000", "target_boot_mode": "bios", "ignore_bootloader_failure": true,
		}
		if a := r.run("image.install_bootloader", params); a.Status != "SUCCEEDED" || r.targets.stopped != 0 {
			t.Fatalf("without a target: got %+v and %d ends, want success and none", a, r.targets.stopped)
		}
		if a := r.run("iscsi.start_iscsi_target", map[string]any{}); a.Status != "SUCCEEDED" {
			t.Fatalf("got %+v %+v", a, a.Error)
		}
		a := r.run("image.install_bootloader", params)
		if r.targets.stopped != 1 {
			t.Errorf("got %d ends of the export, want 1", r.targets.stopped)
		}
		switch {
		case failure == nil && a.Status != "SUCCEEDED":
			t.Errorf("got %+v %+v, want success", a, a.Error)
		case failure != nil && (a.Status != "FAILED" || a.Error.Type != "ISCSIError" ||
			!strings.Contains(a.Error.Details, "logged in: iqn.a")):
			t.Errorf("initiator logged in: got %+v %+v, want an ISCSIError", a, a.Error)
		}
		if again := r.run("image.install_bootloader", params); again.Status != a.Status {
			t.Errorf("once more: got %+v, want %s", again, a.Status)
		}
	}
}
