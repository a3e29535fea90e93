//go:build linux

package iscsi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/sshtest"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/netboot/server"
)

const (
	sanTarget    = "iqn.2004-01.org.example:disk"
	sanInitiator = "iqn.2010-04.org.ipxe:node"
	sanSize      = 5 << 30
	onTarget     = "ON THE TARGET" // text at the start of a disk
	sanReason    = "reached over a network (iscsi), and erase_network_disks is not set"
)

// sanhook returns the lines of an iPXE script that attach the target.
func sanhook(target *testenv.ISCSITarget, command string) string {
	return fmt.Sprintf("set initiator-iqn %s\nset username %s\nset password %s\nset reverse-username %s\n"+
		"set reverse-password %s\n%s iscsi:%s::%d:1:%s\n", sanInitiator, target.User, target.Secret, target.TargetUser,
		target.TargetSecret, command, rig.Host, target.Address.Port(), target.Name)
}

// metal3Parameters are kernel parameters of Metal3's iPXE scripts, several of which mean nothing to the ramdisk. The
// key is truncated. iPXE replaces ${mac}, which server.Script rejects: startISCSI puts it in for bootMAC.
const (
	metal3Parameters = `ipa-insecure=0 systemd.journald.forward_to_console=yes BOOTIF=` + bootMAC +
		` ipa-enable-vlan-interfaces=all sshkey="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI admin of metal3"`
	bootMAC = "MAC-OF-THE-BOOT-INTERFACE"
)

// startISCSI boots the ramdisk by iPXE from a machine without disks, which has attached a target with mutual CHAP. The
// parameters and the two archives are Metal3's: the second one contains the certificate authority of Ironic's
// API.
func startISCSI(t *testing.T) (*rig.Rig, *testenv.ISCSITarget) {
	t.Helper()
	disk := rig.File(t, "san", sanSize, nil)
	rig.Patch(t, disk, 0, bytes.Repeat([]byte{0xa5}, rig.MiB))
	ns := rig.NewNamespace(t)
	target := testenv.StartISCSI(t, testenv.ISCSITarget{
		Address: netip.MustParseAddrPort("127.0.0.1:3260"), Launcher: ns,
		Name: sanTarget, Disk: disk, User: "node", Secret: "chap-of-the-node", TargetUser: "disk",
		TargetSecret: "chap-of-the-disk",
	})
	return rig.Start(t, rig.Setup{
		Namespace: ns, Append: metal3Parameters,
		Machine: qemu.Config{Memory: 512 * rig.MiB, Firmware: qemu.BIOS},
		Prepare: func(r *rig.Rig, c *qemu.Config) {
			r.Images.File("kernel", c.Kernel)
			r.Images.File("initramfs", c.Initrd)
			r.Images.Bytes("ipa-cacert-bundle", testenv.CABundle(t, r.Conductor.CertificatePEM()))
			script, err := server.Script{
				Kernel: r.Images.URLFrom(rig.Host, "kernel"),
				Initrds: []string{r.Images.URLFrom(rig.Host, "initramfs"), r.Images.URLFrom(rig.Host,
					"ipa-cacert-bundle")},
				Cmdline: c.Append,
			}.Render()
			if err != nil {
				t.Fatal(err)
			}
			const head = "#!ipxe\n"
			boot := strings.Replace(strings.TrimPrefix(string(script), head), bootMAC, "${mac}", 1)
			r.Images.Bytes("boot.ipxe", []byte(head+sanhook(target, "sanhook --drive 0x80")+boot))
			c.Kernel, c.Initrd, c.Append = "", "", ""
			c.NICs[0].Boot, c.NICs[0].BootFile = 1, r.Images.URLFrom(rig.Host, "boot.ipxe")
			r.Secrets = append(r.Secrets, target.Secret, target.TargetSecret)
		},
	}), target
}

