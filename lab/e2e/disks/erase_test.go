//go:build linux

package disks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/selftest"
	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/storage/erase/evidence"
)

// crashGUID is LINUX_EFI_CRASH_GUID in its binary form.
var crashGUID = []byte{0x79, 0xfc, 0xc8, 0xcf, 0x2e, 0xbe, 0xdc, 0x4d, 0x97, 0xf0, 0x9f, 0x98, 0xbf, 0xe2, 0x98, 0xa0}

const crashVariable = "dump-type0-1-1-1700000000-C"

// TestErase erases a machine with special disks: read-only disks, virtual media, members of RAID arrays, SATA and SCSI
// disks without an erase of their own, an NVMe controller with two attached namespaces, a disk that fails. Its firmware
// stores the log of a crashed kernel. QEMU ignores what the machine discards: only zeros that were written are read
// back. Discards of disks whose own erase failed are enabled, but no disk of QEMU has one that fails.
func TestErase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := rig.File(t, "plain", rig.DiskSize, marker{})
	unknown := rig.File(t, "unknown", rig.DiskSize, marker{})
	created := rig.File(t, "created", rig.DiskSize, marker{})
	readOnly, failing := rig.File(t, "readonly", rig.DiskSize, marker{}), rig.File(t, "failing", rig.DiskSize, marker{})
	rig.Patch(t, unknown, 4096, testenv.RAID{Name: "tenant:data", Level: 1, Size: rig.DiskSize}.Superblock(4096))
	rig.Patch(t, created, 4096, testenv.RAID{Name: "host:root", Level: 1, Size: rig.DiskSize}.Superblock(4096))
	nvme, sata := rig.File(t, "nvme", rig.DiskSize, marker{}), rig.File(t, "sata", rig.DiskSize, marker{})
	scsi := rig.File(t, "scsi", rig.DiskSize, marker{})
	pair := []string{rig.File(t, "pair1", rig.DiskSize, marker{}), rig.File(t, "pair2", rig.DiskSize, marker{})}
	lost := rig.File(t, "lost", rig.DiskSize, marker{})
	floppy := rig.FATImage(t, 4*rig.MiB, "ir-vfd-dev", "")
	variables := rig.NewFlash(t, dir)
	variables.AddOf(t, crashGUID, crashVariable, []byte("Kernel panic of a tenant"))
	r := rig.Start(t, rig.Setup{
		Append: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ipa-progress-interval=3 ipa-lldp-timeout=1 " +
			"ipa-selftest=1 ipa-enable-discard-erase=1",
		Machine: qemu.Config{Dir: dir, Firmware: qemu.UEFI, Memory: 512 * rig.MiB, Disks: []qemu.Disk{
			{File: plain, Serial: "plain", NoDiscard: true},
			{File: unknown, Serial: "unknown", NoDiscard: true},
			{File: created, Serial: "created"},
			{File: readOnly, Serial: "readonly", ReadOnly: true},
			{File: failing, Serial: "failing", Faults: []qemu.Fault{{Type: "write", Offset: 20 * rig.MiB}}},
			{File: floppy, Serial: "floppy", Bus: qemu.USB},
			{File: nvme, Serial: "nvme", Bus: qemu.NVMe, NoDiscard: true},
			{File: sata, Serial: "sata", Bus: qemu.SATA, NoDiscard: true},
			{File: scsi, Serial: "scsi", Bus: qemu.SCSI, NoDiscard: true},
		}, Extra: append(namespaces("pair", pair...), "-drive",
			fmt.Sprintf("if=none,id=lost,format=raw,discard=ignore,throttling.bps-total=%d,file=%s", 4*rig.MiB, lost))},
	})
	r.WaitAgent(t)
	before := map[string]string{}
	for _, path := range []string{created, readOnly, floppy} {
		before[path] = rig.SumAll(t, path)
	}
	files := map[string]string{
		"plain": plain, "unknown": unknown, "nvme": nvme, "sata": sata, "scsi": scsi,
		"pair": pair[0], "pair-2": pair[1],
	}
	names := r.DiskNames(t,
		slices.Concat([]string{"created", "readonly", "failing", "floppy"}, slices.Collect(maps.Keys(files)))...)
	t.Run("self-test", func(t *testing.T) { previewErase(t, r, names) })
	t.Run("some fail", func(t *testing.T) { eraseSome(t, r, names, files) })
	t.Run("skipped", func(t *testing.T) { eraseSkips(t, r, names, files) })
	t.Run("evidence", func(t *testing.T) { checkEvidence(t, r) })
	t.Run("crash logs", func(t *testing.T) { erasePstore(t, r, variables) })
	t.Run("disk disappears", func(t *testing.T) { eraseLost(t, r, slices.Sorted(maps.Keys(names))) })
	for path, want := range before {
		if got := rig.SumAll(t, path); got != want {
			t.Errorf("%s: got SHA-256 %s, want %s as before", filepath.Base(path), got, want)
		}
	}
}

