package qemu_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// bootSector returns a boot sector that writes text to the first serial port and then executes single letters from
// it: r restarts the machine, o switches it off.
func bootSector(text string) []byte {
	code := []byte{
		0xfa,       // cli
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xbe, 0x60, 0x7c, // mov si, 0x7c60: the text
		0xba, 0xf8, 0x03, // mov dx, 0x3f8: the port
		0xfc,       // cld
		0xac,       // print: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x03, // jz listen
		0xee,       // out dx, al
		0xeb, 0xf8, // jmp print
		0xba, 0xfd, 0x03, // listen: mov dx, 0x3fd: line status
		0xec,       // in al, dx
		0xa8, 0x01, // test al, 1
		0x74, 0xf8, // jz listen
		0xba, 0xf8, 0x03, // mov dx, 0x3f8
		0xec,      // in al, dx
		0x3c, 'r', // cmp al, 'r'
		0x75, 0x05, // jne next
		0xea, 0x00, 0x00, 0xff, 0xff, // jmp 0xffff:0
		0x3c, 'o', // next: cmp al, 'o'
		0x75, 0xe8, // jne listen
		0xba, 0x04, 0x06, // mov dx, 0x604: power management control of q35
		0xb8, 0x00, 0x20, // mov ax, 0x2000: sleep state 5
		0xef,       // out dx, ax
		0xeb, 0xdf, // jmp listen
	}
	sector := make([]byte, 512)
	copy(sector, code)
	copy(sector[0x60:0x1fe], text+"\n")
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

func bootDisk(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "boot.raw")
	if err := os.WriteFile(path, append(bootSector(text), make([]byte, 1<<20-512)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, c qemu.Config) *qemu.Machine {
	t.Helper()
	testenv.Programs(t, "qemu-system-x86_64")
	c.Dir = t.TempDir()
	c.CPUs = 1
	if c.Memory == 0 {
		c.Memory = 64 << 20
	}
	m, err := qemu.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// limited returns a context for operations that take seconds on an idle machine.
func limited(t *testing.T) context.Context {
	return testenv.Context(t, 10*time.Minute)
}

func follow(t *testing.T, m *qemu.Machine, expression string) qemu.Match {
	t.Helper()
	match, err := m.Console().Follow(limited(t), regexp.MustCompile(expression))
	if err != nil {
		t.Fatal(err)
	}
	return match
}

func TestBootsFromEveryBus(t *testing.T) {
	for _, bus := range []qemu.Bus{qemu.Virtio, qemu.SATA, qemu.NVMe, qemu.SCSI, qemu.USB} {
		t.Run(string(bus), func(t *testing.T) {
			disk := qemu.Disk{Bus: bus, File: bootDisk(t, "HELLO FROM "+string(bus)), Serial: "SER1", Boot: 1}
			m := start(t, qemu.Config{Disks: []qemu.Disk{disk}})
			follow(t, m, "HELLO FROM "+string(bus))
		})
	}
}

func TestSectorsFaultsLogAndLimitAreAccepted(t *testing.T) {
	dir := t.TempDir()
	m := start(t, qemu.Config{
		CDROM: bootDisk(t, "cd"),
		Disks: []qemu.Disk{
			{Bus: qemu.Virtio, File: filepath.Join(dir, "a"), Size: 1 << 20, Sector: 4096, BytesPerSecond: 1 << 20},
			{
				Bus: qemu.NVMe, File: filepath.Join(dir, "b"), Size: 1 << 20, Sector: 4096,
				Faults: []qemu.Fault{{Type: "write", Offset: -1}},
			},
			{
				Bus: qemu.SCSI, File: filepath.Join(dir, "c"), Size: 1 << 20, Sector: 4096, WWN: 0x5000c500a0000001,
				Serial: "S,1", Paths: 2,
			},
			{
				Bus: qemu.SATA, File: filepath.Join(dir, "d"), Size: 1 << 20, WWN: 0x5000c500a0000002,
				Faults: []qemu.Fault{{Type: "read", Offset: 4096}},
			},
			{File: filepath.Join(dir, "e"), Size: 1 << 20, Faults: []qemu.Fault{{Type: "write", Offset: -1, After: 2}}},
			{File: filepath.Join(dir, "f"), Size: 1 << 20, Log: filepath.Join(dir, "f.log")},
		},
	})
	reply, err := m.QMP(t.Context(), "query-block", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"throttle0", "faults1", "image2", "faults3", "counted4", "log5", "cdimage"} {
		if !strings.Contains(string(reply), `"`+want+`"`) {
			t.Errorf("query-block names no node %q: %s", want, reply)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Size() != 1<<20 {
		t.Errorf("disk made on the spot: got %v, %v, want 1 MiB", info, err)
	}
}

func TestResetAndPowerOff(t *testing.T) {
	m := start(t, qemu.Config{Disks: []qemu.Disk{{File: bootDisk(t, "UP"), Boot: 1}}})
	first := follow(t, m, "UP")
	if err := m.Console().Send("r"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.WaitEvent(limited(t), "RESET", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Console().FollowFrom(limited(t), first.End, regexp.MustCompile("UP")); err != nil {
		t.Fatal(err)
	}
	if err := m.Console().Send("o"); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(limited(t)); err != nil {
		t.Fatal(err)
	}
	if m.Running() {
		t.Error("the machine still runs after its guest switched it off")
	}
	if text, err := os.ReadFile(filepath.Join(m.Dir(), "console.log")); err != nil ||
		strings.Count(string(text), "UP") != 2 {
		t.Errorf("console.log: got %q, %v, want UP twice", text, err)
	}
	if _, err := m.QMP(t.Context(), "query-status", nil); err == nil {
		t.Error("QMP after the end: got no error")
	}
}

func TestRebootCanEndTheMachine(t *testing.T) {
	m := start(t, qemu.Config{OnReboot: qemu.Shutdown, Disks: []qemu.Disk{{File: bootDisk(t, "UP"), Boot: 1}}})
	follow(t, m, "UP")
	if err := m.Console().Send("r"); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(limited(t)); err != nil {
		t.Fatal(err)
	}
}

func TestPowerOffCanPauseTheMachine(t *testing.T) {
	m := start(t, qemu.Config{OnPowerOff: qemu.Pause, Disks: []qemu.Disk{{File: bootDisk(t, "UP"), Boot: 1}}})
	follow(t, m, "UP")
	if err := m.Console().Send("o"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.WaitEvent(limited(t), "SHUTDOWN", 1); err != nil {
		t.Fatal(err)
	}
	if !m.Running() {
		t.Error("QEMU ended although the machine was to stay, switched off")
	}
	mark := m.Console().Mark()
	if err := m.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Console().FollowFrom(limited(t), mark, regexp.MustCompile("UP")); err != nil {
		t.Fatal(err)
	}
}

func TestSetBootChangesTheOrderFromTheNextResetOn(t *testing.T) {
	m := start(t, qemu.Config{
		Disks: []qemu.Disk{{File: bootDisk(t, "FIRST"), Boot: 1}, {File: bootDisk(t, "SECOND"), Boot: 2}},
	})
	follow(t, m, "FIRST")
	if err := m.SetBoot(t.Context(), "disk0", 3); err != nil {
		t.Fatal(err)
	}
	if err := m.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	follow(t, m, "SECOND")
}

func TestUEFIFirmwareStarts(t *testing.T) {
	m := start(t, qemu.Config{
		Firmware: qemu.UEFI, Memory: 128 << 20, Disks: []qemu.Disk{{File: bootDisk(t, "no loader"), Boot: 1}},
	})
	follow(t, m, "BdsDxe: ")
	if _, err := os.Stat(filepath.Join(m.Dir(), "vars.fd")); err != nil {
		t.Error(err)
	}
}

func TestForwardListensOnLoopbackOnly(t *testing.T) {
	m := start(t, qemu.Config{NICs: []qemu.NIC{
		{Restrict: true, Forwards: []qemu.Forward{{Guest: 22}, {Guest: 9999}}},
	}})
	for _, guest := range []int{22, 9999} {
		port, err := m.Forwarded(limited(t), guest)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.2:%d", port)); err == nil {
			t.Errorf("another address, port %d: got a connection, want an error", port)
			_ = conn.Close()
		}
	}
	if port, err := m.Forwarded(limited(t), 80); err == nil || !strings.Contains(err.Error(), "port 80 of the guest") {
		t.Errorf("got port %d and %v, want an error that names port 80", port, err)
	}
}

func TestStartTellsWhatQEMUComplainedOf(t *testing.T) {
	testenv.Programs(t, "qemu-system-x86_64")
	_, err := qemu.Start(t.Context(),
		qemu.Config{Name: "broken", Dir: t.TempDir(), Extra: []string{"-device", "no-such-device"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-device") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v, want an error naming the machine and the device", err)
	}
}

func TestEndOfTheContextKillsTheMachine(t *testing.T) {
	testenv.Programs(t, "qemu-system-x86_64")
	ctx, cancel := context.WithCancel(t.Context())
	m, err := qemu.Start(ctx, qemu.Config{Dir: t.TempDir(), Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := m.Wait(limited(t)); err == nil {
		t.Error("a killed machine ended without an error")
	}
}

// lineChannel receives lines.
type lineChannel chan string

func (c lineChannel) Line(text string) { c <- text }

func TestLinesArriveWithoutControls(t *testing.T) {
	lines := make(lineChannel, 100)
	m := start(t, qemu.Config{
		Disks: []qemu.Disk{{File: bootDisk(t, "\r\n\x1b[1;32mgreen\x1b[0m\r"), Boot: 1}},
		Lines: lines,
	})
	_ = m
	deadline := time.After(10 * time.Minute)
	for {
		select {
		case line := <-lines:
			if line == "green" {
				return
			}
		case <-deadline:
			t.Fatal("no line \"green\" came")
		}
	}
}
