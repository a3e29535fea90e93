package imaging

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ironroot/agent/container"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/image/fetch"
	"ironroot/storage/iscsitarget"
	"ironroot/storage/sysfs"
)

// imsmSerialNumber is the serial number of the disk "imsm" of [testenv.FirmwareRAID].
const imsmSerialNumber = "SCSI0123456789012345678"

// firmwareDisk makes a disk with the metadata of a firmware RAID.
func firmwareDisk(t *testing.T, name, serial string) block.Device {
	t.Helper()
	content := testenv.FirmwareRAID(t, name)
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	path := testenv.Loop(t, file, 512)
	return block.Device{
		Name: filepath.Base(path), Path: path, Type: "disk", Size: int64(len(content)), Model: "member", Serial: serial,
		Serials: []string{serial}, WWN: "0x5000c50000000001", WWNs: []string{"0x5000c50000000001"},
		ByPath: "/dev/disk/by-path/pci-0000:00:1f.2-ata-1",
	}
}

// firmwareImager returns an Imager on a machine with the disk and another one, whose node has these root device hints,
// and its log.
func firmwareImager(t *testing.T, hints string, disks ...block.Device) (*Imager, *strings.Builder) {
	t.Helper()
	i := newImager(t, testNode(t, `{"uuid": "u", "properties": {"root_device": `+hints+`}}`), disks...)
	log := &strings.Builder{}
	i.o.Log = slog.New(slog.NewTextHandler(log, nil))
	return i, log
}

// noExport fails the test if a disk is exported.
type noExport struct{ t *testing.T }

func (n noExport) Start(_ context.Context, x iscsitarget.Export, _ func(context.Context) error) error {
	n.t.Errorf("got an export of %s, want none", x.Device)
	return nil
}

func (noExport) Stop(context.Context) error { return nil }

func (noExport) Forget() {}

func (noExport) Device() string { return "" }

// A disk that is an active member of an array of firmware is refused by each command that would write to it, before
// anything is downloaded or written. Inspection still reports it.
//
// Parity: J2 (disks of a firmware RAID)
func TestFirmwareRAIDRefused(t *testing.T) {
	testenv.Root(t)
	images := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("got a request for %s, want none", r.URL)
	}))
	t.Cleanup(images.Close)
	whole := ImageInfo{
		ID: "i", Source: source(images.URL, "raw", sha256Digest(sha256Digits)),
	}
	part := whole
	part.Partition = &PartitionInfo{Root: 10 * mib}
	for disk, format := range map[string]string{"imsm": "Intel RST or VROC (imsm)", "ddf": "SNIA DDF (ddf)"} {
		d := firmwareDisk(t, disk, imsmSerialNumber)
		i, _ := firmwareImager(t, `{"model": "member"}`, d)
		i.o.Targets = noExport{t}
		i.runtime = noContainers{machineRuntime{}, t}
		before := sumOf(t, d.Path, 0, d.Size)
		for name, write := range map[string]func() error{
			"whole-disk image": func() error { _, err := i.Prepare(t.Context(), whole, ""); return err },
			"partition image":  func() error { _, err := i.Prepare(t.Context(), part, ""); return err },
			"cached image":     func() error { _, err := i.Cache(t.Context(), whole, "", true); return err },
			"bootc": func() error {
				_, err := i.InstallContainer(t.Context(), BootableContainer{Source: "oci://example.org/i"})
				return err
			},
			"iSCSI": func() error {
				_, err := i.StartISCSITarget(t.Context(), ISCSITarget{WipeMetadata: true})
				return err
			},
			"boot loader": func() error { return i.InstallBootloader(t.Context(), Bootloader{}) },
		} {
			err := write()
			if typeOf(err) != "DeviceNotFound" {
				t.Errorf("%s, %s: got %v, want DeviceNotFound", disk, name, err)
				continue
			}
			for _, want := range []string{d.Path, format, "erase_devices_metadata", "root device hint"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %s: got %v, want it to name %q", disk, name, err, want)
				}
			}
		}
		if after := sumOf(t, d.Path, 0, d.Size); after != before {
			t.Errorf("%s: the disk was written to", disk)
		}
		if got, err := i.RootDisk(t.Context(), false); err != nil || got.Path != d.Path {
			t.Errorf("%s: inspection got %s and %v, want %s", disk, got.Path, err, d.Path)
		}
	}
}