// namespaces returns the arguments of an NVMe controller with a namespace for each file. QEMU ignores discards.
func namespaces(serial string, files ...string) []string {
	args := []string{"-device", "nvme,id=" + serial + ",serial=" + serial}
	for i, path := range files {
		args = append(args,
			"-drive", fmt.Sprintf("if=none,id=%s%d,format=raw,discard=ignore,file=%s", serial, i+1, path),
			"-device", fmt.Sprintf("nvme-ns,drive=%[1]s%[2]d,bus=%[1]s,nsid=%[2]d", serial, i+1))
	}
	return args
}

// previewErase checks the report of the self-test: of each disk, it has what erase_devices does in the subtests that
// follow.
func previewErase(t *testing.T, r *rig.Rig, names map[string]string) {
	record := r.EraseStep(t, "selftest", nil)
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	var got struct {
		Result selftest.Report `json:"clean_result"`
	}
	if err := json.Unmarshal(record.Result, &got); err != nil {
		t.Fatal(err)
	}
	found := map[string][3]string{}
	for _, d := range got.Result.Disks {
		found[d.Path] = [3]string{d.Erase, d.Untouched, d.Error}
	}
	want := map[string][3]string{}
	for serial, result := range map[string][3]string{
		"plain": {"overwrite"}, "unknown": {"overwrite"}, "created": {"overwrite"}, "failing": {"overwrite"},
		"sata": {"overwrite"}, "scsi": {"overwrite"},
		"nvme": {"nvme-format-user"}, "pair": {"nvme-format-user"}, "pair-2": {"nvme-format-user"},
		"readonly": {"", "", "device is read-only"},
		"floppy":   {"", "virtual floppy with the agent's parameters"},
	} {
		want[names[serial]] = result
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("disks differ (-want +got):\n%s", diff)
	}
	report := got.Result
	if report.Boot.Mode != "uefi" || report.Boot.SecureBoot != "off" ||
		!slices.Contains(report.Boot.Consoles, "ttyS0") ||
		len(report.Links) != 1 || !report.Links[0].Carrier || report.Links[0].Driver == "" {
		t.Errorf("got boot %+v and links %+v", report.Boot, report.Links)
	}
	problem := "disk " + names["readonly"] + " cannot be erased: device is read-only"
	if !slices.Equal(report.Problems, []string{problem}) {
		t.Errorf("got problems %q, want %q", report.Problems, problem)
	}
	rig.WaitConsole(t, r.Machine, `self-test.*subject=problem text="disk `+names["readonly"])
	rig.WaitConsole(t, r.Machine, "self-test ended.*problems=1 file=selftest")
}

var createdArray = map[string]any{"logical_disks": []any{
	map[string]any{"controller": "software", "volume_name": "root", "raid_level": "1", "size_gb": "MAX"},
}}

// eraseSome checks that the error names the disks that must not or cannot be erased, and that all others are erased.
// files contains their files by serial number.
func eraseSome(t *testing.T, r *rig.Rig, names, files map[string]string) {
	from := len(r.Node.Progress())
	record := r.EraseStep(t, "erase_devices", map[string]any{"raid_config": createdArray})
	r.CheckProgress(t, from, "erase_devices: failed: erased: ")
	if record.Status != conductor.Failed || record.Error.Type != "BlockDeviceEraseError" {
		t.Fatalf("got %s (%v), want a BlockDeviceEraseError", record.Status, record.Error)
	}
	for _, want := range []string{
		names["created"] + ` is a member of raid1 array "host:root", which Ironic created`,
		names["readonly"] + ": device is read-only", "erase " + names["failing"] + ": ",
	} {
		if !strings.Contains(record.Error.Details, want) {
			t.Errorf("got error %s, want one with %q", record.Error.Details, want)
		}
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !rig.AllZero(data) {
			t.Errorf("%s holds data", filepath.Base(path))
		}
	}
}

