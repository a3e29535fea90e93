package block

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// tree is a sysfs: devices are directories below /sys/devices with symbolic links to them, as in the kernel's.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree {
	tr := tree{t, t.TempDir()}
	for _, dir := range []string{"sys/block", "sys/class/block", "dev"} {
		tr.mkdir(dir)
	}
	return tr
}

func (tr tree) system() sysfs.Root { return sysfs.Root{Path: tr.root} }

func (tr tree) mkdir(dir string) {
	tr.t.Helper()
	if err := os.MkdirAll(filepath.Join(tr.root, dir), 0o755); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) file(name, content string) {
	tr.t.Helper()
	tr.mkdir(filepath.Dir(name))
	if err := os.WriteFile(filepath.Join(tr.root, name), []byte(content), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) link(target, name string) {
	tr.t.Helper()
	tr.mkdir(filepath.Dir(name))
	if err := os.Symlink(filepath.Join(tr.root, target), filepath.Join(tr.root, name)); err != nil {
		tr.t.Fatal(err)
	}
}

// device adds a block device below a hardware device's directory; files are its attributes.
func (tr tree) device(name, hardware string, bytes int64, files map[string]string) {
	tr.t.Helper()
	dir := "sys/devices/virtual/block/" + name
	if hardware != "" {
		dir = "sys/devices/" + hardware + "/block/" + name
		tr.mkdir("sys/devices/" + hardware)
		tr.mkdir(dir)
		tr.link("sys/devices/"+hardware, dir+"/device")
	}
	tr.file(dir+"/size", itoa(bytes/512)+"\n")
	tr.file(dir+"/ro", "0\n")
	tr.file(dir+"/removable", "0\n")
	tr.file(dir+"/queue/rotational", "1\n")
	tr.file(dir+"/queue/logical_block_size", "512\n")
	tr.file(dir+"/queue/physical_block_size", "4096\n")
	for file, content := range files {
		tr.file(dir+"/"+file, content)
	}
	tr.link(dir, "sys/block/"+name)
	tr.link(dir, "sys/class/block/"+name)
}

func itoa(n int64) string { data, _ := json.Marshal(n); return string(data) }

// page builds a page of vital product data.
func page(code byte, body []byte) string {
	header := []byte{0, code, 0, 0}
	binary.BigEndian.PutUint16(header[2:], uint16(len(body)))
	return string(append(header, body...))
}

func naa(id string) []byte { return append([]byte{0x61, 0x03, 0, byte(len(id))}, id...) }

// identifyPage is the ATA information page of a disk.
func identifyPage(model, serial string, wwn [4]uint16) string {
	data := make([]byte, 512)
	put := func(word int, text string, length int) {
		padded := text + strings.Repeat(" ", length-len(text))
		for i := 0; i < length; i += 2 {
			data[2*word+i], data[2*word+i+1] = padded[i+1], padded[i]
		}
	}
	put(10, strings.Repeat(" ", 20-len(serial))+serial, 20)
	put(27, model, 40)
	binary.LittleEndian.PutUint16(data[2*87:], 0x4100)
	for i, word := range wwn {
		binary.LittleEndian.PutUint16(data[2*(108+i):], word)
	}
	return page(0x89, append(make([]byte, 56), data...))
}

const gib = 1 << 30

// server returns a machine with one device of every kind.
func server(t *testing.T) tree {
	tr := newTree(t)
	sata := "pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0"
	tr.device("sda", sata, 480*gib, map[string]string{
		"device/model": "SuperFast SSD 48 ", "device/vendor": "ATA     ", "device/type": "0",
		"device/vpd_pg80": page(0x80, []byte("   S123")),
		"device/vpd_pg89": identifyPage("SuperFast SSD 480GB Model", "S123",
			[4]uint16{0x5000, 0xc500, 0xa1b2, 0xc3d4}),
		"queue/rotational": "0",
	})
	tr.file("sys/class/ata_port/ata3/port_no", "3\n")
	tr.file("sys/class/scsi_host/host2/proc_name", "ahci\n")
	sas := "pci0000:00/0000:00:02.0/0000:03:00.0/host0/port-0:1/end_device-0:1/target0:0:1/0:0:1:0"
	tr.device("sdb", sas, 4000*gib, map[string]string{
		"device/model": "BIG  SAS", "device/vendor": "ACME", "device/type": "0",
		"device/vpd_pg80": page(0x80, []byte("SERIAL 80")),
		"device/vpd_pg83": page(0x83, append(append([]byte{0x02, 0x01, 0, 4}, "ACME"...),
			naa("\x60\x00\xc5\x00\xa1\xb2\xc3\xd4\x11\x22\x33\x44\x55\x66\x77\x88")...)),
	})
	tr.file("sys/class/sas_device/end_device-0:1/sas_address", "0x5000c500a1b2c3d5\n")
	tr.file("sys/class/sas_device/end_device-0:1/phy_identifier", "2\n")
	tr.file("sys/class/sas_port/port-0:1/num_phys", "1\n")
	tr.mkdir("sys/class/sas_host/host0")
	usb := "pci0000:00/0000:00:14.0/usb1/1-4/1-4:1.0/host5/target5:0:0/5:0:0:0"
	tr.file("sys/devices/pci0000:00/0000:00:14.0/usb1/1-4/idVendor", "0781\n")
	tr.file("sys/devices/pci0000:00/0000:00:14.0/usb1/1-4/serial", "4C530001\n")
	tr.device("sdc", usb, 2*gib,
		map[string]string{"device/model": "Stick", "device/vendor": "Brand", "device/type": "0"})
	tr.device("sdd", "pci0000:00/0000:00:05.0/host7/target7:0:3/7:0:3:1", gib, map[string]string{
		"device/model": "Virtual", "device/type": "0", "device/wwid": "naa.5000000000000001\n",
	})
	tr.mkdir("sys/devices/pci0000:00/0000:00:05.0/host6")
	tr.device("nvme0n1", "pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0", 960*gib, map[string]string{
		"device/model": "FAST NVMe  ", "device/serial": "NV1  ", "wwid": "eui.0025385b71b00001\n",
		"nsid":             "1\n",
		"queue/rotational": "0", "queue/logical_block_size": "4096",
	})
	tr.device("nvme0c0n1", "pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0", gib, map[string]string{"hidden": "1\n"})
	tr.device("vda", "pci0000:00/0000:00:04.0/virtio1", 10*gib,
		map[string]string{"serial": "disk-one", "device/vendor": "0x1af4\n"})
	tr.device("sr0", "pci0000:00/0000:00:1f.2/ata1/host1/target1:0:0/1:0:0:0", gib,
		map[string]string{"device/type": "5\n"})
	tr.device("sde", "pci0000:00/0000:00:06.0/host8/target8:0:0/8:0:0:0", 0, nil)
	for _, name := range []string{"fd0", "ram0", "zram0", "loop0"} {
		tr.device(name, "", gib, nil)
	}
	tr.device("md0", "", gib, map[string]string{"md/level": "raid1\n"})
	tr.device("dm-0", "", gib, map[string]string{"dm/uuid": "mpath-3600c0ff000d1\n"})
	tr.device("dm-1", "", gib, map[string]string{"dm/uuid": "LVM-abc\n"})
	tr.device("dm-2", "", gib, map[string]string{"dm/uuid": "part1-mpath-3600c0ff000d1\n"})
	tr.device("sdf", "pci0000:00/0000:00:07.0/host9/target9:0:0/9:0:0:0", gib, nil)
	tr.file("sys/devices/virtual/block/dm-0/slaves/sdf/size", "")
	part := "sys/devices/" + sata + "/block/sda/sda2"
	tr.file(part+"/partition", "2\n")
	tr.file(part+"/size", "2048\n")
	tr.link(part, "sys/class/block/sda2")
	return tr
}

func TestDisks(t *testing.T) {
	devices, err := Disks(context.Background(), server(t).system())
	if err != nil {
		t.Fatal(err)
	}
	disk := func(name string, size int64) Device {
		return Device{
			Name: name, Path: "/dev/" + name, Type: "disk", Size: size, Rotational: true, LogicalSector: 512,
			PhysicalSector: 4096,
		}
	}
	mpath, array, nvme, sda := disk("dm-0", gib), disk("md0", gib), disk("nvme0n1", 960*gib), disk("sda", 480*gib)
	mpath.Type, mpath.Serials = "mpath", []string{"3600c0ff000d1"}
	mpath.WWN, mpath.WWNWithExtension, mpath.WWNs = "0x600c0ff000d1", "0x600c0ff000d1", []string{"0x600c0ff000d1"}
	mpath.WWID, mpath.ByPath = "3600c0ff000d1", "/dev/disk/by-path/pci-0000:00:07.0-scsi-0:0:0:0"
	mpath.ByPaths = []string{mpath.ByPath}
	path := disk("sdf", gib)
	path.HCTL, path.ByPath, path.ByPaths = "9:0:0:0", mpath.ByPath, mpath.ByPaths
	mpath.Components = []Device{path}
	array.Type = "raid1"
	nvme.Model, nvme.Serial, nvme.WWN, nvme.Transport = "FAST NVMe", "NV1", "eui.0025385b71b00001", "nvme"
	nvme.Serials, nvme.NSID = []string{"NV1", "FAST_NVMe_NV1", "FAST_NVMe_NV1_1"}, "1"
	nvme.WWNs = []string{"eui.0025385b71b00001"}
	nvme.Rotational, nvme.LogicalSector = false, 4096
	nvme.ByPath = "/dev/disk/by-path/pci-0000:01:00.0-nvme-1"
	nvme.ByPaths = []string{nvme.ByPath}
	sda.Model, sda.Vendor, sda.Serial = "SuperFast SSD 480GB Model", "ATA", "S123"
	sda.HCTL, sda.Transport = "2:0:0:0", "sata"
	sda.WWN, sda.WWNWithExtension, sda.WWNs = "0x5000c500a1b2c3d4", "0x5000c500a1b2c3d4", []string{"0x5000c500a1b2c3d4"}
	sda.WWID = "35000c500a1b2c3d4"
	sda.Serials, sda.Rotational = []string{"S123", "SuperFast_SSD_480GB_Model_S123"}, false
	sda.ByPath = "/dev/disk/by-path/pci-0000:00:1f.2-ata-3"
	sda.ByPaths = []string{sda.ByPath, sda.ByPath + ".0"}
	sdb, sdc, sdd, vda := disk("sdb", 4000*gib), disk("sdc", 2*gib), disk("sdd", gib), disk("vda", 10*gib)
	sdb.Model, sdb.Vendor, sdb.Serial, sdb.HCTL, sdb.Transport = "BIG SAS", "ACME", "SERIAL 80", "0:0:1:0", "sas"
	sdb.WWN = "0x6000c500a1b2c3d41122334455667788"
	sdb.WWNWithExtension, sdb.WWNVendorExtension = sdb.WWN, "0x1122334455667788"
	sdb.WWID = "36000c500a1b2c3d41122334455667788"
	sdb.WWNs = []string{sdb.WWN, "0x6000c500a1b2c3d4"}
	sdb.Serials = []string{"SERIAL 80", "6000c500a1b2c3d41122334455667788", "36000c500a1b2c3d41122334455667788"}
	sdb.ByPath = "/dev/disk/by-path/pci-0000:03:00.0-sas-phy2-lun-0"
	sdb.ByPaths = []string{sdb.ByPath}
	sdc.Model, sdc.Vendor, sdc.Serial, sdc.HCTL, sdc.Transport = "Stick", "Brand", "4C530001", "5:0:0:0", "usb"
	sdc.Serials, sdc.ByPath = []string{"4C530001"}, "/dev/disk/by-path/pci-0000:00:14.0-usb-0:4:1.0-scsi-0:0:0:0"
	sdc.ByPaths = []string{sdc.ByPath}
	sdd.Model, sdd.HCTL, sdd.Serial = "Virtual", "7:0:3:1", "5000000000000001"
	sdd.Serials = []string{"5000000000000001", "35000000000000001"}
	sdd.WWN, sdd.WWNWithExtension, sdd.WWNs = "0x5000000000000001", "0x5000000000000001", []string{"0x5000000000000001"}
	sdd.WWID = "35000000000000001"
	sdd.ByPath = "/dev/disk/by-path/pci-0000:00:05.0-scsi-1:0:3:1"
	sdd.ByPaths = []string{sdd.ByPath}
	vda.Serial, vda.Serials, vda.Vendor, vda.Transport = "disk-one", []string{"disk-one"}, "0x1af4", "virtio"
	vda.ByPath = "/dev/disk/by-path/pci-0000:00:04.0"
	vda.ByPaths = []string{vda.ByPath, "/dev/disk/by-path/virtio-pci-0000:00:04.0"}
	want := []Device{mpath, array, nvme, sda, sdb, sdc, sdd, vda}
	if diff := cmp.Diff(want, devices); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPartitions(t *testing.T) {
	parts, err := Partitions(context.Background(), server(t).system(), "/dev/sda")
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{{
		Name: "sda2", Path: "/dev/sda2", Type: "part", Number: 2, Size: 2048 * 512, LogicalSector: 512,
		PhysicalSector: 4096,
	}}
	if diff := cmp.Diff(want, parts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestVirtualMedia(t *testing.T) {
	tr := server(t)
	const usb = "pci0000:00/0000:00:14.0/usb1/1-%d/1-%d:1.0/host%d/target%d:0:0/%d:0:0:0"
	plug := func(name string, n int, size int64, files map[string]string) {
		tr.device(name, strings.ReplaceAll(usb, "%d", strconv.Itoa(n)), size, files)
	}
	removable, protected := map[string]string{"removable": "1"}, map[string]string{"ro": "1"}
	plug("sdg", 5, 4*gib, removable)
	plug("sdh", 6, 4*gib-512, removable)
	plug("sdi", 7, 100<<10, protected)
	tr.device("sdj", "pci0000:00/0000:00:1f.2/ata9/host9/target9:0:0/9:0:0:0", gib, removable)
	for name, want := range map[string]bool{
		"sr0": true, "sdh": true, "sdi": true, // an optical drive, a stick, a floppy that is write-protected
		"sdc": false,                                                             // a built-in USB disk
		"sda": false, "sda2": false, "sdg": false, "dm-0": false, "loop0": false, // a stick of 4 GiB is too large
		"sdj": false, // not on the USB
	} {
		if got, err := IsVirtualMedia(tr.system(), name); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
}

func TestPartitionPath(t *testing.T) {
	for disk, want := range map[string]string{
		"/dev/sda": "/dev/sda3", "/dev/nvme0n1": "/dev/nvme0n1p3", "/dev/md127": "/dev/md127p3", "": "3",
	} {
		if got := PartitionPath(sysfs.Root{}, disk, 3); got != want {
			t.Errorf("%s: got %s, want %s", disk, got, want)
		}
	}
}

// The devices of this machine are described as by lsblk.
func TestAgainstLsblk(t *testing.T) {
	testenv.Programs(t, "lsblk")
	loop := testenv.Loop(t, testenv.SparseFile(t, 1<<20), 4096)
	out := testenv.Run(t, "lsblk", "-b", "-d", "-J", "-o", "KNAME,TYPE,SIZE,ROTA,RO,RM,LOG-SEC,PHY-SEC,TRAN,HCTL")
	var list struct {
		Blockdevices []struct {
			Kname, Type, Tran, Hctl string
			Size                    int64
			Rota, Ro, Rm            bool
			LogSec                  int64 `json:"log-sec"`
			PhySec                  int64 `json:"phy-sec"`
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	seen := false
	for _, want := range list.Blockdevices {
		if want.Type == "loop" && "/dev/"+want.Kname != loop {
			continue // other tests come and go
		}
		seen = seen || "/dev/"+want.Kname == loop
		got, err := Find(sysfs.Root{}, want.Kname)
		if err != nil {
			t.Fatal(err)
		}
		expect := Device{
			Name: want.Kname, Path: "/dev/" + want.Kname, Type: want.Type, Size: want.Size, Rotational: want.Rota,
			ReadOnly: want.Ro, Removable: want.Rm, LogicalSector: want.LogSec, PhysicalSector: want.PhySec,
			HCTL: want.Hctl,
		}
		reduced := Device{
			Name: got.Name, Path: got.Path, Type: got.Type, Size: got.Size, Rotational: got.Rotational,
			ReadOnly: got.ReadOnly, Removable: got.Removable, LogicalSector: got.LogicalSector,
			PhysicalSector: got.PhysicalSector, HCTL: got.HCTL,
		}
		if diff := cmp.Diff(expect, reduced); diff != "" {
			t.Errorf("%s: -lsblk +ours:\n%s", want.Kname, diff)
		}
	}
	if !seen {
		t.Errorf("lsblk does not show %s", loop)
	}
}

// trigger makes the kernel send a uevent for a device.
func trigger(t *testing.T, device string) {
	t.Helper()
	if err := os.WriteFile("/sys/class/block/"+filepath.Base(device)+"/uevent", []byte("change"), 0o200); err != nil {
		t.Fatal(err)
	}
}

func TestWaitDisks(t *testing.T) {
	loop := testenv.Loop(t, testenv.SparseFile(t, 1<<20), 512)
	tr := newTree(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	looked := make(chan int, 100)
	result := make(chan []Device, 1)
	go func() {
		devices, err := WaitDisks(ctx, tr.system(), func(d []Device) bool { looked <- len(d); return len(d) == 1 })
		if err != nil {
			t.Error(err)
		}
		result <- devices
	}()
	if n := <-looked; n != 0 {
		t.Fatalf("got %d disks in an empty tree", n)
	}
	tr.device("vda", "pci0000:00/0000:00:04.0/virtio1", gib, nil)
	trigger(t, loop)
	if devices := <-result; len(devices) != 1 || devices[0].Name != "vda" {
		t.Errorf("got %+v", devices)
	}
}

func TestWaitDisksEnds(t *testing.T) {
	tr := newTree(t)
	tr.device("vda", "pci0000:00/0000:00:04.0/virtio1", gib, nil)
	ctx, cancel := context.WithCancel(context.Background())
	devices, err := WaitDisks(ctx, tr.system(), func([]Device) bool { cancel(); return false })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if len(devices) != 1 {
		t.Errorf("got %d devices, want the last list", len(devices))
	}
}

func TestWaitPartition(t *testing.T) {
	loop := testenv.Loop(t, testenv.SparseFile(t, 4<<20), 512)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := make(chan string, 1)
	go func() {
		got, err := WaitPartition(ctx, sysfs.Root{}, loop, 7)
		if err != nil {
			t.Error(err)
		}
		path <- got
	}()
	if err := AddPartition(loop, 7, 1<<20, 1<<20); err != nil {
		t.Fatal(err)
	}
	if got := <-path; got != loop+"p7" {
		t.Errorf("got %q, want %q", got, loop+"p7")
	}
	short, end := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer end()
	if _, err := WaitPartition(short, sysfs.Root{}, loop, 8); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a deadline", err)
	}
	cause := errors.New("no device node in the time of an option")
	limited, stop := context.WithTimeoutCause(context.Background(), 10*time.Millisecond, cause)
	defer stop()
	if _, err := WaitPartition(limited, sysfs.Root{}, loop, 8); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause of the deadline, %v", err, cause)
	}
}

func TestFlushAndRescan(t *testing.T) {
	loop := testenv.Loop(t, testenv.SparseFile(t, 4<<20), 512)
	if err := Flush(context.Background(), loop); err != nil {
		t.Error(err)
	}
	if err := Rescan(context.Background(), loop); err != nil {
		t.Error(err)
	}
	if err := Rescan(context.Background(), "/dev/null"); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("got %v for a device without partitions", err)
	}
}

func TestProbe(t *testing.T) {
	testenv.Programs(t, "mkfs.ext4", "mkfs.vfat", "mkfs.xfs", "blkid")
	cases := map[string][]string{
		"ext4": {"mkfs.ext4", "-q", "-F", "-L", "root"}, "vfat": {"mkfs.vfat", "-n", "EFI-PART"},
		"xfs": {"mkfs.xfs", "-q", "-L", "data"},
	}
	judged := func(kind, image string) {
		t.Helper()
		got, err := Probe(context.Background(), image)
		if err != nil {
			t.Fatal(err)
		}
		value := func(tag string) string {
			return strings.TrimSpace(testenv.Run(t, "blkid", "-p", "-o", "value", "-s", tag, image))
		}
		want := Filesystem{Type: kind, Label: value("LABEL"), UUID: value("UUID")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-blkid +ours:\n%s", diff)
		}
	}
	for kind, command := range cases {
		image := testenv.SparseFile(t, 320<<20)
		testenv.Run(t, command[0], append(command[1:], image)...)
		judged(kind, image)
	}
	// Members of arrays with the superblocks 1.1, 1.2 and 1.0.
	const size = 2 << 20 // blkid looks for no arrays on what might be a floppy
	for at, name := range map[int64]string{
		0: "root", 4096: "host:root", size - 8192: "host:a name that fills its field",
	} {
		image, data := testenv.SparseFile(t, size), make([]byte, size)
		copy(data[at:], testenv.RAID{Name: name, Level: 1, Size: size}.Superblock(at))
		if err := os.WriteFile(image, data, 0o600); err != nil {
			t.Fatal(err)
		}
		judged("linux_raid_member", image)
	}
	for _, size := range []int64{0, 3, 1024, 1 << 20} {
		if got, err := Probe(context.Background(), testenv.SparseFile(t, size)); err != nil || got != (Filesystem{}) {
			t.Errorf("%d empty bytes: got %+v, %v", size, got, err)
		}
	}
}

// Only the given range counts. A superblock of an array does not hide a file system.
func TestSharedFileSystem(t *testing.T) {
	disk := make([]byte, 1<<20)
	copy(disk[4096+65536:], []byte{0x01, 0x16, 0x19, 0x70})
	for _, at := range []int{4096, 8192, 600<<10 + 4096} {
		copy(disk[at:], []byte{0xfc, 0x4e, 0x2b, 0xa9})
	}
	for _, tt := range []struct {
		start, size int64
		want        string
	}{
		{4096, 1 << 19, "gfs2"},
		{4096, 65536, ""},
		{0, 1 << 19, ""},
		{600 << 10, 64 << 10, ""},
		{1 << 30, 64 << 10, ""}, // behind the end
	} {
		found, err := SharedFileSystem(io.NewSectionReader(bytes.NewReader(disk), tt.start, tt.size))
		if err != nil || found != tt.want {
			t.Errorf("%d bytes from %d: got %q and %v, want %q", tt.size, tt.start, found, err, tt.want)
		}
	}
	if found, err := SharedFileSystem(io.NewSectionReader(bytes.NewReader(disk), -1<<20, 1<<20)); err == nil {
		t.Errorf("before the start: got %+v, want an error", found)
	}
}

// A partition table is not a file system, regardless of its partitions; a hybrid image has both.
func TestProbeBesideGPT(t *testing.T) {
	testenv.Programs(t, "sgdisk", "genisoimage", "mkfs.ext4")
	t.Run("tiny partition", func(t *testing.T) {
		image := testenv.SparseFile(t, 32<<20)
		testenv.Run(t, "sgdisk", "-a", "1", "-n", "1:34:34", "-n", "2:2048:0", image)
		if got, err := Probe(context.Background(), image); err != nil || got != (Filesystem{}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		image := testenv.SparseFile(t, 32<<20)
		testenv.Run(t, "sgdisk", "-n", "1:2048:0", image)
		if err := os.Truncate(image, 16<<20); err != nil {
			t.Fatal(err)
		}
		if got, err := Probe(context.Background(), image); err != nil || got != (Filesystem{}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("file system before an old backup", func(t *testing.T) {
		image := testenv.SparseFile(t, 32<<20)
		testenv.Run(t, "sgdisk", "-n", "1:2048:0", image)
		testenv.Run(t, "mkfs.ext4", "-q", "-F", "-L", "root", image)
		if got, err := Probe(context.Background(), image); err != nil || got.Type != "ext4" || got.Label != "root" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("hybrid", func(t *testing.T) {
		image := filepath.Join(t.TempDir(), "iso")
		testenv.Run(t, "genisoimage", "-quiet", "-V", "VMEDIA_BOOT_ISO", "-o", image, testenv.Top(t)+"/docs")
		if err := os.Truncate(image, 16<<20); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "sgdisk", "-a", "1", "-n", "1:100:200", image)
		got, err := Probe(context.Background(), image)
		if err != nil || got.Type != "iso9660" || got.Label != "VMEDIA_BOOT_ISO" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// The serial numbers of a QEMU disk equal udev's and lsblk's: its name if it has no serial number, otherwise the name
// after the serial number.
func TestVendorSpecificName(t *testing.T) {
	name := append([]byte{0x02, 0x00, 0, 11}, "drive-scsi1"...)
	for _, c := range []struct {
		what, pg80, pg83 string
		want             []string
	}{
		{"name only", "", page(0x83, name), []string{"drive-scsi1", "0QEMU_QEMU_HARDDISK_drive-scsi1"}},
		{
			"serial number", page(0x80, []byte("SER1")), page(0x83, name),
			[]string{"SER1", "drive-scsi1", "0QEMU_QEMU_HARDDISK_drive-scsi1"},
		},
		{
			"world wide name", "", page(0x83, append(slices.Clone(name), naa("\x50\x00\xc5\x00\x11\x11\x00\x01")...)),
			[]string{"5000c50011110001", "35000c50011110001"},
		},
		{
			"better name of a kind that is not read", "",
			page(0x83, append([]byte{0x02, 0x01, 0, 4, 'A', 'C', 'M', 'E'}, name...)), nil,
		},
		{"name of a port", "", page(0x83, append([]byte{0x02, 0x10, 0, 11}, "drive-scsi1"...)), nil},
	} {
		tr := newTree(t)
		files := map[string]string{
			"vendor": "QEMU    \n", "model": "QEMU HARDDISK   \n", "vpd_pg83": c.pg83, "vpd_pg80": c.pg80,
		}
		for file, content := range files {
			tr.file("sys/class/block/sda/device/"+file, content)
		}
		tr.file("sys/class/block/sda/device/scsi_device/0:0:0:1/uevent", "")
		d := Device{Name: "sda", Type: "disk"}
		identify(tr.system(), &d)
		serial := ""
		if len(c.want) > 0 {
			serial = c.want[0]
		}
		if diff := cmp.Diff(c.want, d.Serials); diff != "" || d.Serial != serial {
			t.Errorf("%s: got the serial number %q, want %q; all differ (-want +got):\n%s",
				c.what, d.Serial, serial, diff)
		}
	}
}

// The digit and the order are multipathd's.
func TestVPDUnitID(t *testing.T) {
	d := func(codeSet, kind byte, identifier string) []byte {
		return append([]byte{codeSet, kind, 0, byte(len(identifier))}, identifier...)
	}
	list := func(d ...[]byte) []byte { return slices.Concat(d...) }
	const (
		eight   = "\x50\x00\xc5\x00\xa1\xb2\xc3\xd4"
		sixteen = "\x60\x0c\x0f\xf0\x00\xd1\xa2\xb3\xc4\xd5\xe6\xf7\x08\x09\x10\x11"
		extend  = "\x20\x0c\x0f\xf0\x00\xd1\xa2\xb3"
		local   = "\x30\x0c\x0f\xf0\x00\xd1\xa2\xb3"
		eui     = "\x00\x25\x38\x5b\x71\xb0\x00\x01"
		uuid    = "\x10\x00\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"
		t10     = "LIO-ORG disk:5e2a1b-77"
		iqn     = "iqn.2003-01.org.example:Storage,L,0x0001000000000000\x00\x00\x00\x00"
	)
	long := "iqn.2003-01.org.example:" + strings.Repeat("x", 180)
	for _, c := range []struct {
		name        string
		designators []byte
		want        string
	}{
		{
			"NAA 6 before all others", list(d(2, 1, t10), d(3, 8, iqn), d(1, 2, eui), d(1, 3, eight), d(1, 3, sixteen)),
			"3600c0ff000d1a2b3c4d5e6f708091011",
		},
		{"NAA 5", list(d(1, 3, extend), d(1, 3, eight)), "35000c500a1b2c3d4"},
		{"NAA 2", list(d(3, 8, iqn), d(1, 3, extend)), "3200c0ff000d1a2b3"},
		{"NAA locally assigned", d(1, 3, local), ""},
		{"NAA locally assigned beside EUI-64", list(d(1, 3, local), d(1, 2, eui)), "20025385b71b00001"},
		{
			"NAA without a number", list(d(1, 3, "\x50\x00\x00\x00\x00\x00\x00\x00"), d(3, 8, iqn)),
			"8iqn.2003-01.org.example:storage,l,0x0001000000000000",
		},
		{"EUI-64 without a number", d(1, 2, "\x00\x00\x00\x00\x00\x00\x00\x00"), ""},
		{"EUI-64 of erased memory", d(1, 2, "\xff\xff\xff\xff\xff\xff\xff\xff"), ""},
		{"SCSI name with NAA without a number", d(3, 8, "naa.5000000000000000"), ""},
		{
			"SCSI name of a target's unit", list(d(1, 2, eui), d(3, 8, iqn)),
			"8iqn.2003-01.org.example:storage,l,0x0001000000000000",
		},
		{"SCSI name, long", d(3, 8, long), fmt.Sprintf("8%x", sha256.Sum256([]byte(long)))},
		{"SCSI name with EUI-64", d(3, 8, "eui.0025385B71B00001"), "20025385b71b00001"},
		{
			"SCSI name with NAA", d(3, 8, "naa.600C0FF000D1A2B3C4D5E6F708091011\x00"),
			"3600c0ff000d1a2b3c4d5e6f708091011",
		},
		{"SCSI name with NAA, locally assigned", d(3, 8, "naa.300C0FF000D1A2B3"), ""},
		{"SCSI name of no known kind", d(3, 8, "uuid.300C0FF000D1A2B3"), ""},
		{"SCSI name with a space", d(3, 8, "iqn.2003-01.org example"), ""},
		{"UUID", list(d(2, 1, t10), d(1, 10, uuid)), "a0123456789abcdef0123456789abcdef"},
		{"UUID of another kind", d(1, 10, "\x20"+uuid[1:]), ""},
		{"EUI-64", list(d(2, 1, t10), d(1, 2, eui)), "20025385b71b00001"},
		{"EUI-64, the longest", list(d(1, 2, eui), d(1, 2, eui+eui)), "20025385b71b000010025385b71b00001"},
		{"T10", d(2, 1, t10), "1LIO-ORG_disk:5e2a1b-77"},
		{"T10 in binary, with a slash", d(1, 1, "ACME    a/b\x005e2a1b-77"), "1ACME_a_b_5e2a1b-77"},
		{"T10 without the serial number", d(2, 1, "IET     00010001"), ""},
		{"vendor specific", d(2, 0, "5e2a1b-77"), ""},
		{"of a port", d(1, 0x13, eight), ""},
		{"of a target", d(1, 0x23, eight), ""},
		{"NAA of the wrong length", d(1, 3, eight+"x"), ""},
		{"cut short", d(1, 3, eight)[:7], ""},
		{"none", nil, ""},
	} {
		if got := vpdUnitID([]byte(page(0x83, c.designators)), "5e2a1b-77"); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if got := vpdUnitID([]byte(page(0x83, d(2, 1, "IET     00010001"))), "1"); got != "" {
		t.Errorf("T10 with a short serial number: got %q, want none", got)
	}
}

func FuzzVPD(f *testing.F) {
	f.Add([]byte(page(0x80, []byte("serial"))))
	f.Add([]byte(page(0x83, naa("12345678"))))
	f.Add([]byte(identifyPage("model", "serial", [4]uint16{1, 2, 3, 4})))
	f.Fuzz(func(t *testing.T, data []byte) {
		if id := vpdNAA(data); id != "" && len(id) != 16 && len(id) != 32 {
			t.Errorf("got %q", id)
		}
		id := vpdUnitID(data, "serial")
		if len(id) == 1 || len(id) > maxUnitID || strings.ContainsAny(id, "/ \x00") ||
			id != "" && !strings.Contains("1238a", id[:1]) {
			t.Errorf("got %q", id)
		}
		_, _ = vpdSerial(data), vpdVendorSpecific(data)
		_, _ = parseATAInformation(data)
	})
}
