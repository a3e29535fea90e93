package main

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ironroot/internal/test/testenv"
	"ironroot/netboot/pxe"
)

// armKernel returns a file that has no more of a kernel for arm64 than its headers.
func armKernel(t *testing.T) []byte {
	t.Helper()
	const peHeader = 0x40
	var kernel bytes.Buffer
	kernel.WriteString("MZ")
	kernel.Write(make([]byte, 0x36))
	kernel.WriteString("ARM\x64")
	for _, part := range []any{
		uint32(peHeader), []byte("PE\x00\x00"),
		pe.FileHeader{
			Machine:              pe.IMAGE_FILE_MACHINE_ARM64,
			SizeOfOptionalHeader: uint16(binary.Size(pe.OptionalHeader64{})),
		},
		pe.OptionalHeader64{
			Magic: 0x20b, Subsystem: pe.IMAGE_SUBSYSTEM_EFI_APPLICATION, NumberOfRvaAndSizes: 16,
		},
	} {
		if err := binary.Write(&kernel, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return kernel.Bytes()
}

// parseNetboot parses a command line of netboot with files in a directory, in which DIR stands for it.
func parseNetboot(t *testing.T, line string) (*netbootCmd, string) {
	t.Helper()
	dir := t.TempDir()
	kernel, initramfs := string(testenv.BzImage(4096)), string(testenv.Archive(t))
	for name, content := range map[string]string{
		"ipa-ironroot-amd64.kernel": kernel, "ipa-ironroot-amd64.initramfs": initramfs,
		"other-arm64.kernel": string(armKernel(t)), "other-arm64.initramfs": initramfs,
		"half-amd64.kernel": kernel, "snponly.efi": "own",
		"cut-amd64.kernel": kernel[:4000], "cut-amd64.initramfs": initramfs,
		"swapped-arm64.kernel": kernel, "swapped-arm64.initramfs": initramfs,
		"sum-amd64.kernel": kernel, "sum-amd64.initramfs": initramfs, "sum-amd64.initramfs.sha256": "00  x\n",
		"machines": "# a comment\n\n52:54:00:00:00:0A  ipa-agent-token=SECRET x=\"1 2\" \n52-54-00-00-00-0b\n",
		"wrong":    "52:54:00:00:00:0a ok\nipa-agent-token=SECRET 52:54:00:00:00:0b\n", "empty": "# nobody\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := &cli{}
	args := strings.Fields(strings.ReplaceAll("netboot -i eth1 "+line, "DIR", dir))
	if _, err := newParser(commands).Parse(args); err != nil {
		t.Fatal(err)
	}
	return &commands.Netboot, dir
}

func TestNetbootOptions(t *testing.T) {
	c, dir := parseNetboot(t, "--dir DIR --api-url https://192.0.2.1:6385 --append quiet --machines DIR/machines "+
		"--mac 52:54:00:00:00:0c --range 192.0.2.10-192.0.2.20 --router 192.0.2.254 --dns 192.0.2.253,192.0.2.252")
	got, err := c.configure()
	if err != nil {
		t.Fatal(err)
	}
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{0x52, 0x54, 0, 0, 0, last} }
	want := pxe.Options{
		Interface: "eth1", HTTPPort: 8069,
		Systems: map[string]pxe.System{"amd64": {
			Kernel:    filepath.Join(dir, "ipa-ironroot-amd64.kernel"),
			Initramfs: filepath.Join(dir, "ipa-ironroot-amd64.initramfs"),
			Cmdline:   "console=tty0 console=ttyS0,115200n8 ipa-api-url=https://192.0.2.1:6385 quiet",
		}},
		Machines: []pxe.Machine{
			{MAC: mac(12)}, {MAC: mac(10), Parameters: `ipa-agent-token=SECRET x="1 2"`}, {MAC: mac(11)},
		},
		Addresses: &pxe.Addresses{
			First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.20"),
			Router: netip.MustParseAddr("192.0.2.254"),
			DNS:    []netip.Addr{netip.MustParseAddr("192.0.2.253"), netip.MustParseAddr("192.0.2.252")},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(pxe.Options{}),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c, _ = parseNetboot(t, "--dir DIR --name other")
	if got, err := c.configure(); err != nil || got.Systems["arm64"].Kernel == "" || len(got.Systems) != 1 {
		t.Errorf("arm64: got %+v and %v", got.Systems, err)
	}
}

// Errors of flags and files name the flag or the line, and no parameters.
func TestNetbootErrors(t *testing.T) {
	for line, want := range map[string]string{
		"--dir DIR --name absent":                       "no kernel absent-ARCH.kernel in ",
		"--dir DIR --name half":                         "half-amd64.initramfs: no such file",
		"--dir DIR --name cut":                          "cut-amd64.kernel: is truncated: has 4000 bytes, want 4096",
		"--dir DIR --name swapped":                      "swapped-arm64.kernel: is for amd64, want arm64",
		"--dir DIR --name sum":                          "sum-amd64.initramfs: has SHA-256",
		"--kernel DIR/snponly.efi":                      "--kernel and --initramfs: want both",
		"--dir DIR --api-url ironic":                    "--api-url ironic: want a URL",
		"--dir DIR --mac 1":                             "--mac: address 1: invalid MAC address",
		"--dir DIR --machines DIR/wrong":                "wrong: line 2 does not begin with a MAC address",
		"--dir DIR --machines DIR/empty":                "no machine is listed",
		"--dir DIR --router 192.0.2.1":                  "--router and --dns: want --range, too",
		"--dir DIR --range 192.0.2.1":                   "--range 192.0.2.1: want FIRST-LAST",
		"--dir DIR --range 192.0.2.1-9 --dns 1":         "--range 192.0.2.1-9: want FIRST-LAST",
		"--dir DIR --address here":                      `--address: ParseAddr("here")`,
		"--dir DIR --range 192.0.2.1-192.0.2.9 --dns x": `--dns: ParseAddr("x")`,
	} {
		c, _ := parseNetboot(t, line)
		if _, err := c.configure(); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}

// Boot loaders of the operator are preferred to Debian's, which are then not fetched.
func TestNetbootLoaders(t *testing.T) {
	c, dir := parseNetboot(t, "--dir DIR --loaders DIR")
	if err := os.WriteFile(filepath.Join(dir, "undionly.kpxe"), []byte("own BIOS"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := c.configure()
	if err != nil {
		t.Fatal(err)
	}
	c.Mirror, c.Offline = "file:///nonexistent", true
	got, err := c.loaders(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{"undionly.kpxe": []byte("own BIOS"), "snponly.efi": []byte("own")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.SecureBoot = true
	t.Setenv("HOME", t.TempDir()) // no packages in the cache
	t.Setenv("XDG_CACHE_HOME", "")
	if _, err := c.loaders(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--loaders") {
		t.Errorf("boot loaders that cannot be fetched: got %v, want an error that names --loaders", err)
	}
}

// Errors that an operator can do something about say what.
func TestNetbootAdvice(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&pxe.OtherServerError{Interface: "eth1", Server: netip.MustParseAddr("192.0.2.2")}, "omit --range"},
		{fmt.Errorf("x: %w", syscall.EADDRINUSE), "ss -lnpu"},
		{fmt.Errorf("x: %w", syscall.EACCES), "as root"},
		{fmt.Errorf("x: %w", syscall.EPERM), "as root"},
		{errors.New("other"), "other"},
	} {
		if got := advise(c.err); !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.err, got, c.want)
		}
	}
	if err := advise(nil); err != nil {
		t.Errorf("no error: got %v", err)
	}
}
