package imaging

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// rootImage makes a small root file system with a UUID as an image.
func rootImage(t *testing.T, uuid string) string {
	t.Helper()
	testenv.Programs(t, "mke2fs")
	path := testenv.SparseFile(t, 16*mib)
	testenv.Run(t, "mke2fs", "-q", "-t", "ext4", "-U", uuid, "-L", "cloudimg", path)
	return path
}

const rootUUID = "0a1b2c3d-1111-4222-8333-444455556666"

// small returns a layout that fits on a disk of 256 MiB.
func small(change func(*PartitionInfo)) *PartitionInfo {
	p := &PartitionInfo{Root: 40 * mib, Swap: 5 * mib}
	change(p)
	return p
}

// patient is a number of checks whether a disk is free, 20 ms apart, that lasts for a minute; impatient is one for a
// disk that the test itself keeps in use.
const patient, impatient = 3000, 100

// layoutDisk makes a disk of 256 MiB and an Imager on a machine with only this disk, with a node of these
// capabilities.
func layoutDisk(t *testing.T, sector int, capabilities string) (string, *Imager) {
	t.Helper()
	const size = 256 * mib
	path := testenv.Loop(t, testenv.SparseFile(t, size), sector)
	cache := &node.Cache{}
	cache.Set(testNode(t, fmt.Sprintf(
		`{"uuid": "b77a8c26", "properties": {"capabilities": %q, "root_device": {"name": %q}}}`, capabilities, path)))
	return path, New(Options{
		Config: config.NewLive(&config.Config{
			PermittedImageFormats: []string{"raw", "gpt", "qcow2"}, ImageDownloadConnectionTimeout: 10 * time.Second,
			DiskUtils: config.DiskUtils{
				EFISystemPartitionSize: 64 * mib, BIOSBootPartitionSize: mib, PartitionDetectionAttempts: 30,
			},
			// Programs that parallel tests start inherit the open disk until they call exec.
			DiskPartitioner: config.DiskPartitioner{
				CheckDeviceInterval: 20 * time.Millisecond, CheckDeviceMaxRetries: patient,
			},
		}),
		Node: cache,
		Disks: disktest.Lister(func(context.Context) ([]block.Device, error) {
			return []block.Device{
				{Name: filepath.Base(path), Path: path, Type: "disk", Size: size, LogicalSector: int64(sector)},
			}, nil
		}),
	})
}

func partitionImage(t *testing.T, path, url, format string, p *PartitionInfo) ImageInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return ImageInfo{
		ID: "root.img", Source: source(url+"/root.img", format, sha256Digest(sumOf(t, path, 0, info.Size()))),
		StreamRaw: format == "raw", Partition: p,
	}
}

// tag returns a value that blkid prints for a device.
func tag(t *testing.T, device, name string) string {
	t.Helper()
	return strings.TrimSpace(testenv.Run(t, "sh", "-c", `PATH=$PATH:/usr/sbin; blkid -p -s "$1" -o value "$0" || true`,
		device, name))
}

