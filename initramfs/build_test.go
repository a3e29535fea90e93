package initramfs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/testenv"
	"ironroot/uinit/boot/layout"
	"ironroot/uinit/kmod"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/mkuimage/cpio"
)

// Budgets of the initramfs, in bytes.
const (
	serverBudget = 28 << 20 // with the server set of modules and the shell
	bareBudget   = 6 << 20  // without modules, with the shell
)

func build(t *testing.T, change func(*Options)) Report {
	t.Helper()
	testenv.Programs(t, "apt-get", "go")
	o := Options{Out: t.TempDir(), Dir: testenv.Top(t)}
	if change != nil {
		change(&o)
	}
	report, err := Build(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestServerImage(t *testing.T) {
	var progress bytes.Buffer
	const named, other = "bnx2/bnx2-mips-06-6.2.3.fw", "bnx2/nobody-names-this.fw"
	firmware := t.TempDir()
	for _, name := range []string{named, other} {
		if err := os.MkdirAll(filepath.Join(firmware, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(firmware, name), []byte("firmware of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	report := build(t, func(o *Options) { o.Shell, o.Progress, o.Firmware = true, &progress, firmware })
	t.Log(progress.String())
	if report.InitramfsSize > serverBudget {
		t.Errorf("initramfs has %d bytes, want at most %d", report.InitramfsSize, serverBudget)
	}
	records := readArchive(t, report.Initramfs)
	if last := records[len(records)-1].Name; last != layout.MarkerFile {
		t.Errorf("last file of the archive is %s, want %s", last, layout.MarkerFile)
	}
	checkPrograms(t, records)
	checkModules(t, records, report.KernelRelease)
	checkOutputs(t, report)
	if slices.Contains(report.MissingFirmware, named) || len(report.MissingFirmware) == 0 {
		t.Errorf("missing firmware: got %q, want some, and not %s", report.MissingFirmware, named)
	}
	got := map[string]string{}
	for _, r := range records {
		if strings.HasPrefix(r.Name, "lib/firmware/") && r.Mode&cpio.S_IFMT == cpio.S_IFREG {
			got[r.Name] = string(content(t, r))
		}
	}
	if want := (map[string]string{"lib/firmware/" + named: "firmware of " + named}); !maps.Equal(got, want) {
		t.Errorf("firmware in the archive: got %v, want %v", got, want)
	}
	for _, want := range []string{"agent", "shell", "modules: drivers/net", "building the agent"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("the progress does not mention %q:\n%s", want, progress.String())
		}
	}
}

// checkPrograms proves that every program in the archive was built from Go.
func checkPrograms(t *testing.T, records []cpio.Record) {
	t.Helper()
	var programs []string
	for _, r := range records {
		data := content(t, r)
		if strings.HasSuffix(r.Name, kmod.Suffix) || !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
			if r.Mode&0o111 != 0 && r.Mode&cpio.S_IFMT == cpio.S_IFREG {
				t.Errorf("%s is executable and no ELF program", r.Name)
			}
			continue
		}
		programs = append(programs, r.Name)
		f, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		if f.Section(".go.buildinfo") == nil {
			t.Errorf("%s was not built from Go", r.Name)
		}
		if f.Section(".interp") != nil {
			t.Errorf("%s is not static", r.Name)
		}
	}
	if want := []string{"init", "bbin/bb"}; !slices.Equal(programs, want) {
		t.Errorf("programs: got %v, want %v", programs, want)
	}
}

// checkModules proves that the index and the modules agree and that every dependency is there or built in.
func checkModules(t *testing.T, records []cpio.Record, release string) {
	t.Helper()
	dir := strings.TrimPrefix(kmod.Folder(release), "/")
	files := map[string]cpio.Record{}
	for _, r := range records {
		if filepath.Dir(r.Name) == dir {
			files[filepath.Base(r.Name)] = r
		}
	}
	index, err := kmod.Parse(string(unzstd(t, content(t, files[kmod.IndexFile]))))
	if err != nil {
		t.Fatal(err)
	}
	if index.Len() != len(files)-2 { // the others are the two indexes
		t.Errorf("index names %d modules, the archive holds %d", index.Len(), len(files)-2)
	}
	others, err := kmod.Parse(string(unzstd(t, content(t, files[kmod.OthersFile]))))
	if err != nil {
		t.Fatal(err)
	}
	adapter := others.Match("pci:v00001011d00000019sv0000103Csd0000104Fbc02sc00i00")
	if !slices.ContainsFunc(adapter, func(m *kmod.Module) bool { return m.Name == "tulip" }) {
		t.Errorf("index of other drivers: got %v for an adapter of DEC, want tulip among them", adapter)
	}
	for name, want := range map[string]bool{"tulip": true, "e1000e": false, "zram": false} {
		if got := others.Module(name) != nil; got != want {
			t.Errorf("index of other drivers has %s: got %v, want %v", name, got, want)
		}
	}
	for name, r := range files {
		name, found := strings.CutSuffix(name, kmod.Suffix)
		if !found {
			continue
		}
		m := index.Module(name)
		if m == nil {
			t.Errorf("module %s is not in the index", name)
			continue
		}
		if size := int64(len(unzstd(t, content(t, r)))); size != m.Size {
			t.Errorf("module %s has %d bytes, the index says %d", name, size, m.Size)
		}
		for _, other := range m.Depends {
			if index.Module(other) == nil {
				t.Errorf("module %s needs %s, which is not there", name, other)
			}
		}
	}
	for _, name := range []string{
		"e1000e", "virtio_net", "nvme", "ahci", "sd_mod", "mpt3sas", "megaraid_sas", "raid1", "dm_mod",
		"ext4", "vfat", "isofs", "efivarfs", "usb_storage", "ipmi_si", "ipmi_devintf", "loop", "bonding", "8021q", "nls_cp437", "nls_ascii",
	} {
		if index.Module(name) == nil {
			t.Errorf("module %s is missing", name)
		}
	}
}

// checkOutputs proves the checksum files by sha256sum, and that the tarball holds both files at its top.
func checkOutputs(t *testing.T, report Report) {
	t.Helper()
	for _, path := range []string{report.Kernel, report.Initramfs, report.Tarball} {
		cmd := exec.Command("sha256sum", "-c", filepath.Base(path)+".sha256")
		cmd.Dir = filepath.Dir(path)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", path, err, out)
		}
	}
	f, err := os.Open(report.Tarball)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if want := []string{filepath.Base(report.Kernel), filepath.Base(report.Initramfs)}; !slices.Equal(names, want) {
		t.Errorf("tarball holds %v, want %v", names, want)
	}
}

func TestBareImage(t *testing.T) {
	report := build(t, func(o *Options) { o.Shell, o.ModuleGroups = true, []string{"none"} })
	if report.InitramfsSize > bareBudget {
		t.Errorf("initramfs has %d bytes, want at most %d", report.InitramfsSize, bareBudget)
	}
	for _, r := range readArchive(t, report.Initramfs) {
		if strings.HasPrefix(r.Name, "lib/modules") {
			t.Errorf("got %s, want no modules", r.Name)
		}
	}
}

// TestReproducible builds from two copies of the source with nothing shared but what was fetched.
func TestReproducible(t *testing.T) {
	sum := func(dir, cache string) string {
		report := build(t, func(o *Options) { o.Dir, o.CacheDir, o.ModuleGroups = dir, cache, []string{"virtual"} })
		var all []byte
		for _, path := range []string{report.Initramfs, report.Kernel, report.Tarball} {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data...)
		}
		hash := sha256.Sum256(all)
		return hex.EncodeToString(hash[:])
	}
	first := testenv.Top(t)
	second := filepath.Join(t.TempDir(), "elsewhere")
	for _, part := range []string{"go.mod", "go.sum", "agent", "internal", "netboot", "storage", "uinit"} {
		source, target := filepath.Join(first, part), filepath.Join(second, part)
		if err := os.MkdirAll(second, 0o755); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "cp", "-r", source, target)
	}
	// The second build has nothing but the packages from the cache, so that it compresses the modules anew.
	cache, cold := userCache(t), t.TempDir()
	one := sum(first, cache)
	for _, part := range []string{"packages", "kernels"} {
		if err := os.Symlink(filepath.Join(cache, part), filepath.Join(cold, part)); err != nil {
			t.Fatal(err)
		}
	}
	if two := sum(second, cold); one != two {
		t.Errorf("two builds of the same source differ: %s and %s", one, two)
	}
}

func userCache(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "ironroot")
}

func TestExtraFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := build(t, func(o *Options) {
		o.ModuleGroups = []string{"none"}
		o.Files = []string{filepath.Join(dir, "ca.pem") + ":/etc/ssl/ca.pem"}
	})
	for _, r := range readArchive(t, report.Initramfs) {
		if r.Name == "etc/ssl/ca.pem" {
			if got := string(content(t, r)); got != "certificate" {
				t.Errorf("got %q, want certificate", got)
			}
			return
		}
	}
	t.Error("the extra file is not in the archive")
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"unknown group":   {ModuleGroups: []string{"kitchen"}, Kernel: "/dev/null", Modules: "."},
		"modules alone":   {Modules: "/tmp"},
		"missing kernel":  {Kernel: "/nonexistent"},
		"bad extra file":  {Kernel: "/dev/null", ModuleGroups: []string{"none"}, Files: []string{"only-one-part"}},
		"manager":         {Manager: "./mine"},
		"unknown program": {Kernel: "/dev/null", ModuleGroups: []string{"none"}, Init: "ironroot/nothing"},
	} {
		o.Out, o.Dir, o.CacheDir = t.TempDir(), testenv.Top(t), t.TempDir()
		if _, err := Build(context.Background(), o); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// A cache that was cut off is not believed.
func TestBrokenCache(t *testing.T) {
	image := bytes.Repeat([]byte("module"), 1000)
	for name, spoil := range map[string]func([]byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"zeros":     func(b []byte) []byte { return make([]byte, len(b)) },
		"truncated": func(b []byte) []byte { return b[:len(b)-1] },
		"another":   func([]byte) []byte { return pack([]byte("another module")) },
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			want, err := packCached(cache, image)
			if err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(cache, "*.zst"))
			if err != nil || len(files) != 1 {
				t.Fatalf("got %q, %v in the cache, want one file", files, err)
			}
			if err := os.WriteFile(files[0], spoil(want), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time from the mended cache
				if got, err := packCached(cache, image); err != nil || !bytes.Equal(got, want) {
					t.Errorf("got %d bytes, %v, want the %d of the first time", len(got), err, len(want))
				}
			}
		})
	}
}

