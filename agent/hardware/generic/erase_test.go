package generic

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/internal/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
)

const diskSize = 24 << 20

// loopDisk makes a disk with one partition of that type that holds a file system.
func loopDisk(t *testing.T, partitionType string) block.Device {
	t.Helper()
	testenv.Programs(t, "sgdisk", "mkfs.vfat")
	file := testenv.SparseFile(t, diskSize)
	testenv.Run(t, "sgdisk", "-n", "1:2048:+8M", "-t", "1:"+partitionType, file)
	testenv.Run(t, "mkfs.vfat", "--offset", "2048", file, "8192")
	path := testenv.Loop(t, file, 512)
	return block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: diskSize, Serial: path, Serials: []string{path}}
}

func onThisMachine(t *testing.T, disks ...block.Device) *Manager {
	t.Helper()
	m := newManager(t, disks...)
	m.o.System = block.System{}
	m.o.Config.Update(func(c *config.Config) { c.GuardSpecialFilesystems = true })
	return m
}

func content(t *testing.T, d block.Device) []byte {
	t.Helper()
	data, err := os.ReadFile(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func nodeWith(t *testing.T, fields string) *node.Node {
	t.Helper()
	n, err := node.FromJSON([]byte(`{"uuid": "u", ` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEraseMetadata(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	disk, protected := loopDisk(t, "8300"), loopDisk(t, "8300")
	before := content(t, protected)
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": "`+protected.Serial+`"}]}`)
	result, err := onThisMachine(t, disk, protected).eraseMetadata(t.Context(), hardware.Call{Node: n})
	if result != nil || err != nil {
		t.Fatalf("got %v and %v, want null", result, err)
	}
	found, err := block.Probe(t.Context(), disk.Path)
	if err != nil || found.Type != "" {
		t.Errorf("got signature %q and %v, want none", found.Type, err)
	}
	if data := content(t, disk); bytes.Contains(data[:4096], []byte("EFI PART")) || bytes.Contains(data[len(data)-4096:], []byte("EFI PART")) ||
		bytes.Contains(data, []byte("mkfs.fat")) {
		t.Error("the disk still has a partition table or a file system")
	}
	if !bytes.Equal(content(t, protected), before) {
		t.Error("the disk on the skip list was written to")
	}
}

func TestEraseDevices(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	disks := []block.Device{loopDisk(t, "8300"), loopDisk(t, "8300")}
	n := nodeWith(t, `"driver_internal_info": {"disk_erasure_concurrency": 4, "agent_erase_devices_iterations": 0}`)
	result, err := onThisMachine(t, disks...).eraseDevices(t.Context(), hardware.Call{Node: n})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(map[string]any{disks[0].Path: nil, disks[1].Path: nil})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("result differs (-want +got):\n%s", diff)
	}
	for _, d := range disks {
		if !bytes.Equal(content(t, d), make([]byte, diskSize)) {
			t.Errorf("%s still holds data", d.Path)
		}
	}
}

// Every step that erases leaves the disks of the skip list alone.
func TestEraseLeavesSkippedDisks(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	disk, protected := loopDisk(t, "8300"), loopDisk(t, "8300")
	before := content(t, protected)
	n := nodeWith(t, `"driver_internal_info": {"agent_erase_devices_iterations": 0},
		"properties": {"skip_block_devices": [{"serial": "`+protected.Serial+`"}, {"name": "/dev/not-there"}]}`)
	m := onThisMachine(t, disk, protected)
	for name, step := range map[string]hardware.StepFunc{
		"erase_devices": m.eraseDevices, "erase_devices_metadata": m.eraseMetadata, "erase_devices_express": m.eraseExpress,
	} {
		if _, err := step(t.Context(), hardware.Call{Node: n}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(content(t, protected), before) {
			t.Errorf("%s wrote to the disk on the skip list", name)
		}
	}
	if !bytes.Equal(content(t, disk), make([]byte, diskSize)) {
		t.Error("the other disk still holds data")
	}
}

// The guard looks at all disks before the first one is written.
func TestEraseRefusesSharedFileSystems(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	const vmfs = "AA31E02A-400F-11DB-9590-000C2911D1B8"
	disk, shared := loopDisk(t, "8300"), loopDisk(t, vmfs)
	before := content(t, disk)
	m := onThisMachine(t, disk, shared)
	for name, step := range map[string]hardware.StepFunc{
		"erase_devices": m.eraseDevices, "erase_devices_metadata": m.eraseMetadata, "erase_devices_express": m.eraseExpress,
	} {
		_, err := step(t.Context(), hardware.Call{})
		if typeOf(err) != "ProtectedDeviceError" || !strings.Contains(err.Error(), shared.Path) {
			t.Errorf("%s: got %v, want a ProtectedDeviceError that names %s", name, err, shared.Path)
		}
	}
	if !bytes.Equal(content(t, disk), before) {
		t.Error("a disk was written to before the guard had seen them all")
	}
	n := nodeWith(t, `"driver_internal_info": {"wipe_special_filesystems": false}`)
	if _, err := m.eraseExpress(t.Context(), hardware.Call{Node: n}); err != nil {
		t.Errorf("guard switched off: %v", err)
	}
}

// Every disk gets its turn, and the step fails with all that went wrong.
func TestEraseCollectsErrors(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	disk := loopDisk(t, "8300")
	gone := []block.Device{{Name: "gone1", Path: "/dev/gone1"}, {Name: "gone2", Path: "/dev/gone2"}}
	m := onThisMachine(t, gone[0], disk, gone[1])
	m.o.Config.Update(func(c *config.Config) { c.GuardSpecialFilesystems = false })
	_, err := m.eraseMetadata(t.Context(), hardware.Call{})
	if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), "gone1") || !strings.Contains(err.Error(), "gone2") {
		t.Errorf("got %v, want a BlockDeviceEraseError that names both", err)
	}
	if found, err := block.Probe(t.Context(), disk.Path); err != nil || found.Type != "" {
		t.Errorf("the disk between them: got signature %q and %v, want none", found.Type, err)
	}
}

func TestErasePstore(t *testing.T) {
	m := newManager(t)
	dump := m.o.System.Sys("fs/pstore/dmesg-erst-1")
	for path, text := range map[string]string{
		dump: "panic", m.o.System.Proc("mounts"): "pstore /sys/fs/pstore pstore rw 0 0\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if result, err := m.erasePstore(t.Context(), hardware.Call{}); result != nil || err != nil {
		t.Fatalf("got %v and %v, want null", result, err)
	}
	if _, err := os.Stat(dump); !os.IsNotExist(err) {
		t.Errorf("the dump is still there: %v", err)
	}
}

// A RAID member is left alone, the partition beside it is not.
func TestEraseLeavesRAIDMembers(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	disk := loopDisk(t, "8300")
	testenv.Run(t, "sgdisk", "-n", "2:0:+8M", "-t", "2:FD00", disk.Path)
	f, err := os.OpenFile(disk.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const start = (2048 + 16384) * 512
	if _, err := f.WriteAt(testenv.RAIDSuperblock("", 4096), start+4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := partition.Sync(t.Context(), block.System{}, disk.Path); err != nil {
		t.Fatal(err)
	}
	m := onThisMachine(t, disk)
	parts, err := m.o.System.Partitions(t.Context(), disk.Path)
	if err != nil || len(parts) != 2 {
		t.Fatalf("got partitions %v and %v, want two", parts, err)
	}
	if found, err := block.Probe(t.Context(), parts[1].Path); err != nil || found.Type != "linux_raid_member" {
		t.Fatalf("partition 2: got signature %q and %v, want linux_raid_member", found.Type, err)
	}
	before := content(t, disk)
	if _, err := m.eraseDevices(t.Context(), hardware.Call{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, disk), before) {
		t.Error("erase_devices wrote to a disk with a RAID member")
	}
	if _, err := m.eraseMetadata(t.Context(), hardware.Call{}); err != nil {
		t.Fatal(err)
	}
	after := content(t, disk)
	if !bytes.Equal(after[start:start+8<<20], before[start:start+8<<20]) {
		t.Error("erase_devices_metadata wrote to the RAID member")
	}
	if bytes.Contains(after[:start], []byte("mkfs.fat")) {
		t.Error("the file system beside the RAID member is still there")
	}
}
