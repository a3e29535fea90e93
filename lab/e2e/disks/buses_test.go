//go:build linux

package disks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// marker is an endless text that fills disks, so that remaining content can be found.
type marker struct{}

func (marker) Read(p []byte) (int, error) {
	n := len(p) / len(rig.OldText) * len(rig.OldText)
	if n == 0 {
		return 0, fmt.Errorf("a buffer of %d bytes is too small", len(p))
	}
	copy(p, bytes.Repeat(rig.OldText, n/len(rig.OldText)))
	return n, nil
}

// TestBuses boots a machine with disks on all buses and a pre-generated token. Ironic is unreachable for longer than
// the lookup's time limit, so the agent starts over. Virtual media are attached, but the kernel's command line does
// not enable them.
//
// Parity: D3, B3 (Ironic down)
func TestBuses(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "sgdisk", "wipefs", "mkfs.vfat")
	virtio, sata := rig.File(t, "virtio", rig.DiskSize, marker{}), rig.File(t, "sata", rig.DiskSize, marker{})
	nvme, nvme4k := rig.File(t, "nvme", rig.DiskSize, marker{}), rig.File(t, "nvme4k", rig.DiskSize, marker{})
	shared := rig.File(t, "shared", rig.DiskSize, marker{})
	disks := []string{virtio, sata, nvme, nvme4k, shared}
	t.Run("tables", func(t *testing.T) {
		for _, path := range disks[:3] {
			testenv.Run(t, "sgdisk", "-n", "1:1M:0", path)
		}
		testenv.Run(t, "sgdisk", "-n", "1:256:0", testenv.Loop(t, nvme4k, 4096))
		testenv.Run(t, "mkfs.vfat", shared)
	})
	kept := newProtected(t)
	ns := rig.NewNamespace(t)
	wrong := rig.NewDecoy(t, ns)
	floppy := rig.FATImage(t, 4*rig.MiB, "ir-vfd-dev", wrong.APIParameter())
	content := rig.SumAll(t, floppy)
	dump := rig.Capture{Path: filepath.Join(t.TempDir(), "net.pcap")}
	token := conductor.NewToken()
	key, line := rig.NewKey(t)
	r := rig.Start(t, rig.Setup{
		Namespace:  ns,
		Properties: map[string]any{"skip_block_devices": []any{map[string]any{"serial": protectedSerial}}},
		LateIronic: true, Token: token, Append: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ipa-lookup-timeout=1 " +
			`sshkey="` + line + `" rootpwd="` + operatorHash + `"`,
		Machine: qemu.Config{Memory: 512 * rig.MiB, Extra: dump.Arguments(0), Disks: []qemu.Disk{
			{File: virtio, Serial: "on-virtio", NoDiscard: true},
			{File: sata, Serial: "on-sata", Bus: qemu.SATA, WWN: 0x5000c500a1b2c3d4, NoDiscard: true},
			{File: nvme, Serial: "on-nvme", Bus: qemu.NVMe, NoDiscard: true},
			{File: nvme4k, Serial: "on-nvme4k", Bus: qemu.NVMe, Sector: 4096, NoDiscard: true},
			{File: shared, Serial: "shared"},
			{File: floppy, Serial: "floppy", Bus: qemu.USB},
			{File: kept.path, Serial: protectedSerial, Bus: qemu.NVMe},
		}, CDROM: rig.ISOImage(t, "VMEDIA_BOOT_ISO",
			map[string]string{"etc/ironic-python-agent.d/a.conf": wrong.Conf()})},
	})
	_, err := r.Machine.Console().Follow(rig.Soon(t), regexp.MustCompile(`starting over.*lookup of this node failed`))
	if err != nil {
		t.Fatal(err)
	}
	r.StartConductor()
	r.WaitAgent(t)
	t.Run("token", func(t *testing.T) { keptToken(t, r, token) })
	var names map[string]string
	t.Run("inventory", func(t *testing.T) { names = inventoryDisks(t, r) })
	t.Run("metadata", func(t *testing.T) { eraseMetadata(t, r, disks) })
	t.Run("all data", func(t *testing.T) { eraseDevices(t, r, disks, names) })
	t.Run("floppy", func(t *testing.T) { keptFloppy(t, r, floppy, content, names["floppy"]) })
	t.Run("protected disk", func(t *testing.T) { protected(t, r, kept, names[protectedSerial], virtio) })
	var login *ssh.Client
	t.Run("operators", func(t *testing.T) { login = operators(t, r, key) })
	t.Run("lockdown", func(t *testing.T) {
		lockdown(t, r, dump)
		rig.LoginEnded(t, login)
	})
}

// keptToken checks that the agent keeps a pre-generated token: the conductor masks it in lookup replies and rejects
// heartbeats with another one.
//
// Parity: B9
func keptToken(t *testing.T, r *rig.Rig, token string) {
	if r.Node.Token() != token {
		t.Fatal("the node has another token")
	}
	if status, answer := r.Call(t, http.MethodGet, token, ""); status != http.StatusOK {
		t.Errorf("with the token: got %d %s, want 200", status, answer)
	}
	if status, _ := r.Call(t, http.MethodGet, "******", ""); status != http.StatusUnauthorized {
		t.Errorf("with the mask as a token: got %d, want 401", status)
	}
}

