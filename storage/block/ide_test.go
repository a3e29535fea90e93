package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/storage/sysfs"
)

const (
	ideAddress = "0000:03:00.0"
	ideDir     = "devices/pci0000:00/0000:00:1e.0/" + ideAddress
	bridgeDir  = "devices/pci0000:00/0000:00:1e.0"
)

// configSpace returns a configuration space with a command register, and a capability of power management at 0x70
// behind another one.
func configSpace(command uint16, powerState byte) []byte {
	space := make([]byte, 256)
	binary.LittleEndian.PutUint32(space, 0x24d18086)
	binary.LittleEndian.PutUint16(space[4:], command)
	space[0x06], space[0x34] = 1<<4, 0x40
	space[0x40], space[0x41] = 0x05, 0x70 // MSI
	space[0x70], space[0x74] = 0x01, powerState
	return space
}

// resourceLines returns the file "resource" of an IDE controller, from pairs of start and end.
func resourceLines(ports ...uint64) string {
	var b strings.Builder
	for i := range 7 {
		if at := i * 2; at < len(ports) && ports[at] != 0 {
			fmt.Fprintf(&b, "0x%016x 0x%016x 0x%016x\n", ports[at], ports[at+1], 0x40101)
		} else {
			b.WriteString("0x0000000000000000 0x0000000000000000 0x0000000000000000\n")
		}
	}
	return b.String()
}

// putIDE adds an IDE controller behind a bridge. files replaces its files; those with the content "-" do not exist.
func putIDE(t *testing.T, files map[string]string) sysfs.Root {
	t.Helper()
	s := sysfs.Root{Path: t.TempDir()}
	on := string(configSpace(1, 0))
	content := map[string]string{
		ideDir + "/config": on, bridgeDir + "/config": on,
		ideDir + "/resource": resourceLines(0xd000, 0xd007, 0xd100, 0xd103, 0xd200, 0xd207, 0xd300, 0xd303),
		// The byte at offset 2 is the alternate status, the byte before it is not decoded.
		ideDir + "/resource1": "\x00\x50\xff\x50", ideDir + "/resource3": "\x00\x50\x7f\x50",
	}
	for name, text := range files {
		content[name] = text
		if text == "-" {
			delete(content, name)
		}
	}
	putSys(t, s, content)
	link := s.Sys("bus/pci/devices", ideAddress)
	err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("../../../"+ideDir, link))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A drive can be there unless every channel floats, or the controller decodes no ports. A channel that cannot be read
