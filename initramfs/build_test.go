package initramfs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"debug/elf"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/mkuimage/cpio"
	"github.com/ulikunitz/xz"

	"ironroot/initramfs/debian"
	"ironroot/initramfs/firmware"
	"ironroot/internal/pciids"
	"ironroot/internal/test/testenv"
	"ironroot/release/bill"
	"ironroot/uinit/boot/layout"
	"ironroot/uinit/kmod"
)

// Limits of the size of the initramfs, in bytes.
const (
	serverBudget = 31<<20 - 80<<10 //  with the server set of modules, firmware and the shell
	bareBudget   = 7<<20 + 150<<10 // without modules, with the shell
)

// unpackedBudget limits the memory, in bytes, that the files of the server set occupy. With UEFI, iPXE and 256 MiB, the
// root file system can fill 45 MiB.
const unpackedBudget = 44 << 20

// smallInit is a program that is built and compressed in a fraction of the time of the agent.
const smallInit = "ironroot/internal/test/foreign/hello"

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

// Parity: R11 (size)
func TestServerImage(t *testing.T) {
	var progress bytes.Buffer
	report := build(t, func(o *Options) {
		o.Shell, o.Progress, o.Bill = true, &progress, &bill.Build{Version: "1.2.3", Commit: "abc"}
	})
	t.Log(progress.String())
	if report.InitramfsSize > serverBudget {
		t.Errorf("initramfs has %d bytes, want at most %d", report.InitramfsSize, serverBudget)
	}
	records := readArchive(t, report.Initramfs)
	if unpacked := pagesOf(records); unpacked > unpackedBudget {
		t.Errorf("files occupy %d bytes, want at most %d", unpacked, unpackedBudget)
	}
	if last := records[len(records)-1].Name; last != layout.MarkerFile {
		t.Errorf("last file of the archive is %s, want %s", last, layout.MarkerFile)
	}
	checkPrograms(t, records)
	checkModules(t, records, report.KernelRelease)
	checkCardNames(t, records)
	checkFirmware(t, records, report.MissingFirmware)
	checkDeltas(t, records, report.KernelRelease)
	checkOutputs(t, report)
	checkBill(t, report, records)
	for _, want := range []string{"agent", "shell", "modules: drivers/net", "building the agent"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("the progress does not mention %q:\n%s", want, progress.String())
		}
	}
}

// checkCardNames checks that the archive has the names of common network cards, and no others.
func checkCardNames(t *testing.T, records []cpio.Record) {
	t.Helper()
	i := slices.IndexFunc(records, func(r cpio.Record) bool { return r.Name == pciids.File })
	if i < 0 {
		t.Errorf("the archive has no file %s", pciids.File)
		return
	}
	text := content(t, records[i])
	if len(text) > 64<<10 {
		t.Errorf("names of network cards: got %d bytes, want at most 64 KiB", len(text))
	}
	for id, want := range map[pciids.ID]string{
		{Vendor: 0x8086, Device: 0x10d3}: "82574L Gigabit Network Connection",
		{Vendor: 0x8086, Device: 0x1572}: "Ethernet Controller X710 for 10GbE SFP+",
		{Vendor: 0x14e4, Device: 0x165f}: "NetXtreme BCM5720 Gigabit Ethernet PCIe",
		{Vendor: 0x15b3, Device: 0x1017}: "MT27800 Family [ConnectX-5]",
		{Vendor: 0x8086, Device: 0x2922}: "", // a controller of disks
	} {
		got, err := pciids.Find(bytes.NewReader(text), id)
		if err != nil || got.Device != want {
			t.Errorf("card %04x: got %q and %v, want %q", id, got.Device, err, want)
		}
	}
}