// Disk in, prepare_image, disk out: table, file systems, config drive, the image's bytes, and the result for the
// conductor.
func TestPreparePartitionImage(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "parted", "blkid", "qemu-img")
	raw := rootImage(t, rootUUID)
	qcow := filepath.Join(t.TempDir(), "root.qcow2")
	testenv.Run(t, "qemu-img", "convert", "-O", "qcow2", "-c", raw, qcow)
	drive, driveBytes := configDrive(t)
	for _, tt := range []struct {
		name, capabilities string
		sector             int
		format             string
		drive              bool
		change             func(*PartitionInfo)
		want               []string // names of the protocol, in order
		flags              string   // as parted prints them
	}{
		{
			"bios msdos", "boot_mode:bios", 512, "raw", true, func(*PartitionInfo) {},
			[]string{"swap", "configdrive", "root"},
			"swap;;boot",
		},
		{
			"bios msdos, root only, qcow2", "boot_mode:bios", 512, "qcow2", false,
			func(p *PartitionInfo) { p.Swap = 0 },
			[]string{"root"},
			"boot",
		},
		{
			"bios gpt", "boot_mode:bios,disk_label:gpt", 512, "raw", true, func(*PartitionInfo) {},
			[]string{"BIOS Boot partition", "swap", "configdrive", "root"},
			"bios_grub;swap;;",
		},
		{
			"bios gpt, 4K disk", "boot_mode:bios,disk_label:gpt", 4096, "qcow2", true, func(*PartitionInfo) {},
			[]string{"BIOS Boot partition", "swap", "configdrive", "root"},
			"bios_grub;swap;;",
		},
		{
			"uefi", "boot_mode:uefi", 512, "raw", true,
			func(p *PartitionInfo) { p.Ephemeral, p.EphemeralFormat, p.BootMode = 30*mib, "ext4", "uefi" },
			[]string{"efi system partition", "ephemeral", "swap", "configdrive", "root"},
			"boot, esp;;swap;;",
		},
		{
			"uefi, 4K disk", "boot_mode:uefi", 4096, "qcow2", true,
			func(p *PartitionInfo) { p.Ephemeral, p.EphemeralFormat, p.BootMode = 30*mib, "ext4", "uefi" },
			[]string{"efi system partition", "ephemeral", "swap", "configdrive", "root"},
			"boot, esp;;swap;;",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk, i := layoutDisk(t, tt.sector, tt.capabilities)
			path := map[string]string{"raw": raw, "qcow2": qcow}[tt.format]
			text := ""
			if tt.drive {
				text = drive
			}
			p := small(tt.change)
			got, err := i.Prepare(t.Context(), partitionImage(t, path, serve(t, path).URL, tt.format, p), text)
			if err != nil {
				t.Fatal(err)
			}
			paths := map[string]string{}
			for n, name := range tt.want {
				paths[name] = block.PartitionPath(sysfs.Root{}, disk, n+1)
			}
			uuids := map[string]any{"root uuid": rootUUID, "efi system partition uuid": nil, "partitions": paths}
			want := "image (root.img) written to device " + disk + " root_uuid=" + rootUUID
			if esp := paths["efi system partition"]; esp != "" {
				uuids["efi system partition uuid"] = tag(t, esp, "UUID")
				want += " efi_system_partition_uuid=" + tag(t, esp, "UUID")
				if label, kind := tag(t, esp, "LABEL"), tag(t, esp, "TYPE"); label != "efi-part" || kind != "vfat" {
					t.Errorf("EFI system partition: got %s labelled %q, want vfat efi-part", kind, label)
				}
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if diff := cmp.Diff(uuids, i.PartitionUUIDs()); diff != "" {
				t.Errorf("partition uuids differ (-want +got):\n%s", diff)
			}
			var flags []string
			listing := strings.TrimSpace(testenv.Run(t, "parted", "-m", "-s", disk, "print"))
			for _, line := range strings.Split(listing, "\n")[2:] {
				fields := strings.Split(strings.TrimSuffix(line, ";"), ":")
				flags = append(flags, fields[len(fields)-1])
			}
			if got := strings.Join(flags, ";"); got != tt.flags {
				t.Errorf("flags: got %q, want %q", got, tt.flags)
			}
			if strings.Contains(tt.flags, "grub") || strings.Contains(tt.flags, "esp") {
				if out := testenv.Run(t, "sgdisk", "-v", disk); !strings.Contains(out, "No problems found") {
					t.Errorf("sgdisk finds problems:\n%s", out)
				}
			}
			if got, want := sumOf(t, paths["root"], 0, 16*mib), sumOf(t, raw, 0, 16*mib); got != want {
				t.Errorf("root: got SHA-256 %s, want %s", got, want)
			}
			swap := paths["swap"]
			if swap != "" && (tag(t, swap, "TYPE") != "swap" || tag(t, swap, "LABEL") != "swap1") {
				t.Errorf("swap: got type %q label %q", tag(t, swap, "TYPE"), tag(t, swap, "LABEL"))
			}
			if path := paths["ephemeral"]; path != "" &&
				(tag(t, path, "TYPE") != p.EphemeralFormat || tag(t, path, "LABEL") != "ephemeral0") {
				t.Errorf("ephemeral: got type %q label %q", tag(t, path, "TYPE"), tag(t, path, "LABEL"))
			}
			if path := paths["configdrive"]; path != "" {
				if tag(t, path, "LABEL") != "CONFIG-2" {
					t.Errorf("config drive: got the label %q", tag(t, path, "LABEL"))
				}
				if tt.sector == 512 && testenv.Run(t, "cat", path) != string(driveBytes) {
					t.Error("the config drive's partition does not hold it, byte for byte and as large as it")
				}
			}
		})
	}
}

