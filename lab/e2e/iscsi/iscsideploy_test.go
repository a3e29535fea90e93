//go:build linux && long

package iscsi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

const (
	legacyMAC       = "52:54:00:e2:e0:61"
	legacyAgent     = "192.0.2.50"
	legacyConductor = "192.0.2.1"
	legacyStranger  = "192.0.2.9" // another address of the network
	legacyInitiator = "iqn.1993-08.org.debian:01:conductor"
	scriptPort      = 8000 // of the conductor's machine
)

// legacy is a deployment over iSCSI: the node, and the machine with the conductor's open-iscsi, whose connections have
// the conductor's address.
type legacy struct {
	*rig.Site
	disk, image string
	debian      string           // disk image of the conductor's machine
	report      initramfs.Report // kernel and ramdisk of the conductor's machine
	initiator   *qemu.Machine
}

// TestLegacyISCSI deploys a node over iSCSI, as Ironic up to version 17 did: the conductor writes the image with
// Debian's open-iscsi to the disk that the agent exports. Nobody else can connect, and the target ends in every case.
//
// Parity: E14, E15
func TestLegacyISCSI(t *testing.T) {
	t.Parallel()
	l := startLegacy(t)
	l.WaitAgent(t)
	l.ready(t)
	t.Run("bad input", l.badInput)
	t.Run("second port", l.secondPort)
	t.Run("old name", l.oldName)
	t.Run("disappeared", l.disappeared)
	if t.Run("deploy", l.deploy) {
		t.Run("boot", l.boots)
	}
}

func startLegacy(t *testing.T) *legacy {
	t.Helper()
	testenv.Programs(t, "dnsmasq")
	l := &legacy{Site: rig.NewSite(t), debian: testenv.DebianDisk(t, "bookworm", "open-iscsi")}
	cable := l.Tap("cable", legacyConductor+"/24", legacyStranger+"/24")
	l.Dnsmasq("--interface=cable", "--dhcp-range="+legacyAgent+","+legacyAgent+",1h")
	l.StartIronic(netip.MustParseAddr(legacyConductor), legacyMAC, time.Minute, func(o *conductor.Options) {
		o.APIVersion = "1.69" // Wallaby
	})
	l.image = rig.BootableDisk(t, "NEW SYSTEM", 24*rig.MiB)
	l.disk = filepath.Join(t.TempDir(), "disk")
	var err error
	l.report, err = initramfs.Build(t.Context(), initramfs.Options{
		Dir: testenv.Top(t), Out: t.TempDir(), ModuleGroups: []string{"virtual", "storage"},
		Init: "ironroot/lab/e2e/guest/initiator",
	})
	if err != nil {
		t.Fatal(err)
	}
	rig.DiskFile(t, l.disk, rig.Read(t, rig.BootableDisk(t, "OLD SYSTEM", 64*rig.MiB), 0, 64*rig.MiB))
	if err := os.Truncate(l.disk, sanSize); err != nil {
		t.Fatal(err)
	}
	l.startInitiator(t)
	l.BootAs(qemu.Config{
		Memory: 512 * rig.MiB, Firmware: qemu.UEFI, NICs: []qemu.NIC{{MAC: legacyMAC, Netdev: cable}},
		Disks: []qemu.Disk{{Bus: qemu.Virtio, File: l.disk}},
	}, "ipa-insecure=1 ipa-api-url="+l.Ironic.URL())
	return l
}