// eraseSkips checks that the result and the log contain the skipped disks with the reasons, and that each step erases
// the other disks as it should. files contains the disks' files by serial number.
//
// Parity: P5, P6, U1 (disks without an erase of their own)
func eraseSkips(t *testing.T, r *rig.Rig, names, files map[string]string) {
	skip := map[string]any{
		"driver_internal_info": map[string]any{"agent_erase_skip_read_only": true, "agent_erase_devices_iterations": 0},
		"properties": map[string]any{"skip_block_devices": []any{
			map[string]any{"volume_name": "root"}, map[string]any{"serial": "failing"},
		}},
	}
	const unformatted = "erase_devices_express without Format"
	for _, step := range []string{"erase_devices", "erase_devices_express", "erase_devices_metadata", unformatted} {
		method := map[string]string{}
		for serial := range files {
			method[serial] = "metadata"
		}
		switch step {
		case "erase_devices":
			method = map[string]string{
				"plain": "overwrite", "unknown": "overwrite", "nvme": "nvme-format-user",
				"sata": "overwrite", // with a reason if it had not answered IDENTIFY DEVICE
				"scsi": "overwrite", "pair": "nvme-format-user", "pair-2": "nvme-format-user",
			}
		case "erase_devices_express": // skips read-only disks regardless of the node, as the following steps do
			skip["driver_internal_info"] = map[string]any{}
			for _, serial := range []string{"nvme", "pair", "pair-2"} {
				method[serial] = "nvme-format-user"
			}
		case unformatted:
			skip["driver_internal_info"] = map[string]any{"agent_enable_nvme_secure_erase": false}
		}
		for _, path := range files {
			rig.Patch(t, path, 0, rig.OldText)
			rig.Patch(t, path, rig.DiskSize/2, rig.OldText)
		}
		from := len(r.Node.Progress())
		name, _, _ := strings.Cut(step, " ")
		record := r.EraseStep(t, name, skip)
		if step == "erase_devices" {
			r.CheckProgress(t, from, fmt.Sprintf("erase_devices: done, %d disks erased, ", len(files)))
		}
		if record.Status != conductor.Succeeded {
			t.Fatalf("%s: got %s (%v), want %s", step, record.Status, record.Error, conductor.Succeeded)
		}
		type report struct{ Erased, Untouched map[string]string }
		var got struct {
			Result map[string]report `json:"clean_result"`
		}
		if err := json.Unmarshal(record.Result, &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]report{}
		for serial := range files {
			want[names[serial]] = report{Erased: map[string]string{names[serial]: method[serial]}}
		}
		for serial, reason := range map[string]string{
			"created":  `member of raid1 array "host:root", protected by skip_block_devices`,
			"readonly": "read-only",
			"failing":  "named by skip_block_devices",
			"floppy":   "virtual floppy with the agent's parameters",
		} {
			want[names[serial]] = report{Untouched: map[string]string{names[serial]: reason}}
		}
		if diff := cmp.Diff(want, got.Result); diff != "" {
			t.Errorf("%s: result differs (-want +got):\n%s", step, diff)
		}
		for serial, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := 0 // expected occurrences of the content
			if method[serial] == "metadata" {
				want = 1
			}
			if bytes.HasPrefix(data, rig.OldText) || bytes.Count(data, rig.OldText) != want {
				t.Errorf("%s of %s: got the content %d times, want it %d times in the middle",
					step, serial, bytes.Count(data, rig.OldText), want)
			}
		}
	}
	rig.WaitConsole(t, r.Machine, "device left untouched.*device="+names["readonly"]+" reason=read-only")
}