// A repeated partition image is neither fetched nor written, except for the config drive; ESP, swap and the ephemeral
// file system keep their content. Streamed images, other layouts, and images on disks that have changed are written
// again.
//
// Parity: E2
func TestPartitionImageAgain(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "qemu-img", "wipefs", "blkid")
	raw := rootImage(t, rootUUID)
	qcow := filepath.Join(t.TempDir(), "root.qcow2")
	testenv.Run(t, "qemu-img", "convert", "-O", "qcow2", "-c", raw, qcow)
	drive, driveBytes := configDrive(t)
	disk, i := layoutDisk(t, 512, "boot_mode:uefi")
	servers := map[string]*server{"raw": serve(t, raw), "qcow2": serve(t, qcow)}
	paths := func() map[string]string { return i.PartitionUUIDs()["partitions"].(map[string]string) }
	const marked = "marked"
	made := map[string]string{} // UUIDs of file systems
	readRoot := func() string {
		return testenv.Run(t, "dd", "if="+paths()["root"], "bs=1", "skip=12000000", "count=6", "status=none")
	}
	writeRoot := func() {
		testenv.Run(t, "sh", "-c", `printf "$1" | dd of="$0" bs=1 seek=12000000 conv=notrunc,fsync status=none`,
			paths()["root"], marked)
	}
	for _, tt := range []struct {
		name    string
		format  string
		drive   string
		change  func(info *ImageInfo)
		between func()
		again   bool // written again
	}{
		{name: "first", again: true},
		{name: "the same"},
		{name: "the same, once more"},
		{name: "another boot mode", change: func(i *ImageInfo) { i.Partition.BootMode = "bios" }, again: true},
		{name: "other swap", change: func(i *ImageInfo) { i.Partition.Swap += 4 * mib }, again: true},
		{name: "swap as before", again: true},
		{name: "no config drive", drive: "none", again: true},
		{name: "a config drive as before", again: true},
		{name: "other id", change: func(i *ImageInfo) { i.ID = "other" }, again: true},
		{name: "id as before", again: true},
		{name: "root wiped", between: func() { testenv.Run(t, "wipefs", "-qa", paths()["root"]) }, again: true},
		{
			name:    "ESP wiped",
			between: func() { testenv.Run(t, "wipefs", "-qa", paths()["efi system partition"]) },
			again:   true,
		},
		{name: "partition added", between: func() { testenv.Run(t, "sgdisk", "-n", "0:-1M:0", disk) }, again: true},
		{name: "table erased", between: func() { testenv.Run(t, "sgdisk", "-Z", disk) }, again: true},
		{name: "not changed"},
		{name: "streamed", format: "raw", again: true},
		{name: "streamed again", format: "raw", again: true},
		{name: "not streamed", again: true},
	} {
		format := tt.format
		if format == "" {
			format = "qcow2"
		}
		path := map[string]string{"raw": raw, "qcow2": qcow}[format]
		info := partitionImage(t, path, servers[format].URL, format, small(func(p *PartitionInfo) {
			p.Ephemeral, p.EphemeralFormat, p.BootMode = 30*mib, "ext4", "uefi"
		}))
		if tt.change != nil {
			tt.change(&info)
		}
		if tt.between != nil {
			tt.between()
		}
		text := drive
		if tt.drive != "" {
			text = ""
		}
		downloads, before := servers[format].downloads.Load(), i.PartitionUUIDs()
		if _, err := i.Prepare(t.Context(), info, text); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := servers[format].downloads.Load() > downloads; got != tt.again {
			t.Errorf("%s: got fetched %v, want %v", tt.name, got, tt.again)
		}
		if diff := cmp.Diff(before, i.PartitionUUIDs()); (diff == "") == tt.again {
			t.Errorf("%s: partition UUIDs before and after differ by %q, want changed %v", tt.name, diff, tt.again)
		}
		if got := readRoot() == marked; got == tt.again {
			t.Errorf("%s: got root left as it was %v, want %v", tt.name, got, !tt.again)
		}
		for _, name := range []string{"ephemeral", "swap"} {
			if uuid := tag(t, paths()[name], "UUID"); (uuid == made[name]) == tt.again {
				t.Errorf("%s: %s: got UUID %s after %s, want changed %v", tt.name, name, uuid, made[name], tt.again)
			} else {
				made[name] = uuid
			}
		}
		if text != "" {
			if got := testenv.Run(t, "cat", paths()["configdrive"]); got != string(driveBytes) {
				t.Errorf("%s: got another config drive", tt.name)
			}
			testenv.Run(t, "wipefs", "-qa", paths()["configdrive"])
		}
		writeRoot()
	}
}