// After erase_devices_metadata, the disk can be written to.
func TestFirmwareRAIDErased(t *testing.T) {
	testenv.Root(t)
	for _, disk := range []string{"imsm", "ddf"} {
		d := firmwareDisk(t, disk, imsmSerialNumber)
		i, log := firmwareImager(t, `{"model": "member"}`, d)
		if _, err := i.DeployDisk(t.Context(), false); typeOf(err) != "DeviceNotFound" {
			t.Errorf("%s: got %v, want DeviceNotFound", disk, err)
		}
		wait := erase.Wait{Interval: 20 * time.Millisecond, Retries: patient}
		if err := erase.Metadata(t.Context(), sysfs.Root{}, d.Path, wait); err != nil {
			t.Fatal(err)
		}
		got, err := i.DeployDisk(t.Context(), false)
		if err != nil || got.Path != d.Path || log.Len() > 0 {
			t.Errorf("%s: got %s, %v and the log %q, want %s and no log", disk, got.Path, err, log, d.Path)
		}
	}
}

// The name that Metal3 sets if an operator gives no hints is nobody's choice.
func TestFirmwareRAIDDefaultName(t *testing.T) {
	for name, want := range map[string]int{"/dev/sda": 1, "s== /dev/sda": 1, "/dev/sdb": 2, "s== /dev/vda": 2} {
		hints := map[string]any{"name": name, "serial": "S1"}
		if got := chosenHints(hints); len(got) != want || got["serial"] != "S1" || len(hints) != 2 {
			t.Errorf("%s: got hints %v of %v, want %d of 2", name, got, hints, want)
		}
	}
	if got := chosenHints(nil); len(got) != 0 {
		t.Errorf("no hints: got %v, want none", got)
	}
}

// A root device hint that names only this disk allows to write to it. A hint that another disk also matches does not,
// nor one that names no disk.
func TestFirmwareRAIDHints(t *testing.T) {
	testenv.Root(t)
	d := firmwareDisk(t, "imsm", imsmSerialNumber)
	other := disk("missing", 4*gib)
	twin := other
	twin.WWN, twin.WWNs = d.WWN, d.WWNs
	for _, c := range []struct {
		hints string
		other block.Device
		want  bool
	}{
		{`{"serial": "` + imsmSerialNumber + `"}`, other, true},
		{`{"serial": "` + strings.ToLower(imsmSerialNumber) + `", "model": "member"}`, other, true},
		{`{"wwn": "0x5000c50000000001"}`, other, true},
		{`{"wwn": "0x5000c50000000001"}`, twin, false},
		{`{"wwn": "0x5000c50000000001", "name": "` + d.Path + `"}`, twin, true},
		{`{"name": "` + d.Path + `"}`, other, true},
		{`{"by_path": "` + d.ByPath + `"}`, other, true},
		{`{"model": "member"}`, other, false},
		{`{"size": "< 1"}`, other, false},
		{`{"serial": "<in> SCSI"}`, other, false},
		{`{"name": "s!= /dev/missing"}`, other, false},
	} {
		i, log := firmwareImager(t, c.hints, d, c.other)
		got, err := i.DeployDisk(t.Context(), false)
		if !c.want {
			if typeOf(err) != "DeviceNotFound" || !strings.Contains(err.Error(), "erase_devices_metadata") {
				t.Errorf("%s: got %s and %v, want DeviceNotFound", c.hints, got.Path, err)
			}
			continue
		}
		if err != nil || got.Path != d.Path || !strings.Contains(log.String(), "root device hint names this disk") {
			t.Errorf("%s: got %s, %v and the log %q, want %s and a warning", c.hints, got.Path, err, log, d.Path)
		}
	}
	// The hints of the instance replace the node's.
	i, _ := firmwareImager(t, `{"serial": "`+imsmSerialNumber+`"}`, d, other)
	i.o.Node.Set(testNode(t, `{"uuid": "u", "instance_info": {"root_device": {"model": "member"}}, `+
		`"properties": {"root_device": {"serial": "`+imsmSerialNumber+`"}}}`))
	if got, err := i.DeployDisk(t.Context(), false); typeOf(err) != "DeviceNotFound" {
		t.Errorf("hints of the instance: got %s and %v, want DeviceNotFound", got.Path, err)
	}
}