// TestISCSI boots the ramdisk by iPXE, which attaches an iSCSI target with mutual CHAP and describes it in the iBFT.
// The machine has no other disk. The disk is listed, left alone by erase steps, deployed to, also after the target has
// closed the connection, and boots. The API is reachable only with the certificate authority of the second archive that
// iPXE has loaded.
//
// Parity: F10 (iBFT), P6 (disks of a network), T2
func TestISCSI(t *testing.T) {
	t.Parallel()
	r, target := startISCSI(t)
	disk := target.Disk
	r.WaitAgent(t)
	t.Run("invalid key", func(t *testing.T) {
		console := rig.WaitConsole(t, r.Machine,
			`operators cannot log in.*parameter sshkey: public key: no valid public key`)
		if strings.Contains(console, "SSH server started") {
			t.Error("the SSH server is on without a valid key")
		}
	})
	var path string
	t.Run("inventory", func(t *testing.T) { path = sanDisk(t, r, target.Address) })
	t.Run("erase", func(t *testing.T) { sanKept(t, r, path, disk) })
	image := rig.BootableDisk(t, "NEW SYSTEM", 24*rig.MiB)
	r.Images.File("mbr.raw", image)
	deploy := func(t *testing.T) {
		r.Succeed(t, "standby.prepare_image", map[string]any{"image_info": r.RawInfo("mbr.raw", rig.SumAll(t, image))})
		if got, want := rig.Sum(t, disk, rig.MiB, 22*rig.MiB), rig.Sum(t, image, rig.MiB, 22*rig.MiB); got != want {
			t.Errorf("partitions: the target's SHA-256 is %s, want the image's, %s", got, want)
		}
		rig.SoundGPT(t, disk)
	}
	t.Run("deploy", deploy)
	t.Run("connection lost", func(t *testing.T) {
		target.Stop()
		rig.WaitConsole(t, r.Machine, `iSCSI connection lost, connecting again.*closed the connection`)
		target.Start()
		rig.Patch(t, disk, 0, make([]byte, rig.MiB))
		deploy(t)
		rig.WaitConsole(t, r.Machine, `iSCSI connection restored`)
	})
	t.Run("power_off", func(t *testing.T) {
		r.PowerOff(t)
		rig.WaitConsole(t, r.Machine, `iSCSI session ended`)
		if sessions := target.Sessions(); strings.Contains(sessions, "Session") {
			t.Errorf("the target still has a session:\n%s", sessions)
		}
	})
	t.Run("boot", func(t *testing.T) { bootsFromSAN(t, r, target) })
}