// A root partition or disk that is too small and an unsupported format are errors before the disk is changed.
func TestPartitionImageRefusals(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "qemu-img")
	raw := rootImage(t, rootUUID)
	qcow := filepath.Join(t.TempDir(), "root.qcow2")
	testenv.Run(t, "qemu-img", "convert", "-O", "qcow2", "-c", raw, qcow)
	for _, tt := range []struct {
		name, format string
		layout       *PartitionInfo
		kind, text   string
	}{
		{"raw too large", "raw", &PartitionInfo{Root: 15 * mib}, "InvalidCommandParamsError", "16 MB, root_mb is 15"},
		{
			"qcow2 too large", "qcow2", &PartitionInfo{Root: 15 * mib}, "InvalidCommandParamsError",
			"16 MB, root_mb is 15",
		},
		{"not the format it says", "vmdk", &PartitionInfo{Root: 15 * mib}, "InvalidImage", ""},
		{"disk too small", "raw", &PartitionInfo{Root: 256 * mib}, "DeploymentError", "has space up to byte"},
		{
			"unknown format", "raw", &PartitionInfo{Root: 16 * mib, Ephemeral: mib, EphemeralFormat: "minix"},
			"FileSystemNotSupported",
			"file system minix is not supported: make minix: file system cannot be made, use one of ",
		},
		{
			"nothing to preserve", "raw", &PartitionInfo{Root: 16 * mib, PreserveEphemeral: true}, "DeploymentError",
			"does not match for preserve_ephemeral, nothing was written: ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk, i := layoutDisk(t, 512, "boot_mode:bios")
			testenv.GPT(t, disk, "start=2048, size=5MiB")
			before := fingerprint(t, disk)
			path := map[string]string{"raw": raw, "qcow2": qcow, "vmdk": raw}[tt.format]
			_, err := i.Prepare(t.Context(), partitionImage(t, path, serve(t, path).URL, tt.format, tt.layout), "")
			if typeOf(err) != tt.kind || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %s (%v), want %s with %q", typeOf(err), err, tt.kind, tt.text)
			}
			if tt.kind == "InvalidCommandParamsError" && fault.From(err).Code != http.StatusBadRequest {
				t.Errorf("got code %d, want %d", fault.From(err).Code, http.StatusBadRequest)
			}
			if fingerprint(t, disk) != before {
				t.Error("the disk has changed")
			}
		})
	}
}