// A disk without hints is refused, too: it was chosen by its size.
func TestFirmwareRAIDWithoutHints(t *testing.T) {
	testenv.Root(t)
	content := testenv.FirmwareRAID(t, "imsm")
	file := testenv.SparseFile(t, 4*gib)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // the disk is read through the page cache
	if _, err := f.WriteAt(content[len(content)-2048:], 4*gib-2048); err != nil {
		t.Fatal(err)
	}
	path := testenv.Loop(t, file, 512)
	d := block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: 4 * gib, Serial: imsmSerialNumber}
	i, _ := firmwareImager(t, `{}`, d, disk("missing", 5*gib))
	if got, err := i.DeployDisk(t.Context(), false); typeOf(err) != "DeviceNotFound" {
		t.Errorf("got %s and %v, want DeviceNotFound: no other disk is chosen instead", got.Path, err)
	}
	i.o.Node.Set(nil)
	if got, err := i.DeployDisk(t.Context(), false); typeOf(err) != "DeviceNotFound" {
		t.Errorf("without a node: got %s and %v, want DeviceNotFound", got.Path, err)
	}
}

// Metadata that do not list this disk as an active member are only logged, and so is a disk that cannot be read.
func TestFirmwareRAIDIgnored(t *testing.T) {
	testenv.Root(t)
	array := firmwareDisk(t, "ddf", "")
	array.Type = "raid1"
	missing := disk("missing", 4*gib)
	missing.Model, missing.Path = "member", filepath.Join(t.TempDir(), "missing")
	damaged := firmwareDisk(t, "imsm", imsmSerialNumber)
	f, err := os.OpenFile(damaged.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{9}, damaged.Size-1024+40); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		disk block.Device
		log  string // "" for none
	}{
		"another disk": {firmwareDisk(t, "imsm", "S1"), "serial number S1 is not among"},
		"no serial":    {firmwareDisk(t, "imsm", ""), "serial number of the disk is unknown"},
		"damaged":      {damaged, "got checksum"},
		"imsm spare":   {firmwareDisk(t, "imsm-spare", "SATA : 0123456789ab"), "as a spare"},
		"ddf spare":    {firmwareDisk(t, "ddf-spare", ""), "as a spare"},
		"array":        {array, ""},
		"not readable": {missing, "firmware RAID metadata not read"},
	} {
		i, log := firmwareImager(t, `{"model": "member"}`, c.disk)
		got, err := i.DeployDisk(t.Context(), false)
		if err != nil || got.Path != c.disk.Path {
			t.Errorf("%s: got %s and %v, want %s", name, got.Path, err, c.disk.Path)
		}
		if (c.log == "") != (log.Len() == 0) || !strings.Contains(log.String(), c.log) ||
			c.log != "" && !strings.Contains(log.String(), "level=WARN") ||
			c.log != "" && !strings.Contains(log.String(), "device="+c.disk.Path) {
			t.Errorf("%s: got the log %q, want a warning with %q", name, log, c.log)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	i, _ := firmwareImager(t, `{"model": "member"}`, damaged)
	i.o.Disks = disktest.List{damaged}
	if _, err := i.DeployDisk(ended, false); err != context.Canceled { //nolint:errorlint // not a fault
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}

// noContainers is a runtime that must resolve no image.
type noContainers struct {
	machineRuntime
	t *testing.T
}

func (c noContainers) resolve(context.Context, fetch.Options, string, string) (*container.Image, error) {
	c.t.Error("got a container image resolved, want none")
	return nil, os.ErrInvalid
}