// inventoryDisks compares the inventory with the machine's disks, and returns the disks' names by serial number. The
// order in which SATA and USB, or several NVMe controllers, find their disks is not fixed.
func inventoryDisks(t *testing.T, r *rig.Rig) (names map[string]string) {
	var inventory struct {
		Disks []struct {
			Name, Serial string
			Size         int64
			Logical      int64 `json:"logical_sectors"`
			Physical     int64 `json:"physical_sectors"`
		}
	}
	if err := json.Unmarshal([]byte(r.Succeed(t, "poll.get_hardware_info", nil)), &inventory); err != nil {
		t.Fatal(err)
	}
	got, unsettled := map[string]string{}, regexp.MustCompile(`^(/dev/sd)[ab]$|^(/dev/nvme)[0-2](n1)$`)
	names = map[string]string{}
	for _, d := range inventory.Disks {
		names[d.Serial] = d.Name
		got[d.Serial] = fmt.Sprintf("%s %d %d/%d",
			unsettled.ReplaceAllString(d.Name, "$1$2?$3"), d.Size, d.Logical, d.Physical)
	}
	want := map[string]string{
		"on-virtio": "/dev/vda 50331648 512/512",
		"on-sata":   "/dev/sd? 50331648 512/512",
		"on-nvme":   "/dev/nvme?n1 50331648 512/512",
		"on-nvme4k": "/dev/nvme?n1 50331648 4096/4096",
		"shared":    "/dev/vdb 50331648 512/512",
		"floppy":    "/dev/sd? 4194304 512/512",
		// The skip list does not affect the inventory.
		protectedSerial: "/dev/nvme?n1 4294967296 512/512",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("disks differ (-want +got):\n%s", diff)
	}
	return names
}

// eraseMetadata checks that all tables and signatures are removed, but not the data between them.
func eraseMetadata(t *testing.T, r *rig.Rig, disks []string) {
	if err := r.Node.Clean(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	for _, path := range disks {
		name := filepath.Base(path)
		if found := testenv.Run(t, "wipefs", "--no-act", path); found != "" {
			t.Errorf("%s: wipefs finds\n%s", name, found)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("EFI PART")) {
			t.Errorf("%s: a GPT header is left", name)
		}
		if !bytes.Contains(data, rig.OldText) {
			t.Errorf("%s: erasing metadata has erased all data", name)
		}
	}
}

// eraseDevices checks that all content is destroyed and that the log names the method.
func eraseDevices(t *testing.T, r *rig.Rig, disks []string, names map[string]string) {
	if err := r.Node.Clean(rig.Soon(t), "deploy.erase_devices"); err != nil {
		t.Fatal(err)
	}
	for _, path := range disks {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.IndexFunc(data, func(c rune) bool { return c != 0 }); at >= 0 {
			t.Errorf("%s: byte %d is not zero", filepath.Base(path), at)
		}
	}
	for serial, method := range map[string]string{
		"on-virtio": "overwrite", "on-sata": "overwrite", "on-nvme": "nvme-format-user",
		"on-nvme4k": "nvme-format-user",
	} {
		rig.WaitConsole(t, r.Machine, "device erased.*"+names[serial]+".*"+method)
	}
}

// keptFloppy checks that no erase step changed the conductor's floppy, and that the other disks were erased.
//
// Parity: D6
func keptFloppy(t *testing.T, r *rig.Rig, path, content, device string) {
	if got := rig.SumAll(t, path); got != content {
		t.Error("the virtual floppy was written to")
	}
	line := `device left untouched.*device=` + device + ` reason="virtual floppy`
	console := rig.WaitConsole(t, r.Machine, "(?s)"+line+".*"+line)
	if lines := regexp.MustCompile(line).FindAllString(console, -1); len(lines) != 2 {
		t.Errorf("the console says %d times that the floppy was left untouched, want once for metadata and once "+
			"for all data", len(lines))
	}
}

// lockdown closes the API and shuts down the network. The machine continues to run.
//
// Parity: E12, R9
func lockdown(t *testing.T, r *rig.Rig, dump rig.Capture) {
	if got := r.Succeed(t, "system.lockdown", nil); got != "null" {
		t.Errorf("got result %s, want null", got)
	}
	console := r.Machine.Console()
	if _, err := console.Follow(rig.Soon(t), regexp.MustCompile(`lockdown complete`)); err != nil {
		t.Fatal(err)
	}
	// QEMU's main loop, which sends the guest's last frames, answers after it has done so.
	if _, err := r.Machine.QMP(rig.Soon(t), "query-status", nil); err != nil {
		t.Fatal(err)
	}
	silent := len(dump.Sent(t, rig.NodeMAC))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: r.DialContext}}
	if response, err := client.Do(request); err == nil {
		_ = response.Body.Close()
		t.Errorf("the API answers %s, want no answer", response.Status)
	}
	// In the meantime QEMU's network has sent an ARP request for the machine's address. A link that is up would have
	// replied, even without a listener.
	if sent := dump.Sent(t, rig.NodeMAC)[silent:]; len(sent) > 0 {
		t.Errorf("the machine still sends %q", sent)
	}
	if !r.Machine.Running() {
		t.Error("the machine has ended")
	}
}