// An image of a format that cannot be written is refused before the disk is changed, as image of a disk or of a
// partition, even if the format is permitted.
//
// Parity: K7
func TestPrepareRefusesFormats(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "qemu-img")
	raw := rootImage(t, rootUUID)
	for _, tt := range []struct{ name, driver, options, format, text string }{
		{"vdi", "vdi", "static=off", "vdi", "convert it by `qemu-img convert -f vdi -O qcow2`"},
		{"dynamic vhd", "vpc", "subformat=dynamic", "vhd", "convert it by `qemu-img convert -f vpc -O qcow2`"},
		{"fixed vhd", "vpc", "subformat=fixed", "vhd", "ends with the footer of a fixed VHD: convert it by "},
		{"fixed vhd, not declared", "vpc", "subformat=fixed", "", "ends with the footer of a fixed VHD: "},
		{"vhdx", "vhdx", "subformat=dynamic", "vhdx", "convert it by `qemu-img convert -f vhdx -O qcow2`"},
		{"vmdk", "vmdk", "subformat=streamOptimized", "vmdk", "convert it by `qemu-img convert -f vmdk -O qcow2`"},
		{"descriptor", "vmdk", "subformat=monolithicFlat", "vmdk", "vmdk image: it consists of a descriptor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "root")
			testenv.Run(t, "qemu-img", "convert", "-f", "raw", "-O", tt.driver, "-o", tt.options, raw, file)
			for _, layout := range []*PartitionInfo{nil, {Root: 64 * mib}} {
				disk, i := layoutDisk(t, 512, "boot_mode:bios")
				i.o.Config.Update(func(c *config.Config) {
					c.PermittedImageFormats = []string{"raw", "gpt", "vdi", "vhd", "vhdx", "vmdk"}
				})
				testenv.GPT(t, disk, "start=2048, size=5MiB")
				before := fingerprint(t, disk)
				info := partitionImage(t, file, serve(t, file).URL, tt.format, layout)
				_, err := i.Prepare(t.Context(), info, "")
				if typeOf(err) != "InvalidImage" || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("layout %+v: got %s (%v), want InvalidImage with %q", layout, typeOf(err), err, tt.text)
				}
				if fingerprint(t, disk) != before {
					t.Errorf("layout %+v: the disk has changed", layout)
				}
			}
		})
	}
}

// A disk without a partition table has no layout to preserve.
func TestPreserveEphemeralWithoutTable(t *testing.T) {
	disk, i := layoutDisk(t, 512, "boot_mode:bios")
	raw := rootImage(t, rootUUID)
	before := fingerprint(t, disk)
	layout := &PartitionInfo{Root: 16 * mib, PreserveEphemeral: true}
	_, err := i.Prepare(t.Context(), partitionImage(t, raw, serve(t, raw).URL, "raw", layout), "")
	want := "read layout for preserve_ephemeral, nothing was written: partition table of " + disk + ": "
	if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), want) {
		t.Errorf("got %s (%v), want a DeploymentError with %q", typeOf(err), err, want)
	}
	if fingerprint(t, disk) != before {
		t.Error("the disk has changed")
	}
}