// checkFirmware checks that the archive contains the compressed firmware of common adapters, and that the reviewed
// list contains all missing files.
//
// Parity: R13 (firmware)
func checkFirmware(t *testing.T, records []cpio.Record, missing []Missing) {
	t.Helper()
	files := map[string]cpio.Record{}
	for _, r := range records {
		if name, ok := strings.CutPrefix(r.Name, "lib/firmware/"); ok {
			files[name] = r
		}
	}
	for _, name := range []string{
		"bnx2/bnx2-mips-09-6.2.1b.fw", "bnx2/bnx2-rv2p-09-6.0.17.fw", "bnx2x/bnx2x-e2-7.13.21.0.fw",
		"bnx2x/bnx2x-e1-7.13.21.0.fw", "bnx2x/bnx2x-e1h-7.13.21.0.fw", "ql2400_fw.bin", "ql2500_fw.bin",
		"qed/qed_init_values_zipped-8.59.1.0.bin", "intel/ice/ddp/ice.pkg", "cxgb4/t4fw.bin",
		"cxgb4/t5fw.bin", "cxgb4/t6fw.bin", "cxgb4/t6-config.txt", "tigon/tg3.bin", "tigon/tg3_tso5.bin",
		"e100/d101m_ucode.bin", "rtl_nic/rtl8168h-2.fw", "advansys/mcode.bin", "isci/isci_firmware.bin",
	} {
		r, ok := files[name+".zst"]
		for ok && r.Mode&cpio.S_IFMT == cpio.S_IFLNK {
			r, ok = files[path.Join(path.Dir(strings.TrimPrefix(r.Name, "lib/firmware/")), string(content(t, r)))]
		}
		if !ok {
			t.Errorf("firmware %s is missing", name)
			continue
		}
		if len(unzstd(t, content(t, r))) == 0 {
			t.Errorf("firmware %s is empty", name)
		}
	}
	used := map[firmware.Omission]bool{}
	for _, m := range missing {
		i := slices.IndexFunc(firmware.Omissions(), func(o firmware.Omission) bool { return o.Matches(m.Name) })
		if i < 0 {
			t.Errorf("firmware %s of %s is neither in the archive nor on the list of omissions", m.Name, m.Modules)
			continue
		}
		used[firmware.Omissions()[i]] = true
	}
	for _, o := range firmware.Omissions() {
		if !used[o] {
			t.Errorf("omission %q covers no file: remove it from the list", o.Pattern)
		}
	}
}

// checkDeltas checks that the archive contains every delta of the index, and the file that it refers to.
func checkDeltas(t *testing.T, records []cpio.Record, release string) {
	t.Helper()
	files := map[string][]byte{}
	for _, r := range records {
		files["/"+r.Name] = content(t, r)
	}
	index, err := kmod.Parse(string(unzstd(t, files[kmod.Dir(release)+"/"+kmod.IndexFile])))
	if err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string]int{"liquidio": 3, "qla2xxx": 1} {
		deltas := index.Module(module).Deltas
		if len(deltas) != want {
			t.Errorf("module %s has deltas %v, want %d", module, deltas, want)
		}
		for _, d := range deltas {
			base := unzstd(t, files[kmod.FirmwareDir+"/"+d.Base+kmod.SuffixZstd])
			data, err := kmod.UnpackDelta(base, files[kmod.FirmwareDir+"/"+d.File+kmod.SuffixDelta])
			if err != nil || len(data) == 0 {
				t.Errorf("firmware %s: got %d bytes, %v", d.File, len(data), err)
			}
		}
	}
}

// Files of the operator's directory are preferred; only requested files are added; --no-firmware omits all.
func TestFirmwareDirectory(t *testing.T) {
	const named, other = "e100/d101m_ucode.bin", "e100/unused.bin"
	dir := t.TempDir()
	for _, name := range []string{named, other} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("firmware of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, without := range []bool{false, true} {
		report := build(t, func(o *Options) {
			o.Firmware, o.NoFirmware, o.ModuleGroups, o.Init = dir, without, []string{"network"}, smallInit
		})
		got := map[string]string{}
		for _, r := range readArchive(t, report.Initramfs) {
			name, ok := strings.CutPrefix(r.Name, "lib/firmware/")
			if ok && r.Mode&cpio.S_IFMT == cpio.S_IFREG && strings.HasPrefix(name, "e100/") {
				got[name] = string(unzstd(t, content(t, r)))
			}
		}
		if without {
			if len(got) > 0 {
				t.Errorf("without firmware: got %d files", len(got))
			}
			continue
		}
		if want := "firmware of " + named; got[named+".zst"] != want {
			t.Errorf("got %q for %s, want %q", got[named+".zst"], named, want)
		}
		if _, ok := got[other+".zst"]; ok {
			t.Errorf("got %s, which no module requests", other)
		}
	}
}

// Firmware is compressed only as the kernel's configuration allows.
func TestFirmwareCompression(t *testing.T) {
	data := bytes.Repeat([]byte("firmware"), 1000)
	for config, want := range map[string]string{
		"CONFIG_FW_LOADER_COMPRESS_XZ=y\nCONFIG_FW_LOADER_COMPRESS_ZSTD=y\n":                ".zst",
		"CONFIG_FW_LOADER_COMPRESS_XZ=y\n# CONFIG_FW_LOADER_COMPRESS_ZSTD is not set\n":     ".xz",
		"CONFIG_FW_LOADER=y\n# CONFIG_FW_LOADER_COMPRESS is not set\n":                      "",
		"CONFIG_XFW_LOADER_COMPRESS_ZSTD=y\nCONFIG_FW_LOADER_COMPRESS_ZSTD=no such value\n": "",
	} {
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := firmwareCompression(Kernel{Config: path})
		if err != nil {
			t.Fatal(err)
		}
		packed, err := c.pack(data)
		if err != nil || c.suffix != want {
			t.Errorf("%q: got suffix %q, %v, want %q", config, c.suffix, err, want)
		}
		if (want == "") != bytes.Equal(packed, data) {
			t.Errorf("%q: packed %d bytes to %d", config, len(data), len(packed))
		}
	}
	if c, err := firmwareCompression(Kernel{}); err != nil || c.suffix != "" {
		t.Errorf("unknown configuration: got suffix %q, %v, want none", c.suffix, err)
	}
}

