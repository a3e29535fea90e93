package imaging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/inventory/machinetest"
	"ironroot/agent/node"
	"ironroot/internal/test/disktest"
	"ironroot/storage/block"
	"ironroot/storage/image"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
	"ironroot/storage/sysfs"
)

const gib = 1 << 30

func testNode(t *testing.T, text string) *node.Node {
	t.Helper()
	n, err := node.FromJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// newImager returns an Imager on a machine with these disks and without firmware.
func newImager(t *testing.T, n *node.Node, disks ...block.Device) *Imager {
	t.Helper()
	cache := &node.Cache{}
	cache.Set(n)
	return New(Options{
		Config: config.NewLive(&config.Config{
			MD5Enabled: true, APIURL: "http://192.0.2.1:6385", PermittedImageFormats: []string{"raw", "gpt", "qcow2"},
		}), Node: cache,
		Disks:  disktest.List(disks),
		System: sysfs.Root{Path: t.TempDir()},
	})
}

func disk(name string, size int64) block.Device {
	return block.Device{
		Name: name, Path: "/dev/" + name, Type: "disk", Size: size, Serial: "S" + name, Serials: []string{"S" + name},
	}
}

// A compressed image may need a quarter of the available memory.
func TestUnpackMemory(t *testing.T) {
	i := newImager(t, testNode(t, `{"uuid": "u"}`))
	if got := i.imageOptions().UnpackMemory; got != 0 {
		t.Errorf("without meminfo: got %d bytes, want 0", got)
	}
	proc := i.o.System.Proc()
	if err := os.MkdirAll(proc, 0o700); err != nil {
		t.Fatal(err)
	}
	const text = "MemTotal:        4018356 kB\nMemFree:          100000 kB\nMemAvailable:    2097152 kB\n"
	if err := os.WriteFile(filepath.Join(proc, "meminfo"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := i.imageOptions().UnpackMemory; got != gib/2 {
		t.Errorf("got %d bytes, want %d", got, gib/2)
	}
}

func typeOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Type
	}
	return fmt.Sprintf("%T", err)
}

func TestImageFault(t *testing.T) {
	const url = "http://192.0.2.1/i"
	for _, tt := range []struct {
		err  error
		want string
		code int
	}{
		{&fetch.DownloadError{URL: url, Status: 503}, "ImageDownloadError", 500},
		{&fetch.DownloadError{URL: url, Err: errors.New("connection refused")}, "ImageDownloadError", 500},
		{&fetch.DownloadError{URL: url, Status: 404, Fatal: true}, "ImageDownloadFatalError", 500},
		{&fetch.TimeoutError{URL: url, Err: &fetch.DownloadError{URL: url}}, "ImageDownloadTimeoutError", 408},
		{&fetch.SlowError{URL: url, Rate: 0.02, Min: 1024}, "ImageDownloadTimeoutError", 408},
		{&checksum.MismatchError{URL: url, Algorithm: "sha256", Want: "aa", Got: "bb"}, "ImageChecksumError", 500},
		{&image.FormatError{Format: "vmdk", Reason: "Security: vmdk is not permitted"}, "InvalidImage", 500},
		{
			&device.WriteError{Device: "/dev/sda", Op: "write", Err: errors.New("input/output error")},
			"ImageWriteError", 500,
		},
		{&device.TooSmallError{Device: "/dev/sda", Size: 1, Need: 2}, "ImageWriteError", 500},
		{fault.REST("checksum cannot be determined"), "RESTError", 500},
		{errors.New("anything else"), "RESTError", 500},
	} {
		err := imageFault("inst.raw", "/dev/sda", fmt.Errorf("wrapped: %w", tt.err))
		var f *fault.Error
		if !errors.As(err, &f) || f.Type != tt.want || f.Code != tt.code {
			t.Errorf("%T: got %v, want %s with code %d", tt.err, err, tt.want, tt.code)
		}
	}
	if err := imageFault("i", "/dev/sda", context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	err := imageFault("inst.raw", "/dev/sda",
		&checksum.MismatchError{URL: url, Algorithm: "sha256", Want: "aa", Got: "bb"})
	for _, part := range []string{"inst.raw", url, "aa", "bb"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("checksum error %q does not name %s", err, part)
		}
	}
}

// Parity: J2
func TestRootDisk(t *testing.T) {
	disks := []block.Device{disk("sda", 500*gib), disk("sdb", 4*gib), disk("sdc", 4*gib), disk("sdd", 4*gib-1)}
	for _, tt := range []struct {
		name, node string
		want       string
	}{
		{"smallest of at least 4 GiB, then by name", `{"uuid": "u"}`, "/dev/sdb"},
		{"properties", `{"uuid": "u", "properties": {"root_device": {"serial": "Ssda"}}}`, "/dev/sda"},
		{
			"instance_info before properties",
			`{"uuid": "u", "instance_info": {"root_device": {"serial": "Ssdc"}}, ` +
				`"properties": {"root_device": {"serial": "Ssda"}}}`,
			"/dev/sdc",
		},
		{
			"an empty object is no hint",
			`{"uuid": "u", "instance_info": {"root_device": {}}, "properties": {"root_device": {"serial": "Ssda"}}}`,
			"/dev/sda",
		},
		{"size as a number", `{"uuid": "u", "properties": {"root_device": {"size": 500}}}`, "/dev/sda"},
		{
			"protected disks are not chosen",
			`{"uuid": "u", "properties": {"skip_block_devices": [{"name": "/dev/sdb"}]}}`, "/dev/sdc",
		},
		{"no match", `{"uuid": "u", "properties": {"root_device": {"serial": "none"}}}`, ""},
		{"unknown hint", `{"uuid": "u", "properties": {"root_device": {"colour": "blue"}}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := newImager(t, testNode(t, tt.node), disks...).RootDisk(t.Context(), false)
			if tt.want == "" {
				var f *fault.Error
				if !errors.As(err, &f) || f.Type != "DeviceNotFound" || f.Code != http.StatusNotFound {
					t.Fatalf("got %v and %v, want DeviceNotFound", got.Path, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Path != tt.want {
				t.Errorf("got %s, want %s", got.Path, tt.want)
			}
		})
	}
	none := testNode(t, `{"uuid": "u", "properties": {"root_device": {"serial": "Ssda"},
		"skip_block_devices": [{"name": "/dev/sda"}, {"name": "/dev/sdb"}]}}`)
	_, err := newImager(t, none, disks[:3]...).RootDisk(t.Context(), false)
	if want := `/dev/sdc has serial "Ssdc"; skip_block_devices protects /dev/sda, /dev/sdb`; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
	got, err := newImager(t, nil, disks...).RootDisk(t.Context(), true)
	if err != nil || got.Path != "/dev/sdb" {
		t.Errorf("without a node: got %s and %v, want /dev/sdb", got.Path, err)
	}
}

// raidTree makes a sysfs of arrays and their components, with partitions below their disks.
func raidTree(t *testing.T, sys sysfs.Root, arrays map[string][]string) {
	t.Helper()
	attribute := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for array, members := range arrays {
		attribute(sys.Sys("class/block", array, "size"), "12582912\n")
		attribute(sys.Sys("class/block", array, "md/level"), "raid1\n")
		for _, member := range members {
			// A link in the kernel's sysfs; only its name matters.
			attribute(sys.Sys("class/block", array, "slaves", member), "")
			real := sys.Sys("devices", member)
			if strings.HasSuffix(member, "1") {
				real = sys.Sys("devices", member[:3], member)
				attribute(filepath.Join(real, "partition"), "1\n")
			}
			attribute(filepath.Join(real, "size"), "2048\n")
			if err := os.Symlink(real, sys.Sys("class/block", member)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// lookingUp implements [NodeRefresher].
type lookingUp func() error

func (l lookingUp) Refresh(context.Context) error { return l() }

func TestRootDiskLooksTheNodeUpAgain(t *testing.T) {
	disks := []block.Device{disk("sda", 500*gib), disk("sdb", 4*gib)}
	hinted := testNode(t, `{"uuid": "u", "properties": {"root_device": {"serial": "Ssda"}}}`)
	i := newImager(t, testNode(t, `{"uuid": "u"}`), disks...)
	var log strings.Builder
	i.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	lookups := 0
	i.o.Ironic = lookingUp(func() error {
		lookups++
		i.o.Node.Set(hinted)
		return nil
	})
	for range 2 { // the second time the hints are known
		got, err := i.RootDisk(t.Context(), true)
		if err != nil || got.Path != "/dev/sda" {
			t.Errorf("got %s and %v, want the disk of the hints that were set since", got.Path, err)
		}
	}
	if lookups != 1 {
		t.Errorf("got %d lookups, want 1", lookups)
	}
	if log.Len() > 0 {
		t.Errorf("got the log %q, want none", log.String())
	}
	i = newImager(t, testNode(t, `{"uuid": "u"}`), disks...)
	i.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	i.o.Ironic = lookingUp(func() error { return errors.New("Ironic does not answer") })
	if got, err := i.RootDisk(t.Context(), true); err != nil || got.Path != "/dev/sdb" ||
		!strings.Contains(log.String(), "Ironic does not answer") {
		t.Errorf("failed lookup: got %s, %v and the log %q, want a warning and the disk of the node that is known",
			got.Path, err, log.String())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.RootDisk(ended, true); !errors.Is(err, context.Canceled) {
		t.Errorf("lookup given up: got %v, want %v", err, context.Canceled)
	}
	if _, err := i.RootDisk(t.Context(), false); err != nil {
		t.Errorf("without refresh: %v", err)
	}
	i.o.Config.Update(func(c *config.Config) { c.Standalone = true })
	if _, err := i.RootDisk(t.Context(), true); err != nil {
		t.Errorf("standalone, where there is nobody to ask: %v", err)
	}
}

// The error of choosing the root disk keeps its cause, and nothing is fetched or installed.
func TestRootDiskNotChosen(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name   string
		change func(*Imager)
		want   error
		kind   string
	}{
		{"disks not listed", func(i *Imager) {
			i.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) { return nil, broken })
		}, broken, "DeviceNotFound"},
		{"wait cancelled", func(i *Imager) {
			i.o.Hardware = fakeHardware{wait: func(*node.Node) error { return context.Canceled }}
		}, context.Canceled, "*errors.errorString"},
	} {
		i := newImager(t, nil, disk("sda", 8*gib))
		tt.change(i)
		check := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, tt.want) || typeOf(err) != tt.kind {
				t.Errorf("%s: %s: got %s (%v), want %s", tt.name, what, typeOf(err), err, tt.kind)
			}
		}
		_, err := i.RootDisk(t.Context(), false)
		check("RootDisk", err)
		check("InstallBootloader", i.InstallBootloader(t.Context(), Bootloader{}))
		_, err = i.Prepare(t.Context(), ImageInfo{
			ID: "i", Source: source("http://192.0.2.1/i", "", sha256Digest(sha256Digits)),
		}, "")
		check("Prepare", err)
	}
	skip := testNode(t, `{"uuid": "u", "properties": {"skip_block_devices": [{"colour": "blue"}]}}`)
	if got, err := ChooseRootDisk(new(config.Config), skip, []block.Device{disk("sda", 8*gib)}); err == nil {
		t.Errorf("skip list that is not understood: got %s, want an error", got.Path)
	}
}

// The disks are listed after those that the node needs have appeared.
func TestRootDiskWaits(t *testing.T) {
	n := testNode(t, `{"uuid": "u"}`)
	i := newImager(t, n, disk("sda", 8*gib))
	late := disk("sdb", 4*gib)
	i.o.Hardware = fakeHardware{wait: func(got *node.Node) error {
		if got != n {
			t.Errorf("waited for the disks of %v, want those of the node", got)
		}
		i.o.Disks = disktest.List{late}
		return nil
	}}
	if got, err := i.RootDisk(t.Context(), false); err != nil || got.Path != late.Path {
		t.Errorf("got %s and %v, want %s", got.Path, err, late.Path)
	}
}

// Without the option Disks, the machine's disks are listed.
func TestRootDiskOfTheMachine(t *testing.T) {
	i := New(Options{
		Config: config.NewLive(&config.Config{}), Node: &node.Cache{}, System: machinetest.System(t, "dell-r640"),
	})
	if got, err := i.RootDisk(t.Context(), false); err != nil || got.Path != "/dev/sdb" {
		t.Errorf("got %s and %v, want the smaller disk of the machine, /dev/sdb", got.Path, err)
	}
}

// A warning is logged if the machine was booted in another mode than the instance's, which may then not boot.
func TestOtherBootMode(t *testing.T) {
	for _, tt := range []struct {
		uefi   bool
		target string
		want   bool
	}{
		{false, "bios", false},
		{false, "uefi", true},
		{false, "", false},
		{true, "bios", true},
		{true, "uefi", false},
		{true, "", false},
	} {
		i := newImager(t, nil, disk("sda", 8*gib))
		var log strings.Builder
		i.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		if tt.uefi {
			if err := os.MkdirAll(i.o.System.Sys("firmware/efi"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		ignore := true // there is no such disk
		if err := i.InstallBootloader(t.Context(),
			Bootloader{TargetBootMode: tt.target, IgnoreFailure: &ignore}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "boot mode differs"); got != tt.want {
			t.Errorf("booted by UEFI %v, target %q: got the log %q, want a warning: %v",
				tt.uefi, tt.target, log.String(), tt.want)
		}
	}
}

// On a machine booted by BIOS nothing is installed, and no foreign program is run.
func TestInstallBootloaderBIOS(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		name    string
		b       Bootloader
		option  bool // ignore_bootloader_failure
		enabled bool // enable_bios_bootloader_install
		want    string
	}{
		{"whole disk", Bootloader{RootUUID: "0x00000000"}, false, false, ""},
		{"no root uuid", Bootloader{}, false, false, ""},
		{"partition image", Bootloader{RootUUID: "1d6e5e4c"}, false, false, "disabled"},
		{"MBR of a whole disk", Bootloader{RootUUID: "0x1a2b3c4d"}, false, false, "disabled"},
		{"enabled, and no such root", Bootloader{RootUUID: "1d6e5e4c"}, false, true, "no root partition"},
		{"the same ignored", Bootloader{RootUUID: "1d6e5e4c", IgnoreFailure: &yes}, false, true, ""},
		{"ignored by parameter", Bootloader{RootUUID: "1d6e5e4c", IgnoreFailure: &yes}, false, false, ""},
		{"ignored by option", Bootloader{RootUUID: "1d6e5e4c"}, true, false, ""},
		{
			"the parameter beats the option",
			Bootloader{RootUUID: "1d6e5e4c", IgnoreFailure: &no},
			true, false, "disabled",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := newImager(t, nil, disk("sda", 8*gib))
			i.o.Config.Update(func(c *config.Config) {
				c.IgnoreBootloaderFailure, c.EnableBIOSBootloaderInstall = tt.option, tt.enabled
			})
			err := i.InstallBootloader(t.Context(), tt.b)
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v, want success", err)
				}
				return
			}
			kind := "InvalidImage"
			if tt.enabled {
				kind = "DeviceNotFound"
			}
			if typeOf(err) != kind || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s saying %q", err, kind, tt.want)
			}
		})
	}
}

func TestInstallBootloaderUEFIWithoutESP(t *testing.T) {
	i := newImager(t, nil, disk("sda", 8*gib))
	if err := os.MkdirAll(filepath.Join(i.o.System.Path, "sys/firmware/efi"), 0o755); err != nil {
		t.Fatal(err)
	}
	i.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
		d := disk("sda", 8*gib)
		d.Path = filepath.Join(t.TempDir(), "there is no such device")
		return []block.Device{d}, nil
	})
	yes := true
	if err := i.InstallBootloader(t.Context(), Bootloader{}); err == nil {
		t.Error("got success, want an error")
	}
	if err := i.InstallBootloader(t.Context(), Bootloader{IgnoreFailure: &yes}); err != nil {
		t.Errorf("ignored: got %v, want success", err)
	}
}

// A system in an array that firmware cannot read is not bootable without boot loaders on its disks: that they cannot be
// installed is an error.
func TestInstallBootloaderArray(t *testing.T) {
	yes := true
	for _, tt := range []struct {
		name  string
		uefi  bool
		b     Bootloader
		fails bool
	}{
		{"UEFI", true, Bootloader{}, true},
		{"UEFI, ignored", true, Bootloader{IgnoreFailure: &yes}, false},
		{"UEFI, partition image", true, Bootloader{RootUUID: "1d6e5e4c", EFISystemPartUUID: "1234-ABCD"}, true},
		{"BIOS, whole disk", false, Bootloader{}, true},
		{"BIOS, whole disk, ignored", false, Bootloader{IgnoreFailure: &yes}, false},
		{"BIOS, partition image", false, Bootloader{RootUUID: "1d6e5e4c"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			array := disk("md1", 6*gib)
			array.Type = "raid1"
			i := newImager(t, nil, array)
			i.o.Config.Update(func(c *config.Config) { c.EnableBIOSBootloaderInstall = true })
			raidTree(t, i.o.System, map[string][]string{"md1": {"sda1", "sdb1"}})
			metadata := i.o.System.Sys("class/block/md1/md/metadata_version")
			if err := os.WriteFile(metadata, []byte("1.2\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.uefi {
				if err := os.MkdirAll(i.o.System.Sys("firmware/efi"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			err := i.InstallBootloader(t.Context(), tt.b)
			if !tt.fails && err != nil {
				t.Errorf("got %v, want success", err)
			}
			if tt.fails && (typeOf(err) != "CommandExecutionError" ||
				!strings.Contains(err.Error(), "array /dev/md1: firmware cannot read this RAID array") &&
					!strings.Contains(err.Error(), "/dev/md1 is a raid1 array with metadata 1.2 of /dev/sda1, ")) {
				t.Errorf("got %v, want a CommandExecutionError that names the array", err)
			}
		})
	}
}

// A disk to which no image can be written can be the root disk by the protocol's rules. The error is returned before
// the image is requested.
func TestPrepareRefusesDisks(t *testing.T) {
	readOnly, zoned := disk("sda", 8*gib), disk("sda", 8*gib)
	readOnly.ReadOnly, zoned.Zoned = true, "host-managed"
	for want, d := range map[string]block.Device{"read-only": readOnly, "zoned": zoned} {
		i := newImager(t, nil, d, disk("sdb", 9*gib))
		_, err := i.Prepare(t.Context(),
			ImageInfo{ID: "i", Source: source("http://192.0.2.1/i", "", selectDigest("", "crc32", "1"))}, "")
		if typeOf(err) != "ImageWriteError" || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "/dev/sda") {
			t.Errorf("got %v, want an ImageWriteError that says that /dev/sda is %s", err, want)
		}
	}
}

func TestPrepareRefusesUnknownAlgorithms(t *testing.T) {
	i := newImager(t, nil, disk("sda", 8*gib))
	_, err := i.Prepare(t.Context(), ImageInfo{
		ID: "i", Source: source("http://192.0.2.1/i", "", selectDigest("", "crc32", "12345678")),
	}, "")
	if typeOf(err) != "RESTError" || !strings.Contains(err.Error(), "crc32") {
		t.Errorf("got %v, want a RESTError that names the algorithm", err)
	}
}

// Invalid settings are an error before a request is sent.
func TestPrepareRefusesSettings(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"authentication without a password": func(c *config.Config) {
			c.ImageServerAuthStrategy, c.ImageServerUser = "http_basic", "u"
		},
		"CA that is not there": func(c *config.Config) { c.CAFile = "/nonexistent/ca.pem" },
	} {
		s := serve(t, os.DevNull)
		i := newImager(t, nil, disk("sda", 8*gib))
		i.o.Config.Update(change)
		_, err := i.Prepare(t.Context(),
			ImageInfo{ID: "i", Source: source(s.URL+"/i", "", sha256Digest(s.URL+"/sums"))}, "")
		if typeOf(err) != "ImageDownloadError" || s.downloads.Load() > 0 {
			t.Errorf("%s: got %s (%v) after %d downloads, want an ImageDownloadError after none",
				name, typeOf(err), err, s.downloads.Load())
		}
	}
	i := newImager(t, nil)
	i.o.Config.Update(func(c *config.Config) { c.CAFile = "/nonexistent/ca.pem" })
	_, err := i.loadConfigDrive(t.Context(), "http://192.0.2.1/drive", disk("sda", 8*gib))
	if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), "ca.pem") {
		t.Errorf("config drive: got %v, want a DeploymentError that names the CA", err)
	}
}

// Parity: U8
func TestAuthorization(t *testing.T) {
	for _, tt := range []struct {
		name   string
		auth   Auth
		option config.Config
		want   string
		fails  bool
	}{
		{"none", Auth{}, config.Config{}, "", false},
		{
			"supplied header",
			Auth{Header: "Bearer x", Strategy: "http_basic", User: "u", Password: "p"},
			config.Config{},
			"Bearer x", false,
		},
		{
			"of the image",
			Auth{Strategy: "http_basic", User: "u", Password: "p"},
			config.Config{},
			"Basic dTpw", false,
		},
		{"of the options", Auth{}, config.Config{
			ImageServerAuthStrategy: "http_basic", ImageServerUser: "u", ImageServerPassword: "p",
		}, "Basic dTpw", false},
		{
			"of the image, without user and password",
			Auth{Strategy: "http_basic"},
			config.Config{ImageServerAuthStrategy: "http_basic", ImageServerUser: "u", ImageServerPassword: "p"},
			"", true,
		},
		{"of the options, without user", Auth{}, config.Config{ImageServerAuthStrategy: "http_basic"}, "", true},
		{"without user", Auth{Strategy: "http_basic", Password: "p"}, config.Config{}, "", true},
		{"without password", Auth{Strategy: "http_basic", User: "u"}, config.Config{}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := New(Options{Config: config.NewLive(&tt.option)})
			header, err := i.authorization(ImageInfo{Source: Source{Auth: tt.auth}})
			if (err != nil) != tt.fails {
				t.Fatalf("got error %v, want one: %v", err, tt.fails)
			}
			if got := header.Get("Authorization"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// An empty list from Ironic and a list that was never set both permit no format.
func TestNoPermittedFormats(t *testing.T) {
	i := newImager(t, nil)
	for _, list := range [][]string{nil, {}} {
		i.o.Config.Update(func(c *config.Config) { c.PermittedImageFormats = list })
		if got := i.imageOptions().PermittedFormats; got == nil || len(got) != 0 {
			t.Errorf("list %#v: got %#v, want an empty list", list, got)
		}
	}
}