// checkEvidence checks the evidence in the log archive of the steps before.
func checkEvidence(t *testing.T, r *rig.Rig) {
	t.Helper()
	files := r.Logs(t)
	if !json.Valid([]byte(files["selftest.json"])) || !json.Valid([]byte(files["selftest-2.json"])) {
		t.Error("the reports of the self-test are not in the log archive")
	}
	for name, want := range map[string]struct {
		outcome   evidence.Outcome
		category  evidence.Category
		technique string
	}{
		"plain":     {evidence.Erased, evidence.Clear, "overwrite"},
		"unknown":   {evidence.Erased, evidence.Clear, "overwrite"},
		"nvme":      {evidence.Erased, evidence.Clear, "nvme-format-user"},
		"sata":      {evidence.Erased, evidence.Clear, "overwrite"},
		"scsi":      {evidence.Erased, evidence.Clear, "overwrite"},
		"pair":      {evidence.Erased, evidence.Clear, "nvme-format-user"},
		"pair-2":    {evidence.Erased, evidence.Clear, "nvme-format-user"},
		"created":   {evidence.NotErased, evidence.None, ""},
		"readonly":  {evidence.NotErased, evidence.None, ""},
		"failing":   {evidence.Failed, evidence.None, ""},
		"floppy":    {evidence.NotErased, evidence.None, ""},
		"plain-2":   {evidence.Erased, evidence.Clear, "overwrite"},
		"nvme-3":    {evidence.Erased, evidence.None, "nvme-format-user"}, // erase_devices_express reads nothing back
		"plain-4":   {evidence.Erased, evidence.None, "metadata"},
		"nvme-5":    {evidence.Erased, evidence.None, "metadata"}, // agent_enable_nvme_secure_erase is off
		"created-2": {evidence.NotErased, evidence.None, ""},
	} {
		e, err := evidence.Parse([]byte(files["erase/"+name+".json"]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := e.Record
		technique := ""
		if len(got.Targets) == 1 {
			technique = got.Targets[0].Technique
		}
		serial, _, _ := strings.Cut(name, "-")
		if got.Disk.Serial != serial || got.Outcome != want.outcome || got.Sanitization.Category != want.category ||
			technique != want.technique || got.Disk.Virtual == "" || e.Unsigned == "" {
			t.Errorf("%s: got %+v, unsigned %q, want %+v of a virtual disk", name, got, e.Unsigned, want)
		}
		if want.category == evidence.Clear && got.Targets[0].ReadBack.Read != rig.DiskSize {
			t.Errorf("%s: got %+v, want the whole disk", name, got.Targets[0].ReadBack)
		}
		const option = "discard_if_secure_erase_fails"
		if got.Requested.Operation == "erase_devices" && got.Requested.Options[option] != true {
			t.Errorf("%s: got options %v, want %s", name, got.Requested.Options, option)
		}
	}
}

// eraseLost plugs in the slow disk "lost" and pulls it out while it is overwritten. The step must fail and name it, and
// the agent must go on.
func eraseLost(t *testing.T, r *rig.Rig, others []string) {
	if _, err := r.Machine.QMP(t.Context(), "device_add", map[string]any{
		"driver": "scsi-hd", "id": "lost", "bus": "scsi.0", "drive": "lost", "serial": "lost",
	}); err != nil {
		t.Fatal(err)
	}
	name := r.DiskNames(t, "lost")["lost"]
	var skipped []any
	for _, serial := range others {
		skipped = append(skipped, map[string]any{"serial": strings.TrimSuffix(serial, "-2")})
	}
	from := r.Machine.Console().Mark()
	pull := func() error {
		begun := regexp.MustCompile(`erasing disk .*device=` + regexp.QuoteMeta(name) + ` `)
		if _, err := r.Machine.Console().FollowFrom(rig.Soon(t), from, begun); err != nil {
			return err
		}
		if _, err := r.Machine.QMP(t.Context(), "device_del", map[string]any{"id": "lost"}); err != nil {
			return err
		}
		_, err := r.Machine.WaitEvent(rig.Soon(t), "DEVICE_DELETED", 1)
		return err
	}
	pulled := make(chan error, 1)
	go func() { pulled <- pull() }()
	record := r.EraseStep(t, "erase_devices", map[string]any{
		"driver_internal_info": map[string]any{"agent_erase_skip_read_only": true},
		"properties":           map[string]any{"skip_block_devices": skipped},
	})
	if err := <-pulled; err != nil {
		t.Fatal(err)
	}
	if record.Status != conductor.Failed || record.Error.Type != "BlockDeviceEraseError" ||
		!strings.Contains(record.Error.Details, "erase "+name+": ") {
		t.Errorf("got %s (%v), want a BlockDeviceEraseError of %s", record.Status, record.Error, name)
	}
	if inventory := r.Succeed(t, "poll.get_hardware_info", nil); strings.Contains(inventory, `"serial":"lost"`) {
		t.Error("the inventory has the disk that is gone")
	}
}

// erasePstore checks that the step removes the log of the crashed kernel from the firmware.
//
// Parity: P8 (erase_pstore)
func erasePstore(t *testing.T, r *rig.Rig, f rig.Flash) {
	logs := func() (names []string) {
		for name := range f.Of(t, crashGUID) {
			names = append(names, name)
		}
		return names
	}
	if got := logs(); !slices.Equal(got, []string{crashVariable}) {
		t.Fatalf("before: got crash logs %q, want %q", got, crashVariable)
	}
	if record := r.EraseStep(t, "erase_pstore", nil); record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	if got := logs(); len(got) != 0 {
		t.Errorf("got crash logs %q, want none", got)
	}
}