// checkPrograms checks that init and the shell, a delta of it, are the only programs in the archive, static and built
// from Go.
func checkPrograms(t *testing.T, records []cpio.Record) {
	t.Helper()
	var programs []string
	var agent []byte
	for _, r := range records {
		data := content(t, r)
		switch r.Name {
		case "init":
			agent = data
		case layout.ShellFile:
			if want := "#!/" + layout.ShellUnpacker + "\n"; string(data) != want {
				t.Errorf("%s: got %q, want %q", r.Name, data, want)
			}
			continue
		case layout.ShellDelta:
			program, err := kmod.UnpackDelta(agent, data)
			if err != nil {
				t.Fatalf("%s: %v", r.Name, err)
			}
			data = program
		}
		if strings.HasSuffix(r.Name, kmod.Suffix) || strings.HasSuffix(r.Name, kmod.SuffixXZ) ||
			!bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
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
	if slices.ContainsFunc(records, func(r cpio.Record) bool { return r.Name == "sbin/modprobe" }) {
		t.Error("the archive has sbin/modprobe, which the kernel would start before process 1")
	}
	if want := []string{"init", layout.ShellDelta}; !slices.Equal(programs, want) {
		t.Errorf("programs: got %v, want %v", programs, want)
	}
}

// checkModules checks that the index describes the modules of the archive, and that the archive contains every
// dependency.
func checkModules(t *testing.T, records []cpio.Record, release string) {
	t.Helper()
	dir := strings.TrimPrefix(kmod.Dir(release), "/")
	files := map[string]cpio.Record{}
	for _, r := range records {
		if filepath.Dir(r.Name) == dir {
			files[filepath.Base(r.Name)] = r
		}
	}
	text := string(unzstd(t, content(t, files[kmod.IndexFile])))
	index, err := kmod.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	// Two of the files are indexes.
	if listed, want := strings.Count(text, "\nm "), len(files)-2; listed != want {
		t.Errorf("index names %d modules, the archive holds %d", listed, want)
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
		name, found := strings.CutSuffix(name, kmod.SuffixXZ) // Debian compresses modules with xz
		if !found {
			continue
		}
		m := index.Module(name)
		if m == nil {
			t.Errorf("module %s is not in the index", name)
			continue
		}
		if size := int64(len(unxz(t, content(t, r)))); size != m.Size {
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
		"ext4", "vfat", "isofs", "efivarfs", "usb_storage", "ipmi_si", "ipmi_devintf", "loop", "bonding", "8021q",
		"nls_cp437", "nls_ascii",
	} {
		if index.Module(name) == nil {
			t.Errorf("module %s is missing", name)
		}
	}
}

// checkOutputs checks the checksum files with sha256sum, and that the tarball contains both files at top level.
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
	t.Logf("initramfs has %d bytes", report.InitramfsSize)
	if report.InitramfsSize > bareBudget {
		t.Errorf("initramfs has %d bytes, want at most %d", report.InitramfsSize, bareBudget)
	}
	for _, r := range readArchive(t, report.Initramfs) {
		if strings.HasPrefix(r.Name, "lib/modules") {
			t.Errorf("got %s, want no modules", r.Name)
		}
	}
}

func TestExtraFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := build(t, func(o *Options) {
		o.ModuleGroups, o.Init = []string{"none"}, smallInit
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

// A file with a private key for evidence is refused wherever it would be in the image, manager roots included. Keys of
// other types are not.
func TestEvidenceKeyIsRefused(t *testing.T) {
	_, evidence, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	client, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(key any) string {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	const certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	// Files of a manager root are searched in parts.
	after := func(size int, text string) string { return strings.Repeat("x", size-1) + "\n" + text }
	for name, c := range map[string]struct {
		text    string
		refused bool
	}{
		"evidence key":           {encoded(evidence), true},
		"after other blocks":     {"text\n" + certificate + encoded(client) + encoded(evidence), true},
		"TLS client":             {certificate + encoded(client), false},
		"public key of evidence": {strings.ReplaceAll(certificate, "CERTIFICATE", "PUBLIC KEY"), false},
		"damaged":                {strings.ReplaceAll(certificate, "CERTIFICATE", "PRIVATE KEY"), false},
		"empty":                  {"", false},
		"first part ends in key": {after(searchBytes-40, encoded(evidence)), true},
		"second part":            {after(searchBytes+maxKeyBytes, encoded(evidence)), true},
		"at the end":             {after(3*searchBytes, encoded(evidence)), true},
		"no key in parts":        {after(3*searchBytes, encoded(client)), false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "file.pem"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{dir, filepath.Join(dir, "file.pem")} {
			records, err := extraFiles(host + ":/etc/ironic-python-agent.d/evidence")
			refused := err != nil && strings.Contains(err.Error(), "file.pem contains an Ed25519 private key") &&
				strings.Contains(err.Error(), "docs/erase-evidence.md")
			if refused != c.refused || (err == nil) == c.refused || (len(records) == 0) != c.refused {
				t.Errorf("%s: got %d records and error %v, want it refused: %v", name, len(records), err, c.refused)
			}
			if err != nil && strings.Contains(err.Error(), "BEGIN") {
				t.Errorf("%s: error %q contains the key", name, err)
			}
		}
		root := tar.Header{Name: "usr/share/file.pem", Mode: 0o600, Size: int64(len(c.text))}
		for _, source := range []string{dir, saved(t, c.text, []tar.Header{root})} {
			b := &builder{Options: Options{Arch: "amd64", Progress: io.Discard}}
			image, err := b.packRoot(t.Context(), source)
			refused := err != nil && strings.Contains(err.Error(), "file.pem contains an Ed25519 private key") &&
				!strings.Contains(err.Error(), "BEGIN")
			if refused != c.refused || (err == nil) == c.refused || (len(image) == 0) != c.refused {
				t.Errorf("%s in %s: got %d bytes and error %v, want it refused: %v", name, source, len(image), err,
					c.refused)
			}
		}
	}
}

// A file that cannot be read gives no record.
func TestExtraFileNotRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	record, err := fileRecord(name, "guest", fs.FileInfoToDirEntry(info))
	if !errors.Is(err, fs.ErrNotExist) || record.Name != "" {
		t.Errorf("got a record of %q and %v, want none and %v", record.Name, err, fs.ErrNotExist)
	}
}

func TestBadOptions(t *testing.T) {
	dir := t.TempDir()
	kernel, truncated := filepath.Join(dir, "kernel"), filepath.Join(dir, "truncated")
	content := testenv.BzImage(4096)
	if err := errors.Join(os.WriteFile(kernel, content, 0o600),
		os.WriteFile(truncated, content[:4095], 0o600)); err != nil {
		t.Fatal(err)
	}
	none := []string{"none"}
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"unknown group":    {Options{ModuleGroups: []string{"kitchen"}, Kernel: kernel, Modules: "."}, "kitchen"},
		"modules alone":    {Options{Modules: "/tmp"}, "odules"},
		"missing kernel":   {Options{Kernel: "/nonexistent"}, "/nonexistent"},
		"truncated kernel": {Options{Kernel: truncated}, "has 4095 bytes, want 4096"},
		"another kernel":   {Options{Kernel: kernel, Arch: "arm64"}, "is for amd64, want arm64"},
		"bad extra file":   {Options{Kernel: kernel, ModuleGroups: none, Files: []string{"one-part"}}, "one-part"},
		"unknown program":  {Options{Kernel: kernel, ModuleGroups: none, Init: "ironroot/nothing"}, "ironroot/nothing"},
	} {
		c.o.Out, c.o.Dir, c.o.CacheDir = t.TempDir(), testenv.Top(t), t.TempDir()
		if _, err := Build(context.Background(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

// Damaged files in the cache are replaced.
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
			for range 2 { // the second time from the repaired cache
				if got, err := packCached(cache, image); err != nil || !bytes.Equal(got, want) {
					t.Errorf("got %d bytes, %v, want the %d of the first time", len(got), err, len(want))
				}
			}
		})
	}
}

// The error of a missing kernel package names the options for another kernel.
func TestErrorsSayWhatToDo(t *testing.T) {
	_, err := Build(context.Background(), Options{
		Package: "linux-image-none", Debian: debian.Options{Offline: true}, CacheDir: t.TempDir(), Out: t.TempDir(),
	})
	if err == nil || !strings.HasSuffix(err.Error(), "a kernel of your own does as well: --kernel FILE --modules DIR") {
		t.Errorf("got error %v, want what to do", err)
	}
}

func readArchive(t *testing.T, path string) []cpio.Record {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A Zstandard frame with the first archive, zeros, and the uncompressed second archive.
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

func unxz(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := xz.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
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