// bootsFromSAN boots the deployed system from the target.
func bootsFromSAN(t *testing.T, r *rig.Rig, target *testenv.ISCSITarget) {
	r.Images.Bytes("san.ipxe", []byte("#!ipxe\n"+sanhook(target, "sanboot")))
	m, err := qemu.Start(t.Context(), qemu.Config{
		Name: t.Name(), Dir: t.TempDir(), Memory: 64 * rig.MiB, CPUs: 1, Firmware: qemu.BIOS,
		NICs:  []qemu.NIC{{MAC: rig.NodeMAC, Boot: 1, BootFile: r.Images.URLFrom(rig.Host, "san.ipxe")}},
		NetNS: r.Namespace.Path(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	rig.WaitConsole(t, m, "NEW SYSTEM")
}

// sanDisk returns the device path of the target's disk, which is the only disk of the inventory.
func sanDisk(t *testing.T, r *rig.Rig, address netip.AddrPort) string {
	type found struct {
		Name string
		Size int64
		Path string `json:"by_path"`
	}
	var inventory struct{ Disks []found }
	if err := json.Unmarshal([]byte(r.Succeed(t, "poll.get_hardware_info", nil)), &inventory); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("/dev/disk/by-path/ip-%s:%d-iscsi-%s-lun-1", rig.Host, address.Port(), sanTarget)
	if len(inventory.Disks) != 1 || inventory.Disks[0].Size != sanSize || inventory.Disks[0].Path != want {
		t.Fatalf("got disks %+v, want one with %d bytes at %s", inventory.Disks, sanSize, want)
	}
	return inventory.Disks[0].Name
}

// sanKept checks that erase steps do not change the disk and name it.
func sanKept(t *testing.T, r *rig.Rig, path, disk string) {
	before, allocated := rig.Read(t, disk, 0, rig.MiB), blocks(t, disk)
	for _, step := range []string{"erase_devices", "erase_devices_metadata", "erase_devices_express"} {
		record := r.EraseStep(t, step, nil)
		if record.Status != conductor.Succeeded {
			t.Fatalf("%s: got %s (%v), want %s", step, record.Status, record.Error, conductor.Succeeded)
		}
		var got struct {
			Result map[string]struct{ Untouched map[string]string } `json:"clean_result"`
		}
		if err := json.Unmarshal(record.Result, &got); err != nil {
			t.Fatal(err)
		}
		if got.Result[path].Untouched[path] != sanReason {
			t.Errorf("%s: got %s, want %s untouched: %s", step, record.Result, path, sanReason)
		}
	}
	if !bytes.Equal(before, rig.Read(t, disk, 0, rig.MiB)) || blocks(t, disk) != allocated {
		t.Error("the disk was written to")
	}
	rig.WaitConsole(t, r.Machine, `device left untouched device=`+path+` reason="`+regexp.QuoteMeta(sanReason))
}

// blocks returns the number of blocks that a sparse file has.
func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks
}

// ibftTable returns the body of an iBFT (version 1.03) with one network card and targets, which follows the header of
// the ACPI table.
func ibftTable(initiator, mac string, address netip.Prefix, targets ...*testenv.ISCSITarget) []byte {
	const acpiHeader, control, first = 36, 48, 48 + 18
	table := make([]byte, 1024)
	end := 700 // of the structures, where texts begin
	le := binary.LittleEndian
	text := func(at int, value string) {
		le.PutUint16(table[at:], uint16(len(value)))
		le.PutUint16(table[at+2:], uint16(end))
		end += copy(table[end:], value) + 1
	}
	structure := func(at int, id, index byte, length int) []byte {
		s := table[at : at+length]
		s[0], s[1], s[4], s[5] = id, 1, index, 3
		le.PutUint16(s[2:], uint16(length))
		return s
	}
	ip := func(to []byte, address netip.Addr) {
		bytes := address.As16()
		copy(to, bytes[:])
	}
	head := structure(control, 1, 0, 18)
	at := first
	point := func(offset int) {
		le.PutUint16(head[offset:], uint16(at))
	}
	point(8)
	structure(at, 2, 0, 74)
	text(at+70, initiator)
	at += 80
	point(10)
	nic := structure(at, 3, 0, 102)
	ip(nic[6:], address.Addr())
	nic[22] = byte(address.Bits())
	hardware, _ := net.ParseMAC(mac)
	copy(nic[90:], hardware)
	at += 104
	for i, target := range targets {
		point(12 + 4*i)
		s := structure(at, 4, byte(i), 54)
		ip(s[6:], target.Address.Addr())
		le.PutUint16(s[22:], target.Address.Port())
		s[25] = 1
		if target.User != "" {
			s[32] = 1
		}
		text(at+34, target.Name)
		text(at+38, target.User)
		text(at+42, target.Secret)
		at += 56
	}
	return table[acpiHeader:end]
}

// TestISCSIStatic boots a machine whose ACPI tables contain an iBFT with two targets. They are reached by a network
// card that DHCP gives no address to, and one of them rejects the secret. A rescue attaches the disk again.
//
// Parity: F10 (iBFT, static address)
func TestISCSIStatic(t *testing.T) {
	t.Parallel()
	const mac, sanMAC = "52:54:00:e2:e0:51", "52:54:00:e2:e0:52"
	s := rig.NewSite(t)
	cable := s.Tap("cable", "192.0.2.1/24")
	san := s.Tap("san", "198.51.100.1/24")
	s.Dnsmasq("--interface=cable", "--dhcp-range=192.0.2.50,192.0.2.60,1h")
	s.StartIronic(netip.MustParseAddr("192.0.2.1"), mac, time.Minute)
	startTarget := func(port uint16, name, secret string) *testenv.ISCSITarget {
		disk := rig.File(t, fmt.Sprint(port), 64*rig.MiB, nil)
		rig.Patch(t, disk, 0, []byte(onTarget))
		return testenv.StartISCSI(t, testenv.ISCSITarget{
			Name: name, Disk: disk, User: "node", Secret: secret, Launcher: s.NS,
			Address: netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), port),
		})
	}
	right := startTarget(3260, sanTarget, "chap-of-the-node")
	wrong := *startTarget(3261, sanTarget+".other", "chap-of-another")
	wrong.Secret = "chap-that-is-wrong"
	table := filepath.Join(t.TempDir(), "ibft")
	address := netip.MustParsePrefix("198.51.100.77/24")
	if err := os.WriteFile(table, ibftTable(sanInitiator, sanMAC, address, right, &wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	s.BootAs(qemu.Config{
		NICs:  []qemu.NIC{{MAC: mac, Netdev: cable}, {MAC: sanMAC, Netdev: san}},
		Extra: []string{"-acpitable", "sig=iBFT,rev=1,data=" + table},
	}, "ipa-insecure=1 ipa-api-url="+s.Ironic.URL())
	s.WaitAgent(t)
	s.Follow(t, `(?s).*iSCSI disk attached target=`+regexp.QuoteMeta(sanTarget)+` device=/dev/sda bytes=67108864`)
	for _, expression := range []string{
		`address of the iBFT used mac=` + sanMAC + ` address=198.51.100.77/24`,
		`iSCSI target not connected target=` + regexp.QuoteMeta(wrong.Name) + ` .*wrong CHAP name or secret`,
	} {
		rig.WaitConsole(t, s.Machine, expression)
	}
	t.Run("rescue", func(t *testing.T) { rescueFromSAN(t, s) })
	for _, secret := range []string{right.Secret, wrong.Secret} {
		if strings.Contains(s.Machine.Console().String(), secret) {
			t.Error("the console shows a secret")
		}
	}
}

// rescueFromSAN rescues the machine, and reads the disk of the target as the user of the rescue.
func rescueFromSAN(t *testing.T, s *rig.Site) {
	url, _ := s.Node.Callback()
	address := netip.MustParseAddrPort(strings.TrimPrefix(url, "https://")).Addr()
	record, err := s.Node.Command(rig.Soon(t), "rescue.finalize_rescue", map[string]any{
		"rescue_password": rig.RescueHash, "hashed": true,
	}, true)
	if err != nil || record.Status != conductor.Succeeded {
		t.Fatalf("got %+v, %v, want success", record, err)
	}
	const again = `(?s)starts again without the agent.*`
	s.Follow(t, again+`iSCSI disk attached target=`+regexp.QuoteMeta(sanTarget)+` device=/dev/sda bytes=67108864`)
	s.Follow(t, again+`rescue: waiting for logins`)
	conn, err := s.NS.DialContext(rig.Soon(t), "tcp", netip.AddrPortFrom(address, rig.SSHPort).String())
	if err != nil {
		t.Fatal(err)
	}
	client, err := sshtest.Login(conn, "rescue", ssh.Password(rig.RescuePassword), s.Machine.Console().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if got := sshtest.Run(t, client, "sudo dd if=/dev/sda bs=512 count=1", nil); !strings.Contains(got, onTarget) {
		t.Errorf("start of the disk: got %q, want %q", got, onTarget)
	}
}