// is an error: the bus of a controller that does not answer floats, too.
func TestIDEDrive(t *testing.T) {
	at := resourceLines(0x1f0, 0x1f7, 0x3f6, 0x3f6, 0x170, 0x177, 0x376, 0x376)
	space := func(command uint16, powerState byte) string { return string(configSpace(command, powerState)) }
	endless, absent := configSpace(1, 0), configSpace(1, 0)
	endless[0x41] = 0x40
	absent[0], absent[1] = 0xff, 0xff
	bare := configSpace(1, 0)
	bare[0x06] = 0
	for name, c := range map[string]struct {
		files   map[string]string
		present bool
		found   string
		err     string // in the error; "" means none
	}{
		"no drives": {found: "status 0xff at I/O port 0xd102, status 0x7f at I/O port 0xd302"},
		"drive on the first channel": {
			files: map[string]string{ideDir + "/resource1": "\x00\x00\x50\x00"}, present: true,
			found: "status 0x50 at I/O port 0xd102, status 0x7f at I/O port 0xd302",
		},
		"busy drive on the second channel": {
			files: map[string]string{ideDir + "/resource3": "\x00\x00\x80\x00"}, present: true,
			found: "status 0xff at I/O port 0xd102, status 0x80 at I/O port 0xd302",
		},
		"drive, packet device or empty": {
			files: map[string]string{ideDir + "/resource3": "\xff\xff\x00\xff"}, present: true,
			found: "status 0xff at I/O port 0xd102, status 0x00 at I/O port 0xd302",
		},
		"ports of the AT bus": {
			files: map[string]string{
				ideDir + "/resource": at, ideDir + "/resource1": "\xff", ideDir + "/resource3": "\x51",
			},
			present: true, found: "status 0xff at I/O port 0x3f6, status 0x51 at I/O port 0x376",
		},
		"one channel": {
			files: map[string]string{ideDir + "/resource": resourceLines(0xd000, 0xd007, 0xd100, 0xd103)},
			found: "status 0xff at I/O port 0xd102",
		},
		"switched off": {
			files: map[string]string{ideDir + "/config": space(0, 0), ideDir + "/resource1": "\x00\x00\x50\x00"},
			found: "its I/O ports are switched off",
		},
		"only memory": {
			files: map[string]string{ideDir + "/config": space(2, 0)}, err: "in use (command register 0x0002)",
		},
		"only bus master": {
			files: map[string]string{ideDir + "/config": space(4, 0)}, err: "in use (command register 0x0004)",
		},
		"no capabilities": {
			files: map[string]string{ideDir + "/config": string(bare)},
			found: "status 0xff at I/O port 0xd102, status 0x7f at I/O port 0xd302",
		},
		"low power": {
			files: map[string]string{ideDir + "/config": space(1, 3)}, err: "power state D3, want D0",
		},
		"bridge that forwards no I/O": {
			files: map[string]string{bridgeDir + "/config": space(6, 0)}, err: "bridge 0000:00:1e.0 forwards no I/O",
		},
		"bridge in low power": {
			files: map[string]string{bridgeDir + "/config": space(1, 2)}, err: "power state D2, want D0",
		},
		"endless capabilities": {
			files: map[string]string{ideDir + "/config": string(endless)}, err: "list of capabilities has no end",
		},
		"no answer": {
			files: map[string]string{ideDir + "/config": string(absent)}, err: "PCI function does not answer",
		},
		"short configuration": {files: map[string]string{ideDir + "/config": "\x86\x80"}, err: "/config at 0: EOF"},
		"no configuration":    {files: map[string]string{ideDir + "/config": "-"}, err: "config"},
		"no configuration of the bridge": {
			files: map[string]string{bridgeDir + "/config": "-"}, err: "0000:00:1e.0/config",
		},
		"no resources": {files: map[string]string{ideDir + "/resource": "-"}, err: "/resource"},
		"no ports": {
			files: map[string]string{ideDir + "/resource": resourceLines()}, err: "no channel has I/O ports",
		},
		"memory only": {
			files: map[string]string{
				ideDir + "/resource": strings.ReplaceAll(resourceLines(0xfe000000, 0xfe000fff, 0xfd000000, 0xfd000fff),
					"40101", "40200"),
			},
			err: "no channel has I/O ports",
		},
		"no control block": {
			files: map[string]string{ideDir + "/resource": resourceLines(0xd000, 0xd007, 0, 0)},
			err:   "channel 0 has no control block",
		},
		"small control block": {
			files: map[string]string{ideDir + "/resource": resourceLines(0xd000, 0xd007, 0xd100, 0xd101)},
			err:   "control block of channel 0 has 2 ports",
		},
		"few lines": {files: map[string]string{ideDir + "/resource": "0x1 0x2 0x101\n"}, err: "got 2 lines"},
		"text":      {files: map[string]string{ideDir + "/resource": "a\nb\nc\nd\n"}, err: `line "a": `},
		"unreadable port": {
			files: map[string]string{ideDir + "/resource3": "-"}, err: ideAddress + "/resource3",
		},
		"short port": {files: map[string]string{ideDir + "/resource3": "\xff"}, err: "/resource3 at 2: EOF"},
	} {
		s := putIDE(t, c.files)
		present, found, err := IDEDrive(s, ideAddress)
		if present != c.present || found != c.found {
			t.Errorf("%s: got %v and %q, want %v and %q", name, present, found, c.present, c.found)
		}
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got error %v, want %q", name, err, c.err)
		}
	}
	if _, _, err := IDEDrive(putIDE(t, nil), "0000:04:00.0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unplugged: got %v, want %v", err, fs.ErrNotExist)
	}
}

// The listed functions are looked up for IDE controllers and controllers of no specific subclass only: other subclasses
// have media, whatever their ID.
func TestFunctionWithoutMedia(t *testing.T) {
	for _, c := range []struct {
		id, class string
		want      string
	}{
		{"8086:a1bc", "0x010185", ideRedirection},
		{"1000:c010", "0x018000", pcieSwitch},
		{"1af4:105a", "0x018000", virtioFS},
		{"8086:a1bc", "0x010400", ""},
		{"1000:c010", "0x010700", ""},
		{"8086:a1bd", "0x010185", ""},
		{"1000:c010", "0x010601", ""},
	} {
		if got := FunctionWithoutMedia(c.id, c.class); got != c.want {
			t.Errorf("%s of class %s: got %q, want %q", c.id, c.class, got, c.want)
		}
	}
}