// startInitiator starts the conductor's machine with the image on /dev/vdb.
func (l *legacy) startInitiator(t *testing.T) {
	t.Helper()
	m, err := qemu.Start(l.T.Context(), qemu.Config{
		Name: "initiator", Dir: l.T.TempDir(), Memory: 384 * rig.MiB, CPUs: 1, NetNS: l.NS.Path(),
		Kernel: l.report.Kernel, Initrd: l.report.Initramfs, Append: "console=ttyS0 " + qemu.KernelHints,
		Disks: []qemu.Disk{
			{Bus: qemu.Virtio, File: l.debian, Serial: "DEBIAN", ReadOnly: true},
			{Bus: qemu.Virtio, File: l.image, Serial: "IMAGE", ReadOnly: true},
		},
		NICs: []qemu.NIC{{MAC: "52:54:00:e2:e0:62", Forwards: []qemu.Forward{{Host: scriptPort, Guest: scriptPort}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.initiator = m
	l.T.Cleanup(func() {
		_ = m.Stop() // it may have ended already
		if l.T.Failed() {
			l.T.Logf("the console of the initiator ends with\n%s", m.Console().Tail(60))
		}
	})
}

// ready waits until the conductor's machine runs scripts.
func (l *legacy) ready(t *testing.T) {
	t.Helper()
	match, err := l.initiator.Console().Follow(rig.Soon(t), regexp.MustCompile(`INITIATOR (READY)|FAILED (.*)\s`))
	if err != nil || match.Groups[1] != "READY" {
		t.Fatalf("initiator: got %v, %v", match, err)
	}
}

// sh runs a script on the conductor's machine and returns its output.
func (l *legacy) sh(ctx context.Context, script string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: l.NS.DialContext}}
	defer client.CloseIdleConnections()
	url := fmt.Sprintf("http://127.0.0.1:%d/", scriptPort)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(script))
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	out, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("script %q: %s", script, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (l *legacy) must(t *testing.T, script string) string {
	t.Helper()
	out, err := l.sh(rig.Soon(t), script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// login returns a script that discovers the target, logs in, and sets disk to the device of unit 1.
func login(iqn string, port int) string {
	return fmt.Sprintf(`iscsiadm -m discovery -t sendtargets -p %s
iscsiadm -m node -T %s -p %s --login
`, portal(port), iqn, portal(port)) + device
}

// portal is the address of the target.
func portal(port int) string { return net.JoinHostPort(legacyAgent, strconv.Itoa(port)) }

// device sets disk to the device of unit 1 of the only session.
const device = `for try in $(seq 600); do
    disk=$(ls -d /sys/class/iscsi_session/session*/device/target*/*:*:*:1/block/* 2>/dev/null) && break
    sleep 0.1
done
disk=/dev/${disk##*/}
test -b "$disk"
`

func logout(iqn string) string {
	return fmt.Sprintf("iscsiadm -m node -T %s --logout\niscsiadm -m node -T %s -o delete\n", iqn, iqn)
}

// fails runs a command of the agent that must fail, and returns its error.
func (l *legacy) fails(t *testing.T, name string, params map[string]any) *conductor.CommandError {
	t.Helper()
	r, err := l.Node.Command(rig.Soon(t), name, params, true)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != conductor.Failed {
		t.Fatalf("%s %v: got %s, want %s", name, params, r.Status, conductor.Failed)
	}
	return r.Error
}

func (l *legacy) badInput(t *testing.T) {
	for want, params := range map[string]map[string]any{
		"parameter iqn":         {"iqn": "node-7"},
		"parameter portal_port": {"portal_port": 65536},
	} {
		_, err := l.Node.Command(rig.Soon(t), "iscsi.start_iscsi_target", params, true)
		var fault *conductor.FaultError
		if !errors.As(err, &fault) || fault.Status != http.StatusBadRequest || !strings.Contains(fault.Fault, want) {
			t.Errorf("%v: got %v, want 400 with %q", params, err, want)
		}
	}
	// The API has this port.
	failed := l.fails(t, "iscsi.start_iscsi_target", map[string]any{"portal_port": rig.AgentPort})
	if failed.Type != "ISCSIError" || !strings.Contains(failed.Details, "address already in use") {
		t.Errorf("port in use: got %v, want an ISCSIError", failed)
	}
	l.closed(t, 3260)
}

// secondPort exports the wiped disk at another port than 3260.
func (l *legacy) secondPort(t *testing.T) {
	const port = 3261
	if found := rig.Signatures(t, l.disk); !strings.Contains(found, "gpt") {
		t.Fatalf("got signatures %q on the disk, want a GPT", found)
	}
	iqn, err := l.Node.StartISCSITarget(rig.Soon(t), port, true)
	if err != nil {
		t.Fatal(err)
	}
	l.onlyConductor(t, port)
	first := l.must(t, login(iqn, port)+`dd if=$disk bs=1M count=1 iflag=direct | tr -d '\0' | wc -c`)
	if !strings.HasSuffix(first, "\n0") && !strings.Contains(first, "\n0\n") {
		t.Errorf("first MiB of the exported disk: got %q, want only zeros after wipe_disk_metadata", first)
	}
	l.must(t, device+fmt.Sprintf(`test "$(blockdev --getsize64 $disk)" = %d`, int64(sanSize)))
	for name, params := range map[string]map[string]any{
		"another target":   {"iqn": iqn + "2", "portal_port": port},
		"another port":     {"iqn": iqn, "portal_port": port + 1},
		"the same, in use": {"iqn": iqn, "portal_port": port},
	} {
		if failed := l.fails(t, "iscsi.start_iscsi_target", params); failed.Type != "ISCSIError" ||
			!strings.Contains(failed.Details, "exists already") {
			t.Errorf("%s: got %v, want an ISCSIError", name, failed)
		}
	}
	// Nothing else writes to the disk meanwhile.
	failed := l.fails(t, "standby.prepare_image", map[string]any{"image_info": map[string]any{
		"id": "i", "urls": []string{"http://" + legacyConductor + ":1/i"}, "disk_format": "raw",
		"os_hash_algo": "sha256", "os_hash_value": strings.Repeat("0", 64),
	}})
	if !strings.Contains(failed.Details, "busy") {
		t.Errorf("prepare_image during the export: got %v, want a busy device", failed)
	}
	l.must(t, logout(iqn))
	again, err := l.Node.StartISCSITarget(rig.Soon(t), port, false)
	if err != nil || again != iqn {
		t.Errorf("again after the logout: got %q, %v, want %q", again, err, iqn)
	}
	l.installBootloader(t, true)
	l.closed(t, port)
	if found := rig.Signatures(t, l.disk); found != "" {
		t.Errorf("got signatures %q on the disk, want none", found)
	}
}

// oldName exports the disk as Ironic before 4.0 requested it, by a name that is no iSCSI name.
func (l *legacy) oldName(t *testing.T) {
	const port = 3260
	iqn := "iqn-" + l.Node.UUID()
	record, err := l.Node.Command(rig.Soon(t), "iscsi.start_iscsi_target", map[string]any{"iqn": iqn}, true)
	if err != nil || record.Status != conductor.Succeeded {
		t.Fatalf("got %+v, %v, want success", record, err)
	}
	if want := `{"iscsi_target_iqn":"` + iqn + `"}`; string(record.Result) != want {
		t.Errorf("got result %s, want %s", record.Result, want)
	}
	l.must(t, login(iqn, port)+fmt.Sprintf(`test "$(blockdev --getsize64 $disk)" = %d`, int64(sanSize)))
	l.must(t, logout(iqn))
	l.installBootloader(t, true)
	l.closed(t, port)
}

// onlyConductor checks who can connect to the portal.
func (l *legacy) onlyConductor(t *testing.T, port int) {
	t.Helper()
	dial := func(from string, limit time.Duration) error {
		return l.NS.Do(func() error {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: limit}
			conn, err := d.Dial("tcp", portal(port))
			if err == nil {
				_ = conn.Close()
			}
			return err
		})
	}
	if err := dial(legacyConductor, rig.OperationTimeout); err != nil {
		t.Errorf("the conductor's address: %v", err)
	}
	var timeout net.Error
	if err := dial(legacyStranger, 10*time.Second); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("another address: got %v, want a timeout", err)
	}
}

// closed checks that nothing listens at a port of the node, also for strangers: no rule is left.
func (l *legacy) closed(t *testing.T, port int) {
	t.Helper()
	err := l.NS.Do(func() error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(legacyStranger)}, Timeout: rig.OperationTimeout}
		conn, err := d.Dial("tcp", portal(port))
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("port %d after the end of the target: got %v, want a refused connection", port, err)
	}
}

// installBootloader runs the command for a whole-disk image and checks that it succeeds.
func (l *legacy) installBootloader(t *testing.T, ignore bool) {
	t.Helper()
	r, err := l.Node.Command(rig.Soon(t), "image.install_bootloader", map[string]any{
		"root_uuid": "0x00000000", "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil, "target_boot_mode": "uefi",
		"ignore_bootloader_failure": ignore,
	}, true)
	if err != nil || r.Status != conductor.Succeeded {
		t.Errorf("install_bootloader: got %+v, %v, want success", r, err)
	}
}

// disappeared ends the conductor's machine in the middle of a write. The boot loader is refused, and the target is
// removed nevertheless.
func (l *legacy) disappeared(t *testing.T) {
	const port = 3260
	iqn, err := l.Node.StartISCSITarget(rig.Soon(t), port, false)
	if err != nil {
		t.Fatal(err)
	}
	l.must(t, login(iqn, port)+`dd if=/dev/urandom of=$disk bs=64k oflag=direct >/dev/null 2>&1 &
stat=/sys/block/${disk##*/}/stat
for try in $(seq 600); do
    read -r _ _ _ _ _ _ sectors _ <$stat
    test "$sectors" -gt 2048 && exit
    sleep 0.1
done
exit 1`)
	if _, err := l.initiator.QMP(rig.Soon(t), "stop", nil); err != nil {
		t.Fatal(err)
	}
	r, err := l.Node.Command(rig.Soon(t), "image.install_bootloader", map[string]any{
		"root_uuid": "0x00000000", "target_boot_mode": "uefi", "ignore_bootloader_failure": true,
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != conductor.Failed || r.Error.Type != "ISCSIError" ||
		!strings.Contains(r.Error.Details, "logged in: "+legacyInitiator) {
		t.Errorf("install_bootloader: got %+v %v, want an ISCSIError with the initiator", r, r.Error)
	}
	l.closed(t, port)
	if err := l.initiator.Stop(); err != nil {
		t.Error(err)
	}
	l.startInitiator(t)
	l.ready(t)
}

// deploy deploys the image and compares the disk with it.
func (l *legacy) deploy(t *testing.T) {
	const port = 3260
	want := rig.SumAll(t, l.image)
	err := l.Node.DeployISCSI(rig.Soon(t), port, func(ctx context.Context, iqn string) (string, error) {
		out, err := l.sh(ctx, login(iqn, port)+fmt.Sprintf(`
dd if=/dev/vdb of=$disk bs=1M oflag=direct conv=fsync
blockdev --flushbufs $disk
dd if=$disk bs=1M count=%d iflag=direct | sha256sum
echo ID 0x$(od -A n -t x4 -j 440 -N 4 $disk | tr -d ' ')
`, rig.SizeOf(t, l.image)/rig.MiB)+logout(iqn))
		if err != nil {
			return "", err
		}
		if !strings.Contains(out, want) {
			return "", fmt.Errorf("read back: got %s, want SHA-256 %s", out, want)
		}
		found := regexp.MustCompile(`ID (0x[0-9a-f]{8})`).FindStringSubmatch(out)
		if found == nil {
			return "", fmt.Errorf("got no disk identifier in %s", out)
		}
		return found[1], nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Machine.Wait(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	console := l.Machine.Console().String()
	for _, expression := range []string{
		`sessions of iSCSI target changed .*` + regexp.QuoteMeta(legacyInitiator), `boot entry written`,
	} {
		if !regexp.MustCompile(expression).MatchString(console) {
			t.Errorf("nothing on the console matches %q", expression)
		}
	}
	removed := strings.LastIndex(console, "iSCSI target removed")
	if entry := strings.LastIndex(console, "boot entry written"); removed < 0 || removed > entry {
		t.Errorf("got the boot entry at %d of the console, want it after the end of the target at %d", entry, removed)
	}
	if started, ended := strings.Count(console, "iSCSI target started"), strings.Count(console,
		"iSCSI target removed"); started != ended || started == 0 {
		t.Errorf("got %d targets and %d removed ones", started, ended)
	}
	if !bytes.Equal(rig.Read(t, l.disk, 0, rig.SizeOf(t, l.image)), rig.Read(t, l.image, 0, rig.SizeOf(t, l.image))) {
		t.Error("the disk differs from the image")
	}
}

// boots boots the deployed system.
func (l *legacy) boots(t *testing.T) {
	rig.WaitConsole(t, rig.BootFrom(t, []string{l.disk}, qemu.Config{Memory: 64 * rig.MiB, Firmware: qemu.BIOS}),
		"NEW SYSTEM")
}