// A rebuild that preserves the ephemeral partition does not write it, even if root has grown or the image is a new
// one. If the layout differs, nothing is written.
func TestPreserveEphemeral(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "parted")
	for _, capabilities := range []string{"boot_mode:bios", "boot_mode:bios,disk_label:gpt"} {
		t.Run(capabilities, func(t *testing.T) {
			disk, i := layoutDisk(t, 512, capabilities)
			raw := rootImage(t, rootUUID)
			drive, _ := configDrive(t)
			layout := PartitionInfo{Root: 40 * mib, Swap: 5 * mib, Ephemeral: 30 * mib, EphemeralFormat: "ext4"}
			first := layout
			image := partitionImage(t, raw, serve(t, raw).URL, "raw", &first)
			if _, err := i.Prepare(t.Context(), image, drive); err != nil {
				t.Fatal(err)
			}
			table, err := partition.Read(t.Context(), disk)
			if err != nil {
				t.Fatal(err)
			}
			ephemeral := i.PartitionUUIDs()["partitions"].(map[string]string)["ephemeral"]
			fillNoise(t, ephemeral)
			kept := sumOf(t, ephemeral, 0, 30*mib)
			last := len(table.Partitions)
			testenv.Run(t, "parted", "-s", disk, "resizepart", fmt.Sprint(last), "200MiB")

			const otherUUID = "ffffffff-1111-4222-8333-444455556666"
			other := rootImage(t, otherUUID)
			again := layout
			again.PreserveEphemeral = true
			text, err := i.Prepare(t.Context(), partitionImage(t, other, serve(t, other).URL, "raw", &again), drive)
			if err != nil || !strings.HasSuffix(text, "root_uuid="+otherUUID) {
				t.Fatalf("got %q and %v, want the new root's UUID", text, err)
			}
			if sumOf(t, ephemeral, 0, 30*mib) != kept {
				t.Error("the ephemeral partition has changed")
			}
			got := i.PartitionUUIDs()["partitions"].(map[string]string)["root"]
			if sumOf(t, got, 0, 16*mib) != sumOf(t, other, 0, 16*mib) {
				t.Error("root does not hold the new image")
			}

			before := fingerprint(t, disk)
			again.Ephemeral = 31 * mib
			_, err = i.Prepare(t.Context(), partitionImage(t, raw, serve(t, raw).URL, "raw", &again), drive)
			if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), "(ephemeral): got 31457280 bytes") {
				t.Errorf("got %v, want a DeploymentError with the sizes", err)
			}
			if fingerprint(t, disk) != before {
				t.Error("the disk has changed")
			}
		})
	}
}

func fillNoise(t *testing.T, device string) {
	t.Helper()
	testenv.Run(t, "dd", "if=/dev/urandom", "of="+device, "bs=1M", "count=30", "oflag=direct", "status=none")
}

// linkedSystem returns the running machine, but booted by UEFI.
func linkedSystem(t *testing.T) sysfs.Root {
	t.Helper()
	sys := sysfs.Root{Path: t.TempDir()}
	if err := os.MkdirAll(sys.Sys("firmware/efi/efivars"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sys/block", "sys/class", "dev", "proc"} {
		if err := os.Symlink("/"+name, filepath.Join(sys.Path, name)); err != nil {
			t.Fatal(err)
		}
	}
	return sys
}

// A partition image without loaders does not boot by UEFI: the fault names the directory for loaders.
func TestPartitionImageWithoutLoaders(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	raw := rootImage(t, rootUUID)
	disk, i := layoutDisk(t, 512, "boot_mode:uefi")
	i.o.System = linkedSystem(t)
	if _, err := i.Prepare(t.Context(),
		partitionImage(t, raw, serve(t, raw).URL, "raw", small(func(*PartitionInfo) {})), ""); err != nil {
		t.Fatal(err)
	}
	uuids := i.PartitionUUIDs()
	err := i.InstallBootloader(t.Context(), Bootloader{
		RootUUID: uuids["root uuid"].(string), EFISystemPartUUID: uuids["efi system partition uuid"].(string),
		TargetBootMode: "uefi",
	})
	if typeOf(err) != "InvalidImage" || !strings.Contains(err.Error(), "below /boot/efi/EFI of its root") {
		t.Errorf("%s: got %v, want an InvalidImage that says where loaders are looked for", disk, err)
	}
}