// Whoever asks for what cannot be had is told what to do.
func TestErrorsSayWhatToDo(t *testing.T) {
	for pkg, want := range map[string]string{
		"linux-image-arm64:arm64":       "no packages of arm64; a kernel of your own does as well: --kernel FILE --modules DIR",
		"linux-image-" + runtime.GOARCH: "a kernel of your own does as well: --kernel FILE --modules DIR",
	} {
		if got := fetchHint(pkg); !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %q, want %q at its end", pkg, got, want)
		}
	}
	_, err := Build(context.Background(), Options{Manager: "./mine", CacheDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "leave --manager out") {
		t.Errorf("got error %v, want what to do", err)
	}
}

func readArchive(t *testing.T, path string) []cpio.Record {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The first archive is one Zstandard frame; zeros; then the second one, as it is.
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	split := bytes.Index(data, []byte("07070100000001"))
	if split < 0 {
		t.Fatal("no uncompressed archive")
	}
	first, err := d.DecodeAll(bytes.TrimRight(data[:split], "\x00"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var records []cpio.Record
	format, err := cpio.Format("newc")
	if err != nil {
		t.Fatal(err)
	}
	for _, archive := range [][]byte{first, data[split:]} {
		more, err := cpio.ReadAllRecords(format.Reader(bytes.NewReader(archive)))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, more...)
	}
	return records
}

func content(t *testing.T, r cpio.Record) []byte {
	t.Helper()
	data := make([]byte, r.FileSize)
	if r.FileSize == 0 {
		return nil
	}
	if _, err := r.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("%s: %v", r.Name, err)
	}
	return data
}

func unzstd(t *testing.T, data []byte) []byte {
	t.Helper()
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out, err := d.DecodeAll(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
