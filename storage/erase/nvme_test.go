package erase

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ironroot/internal/testenv"
	"ironroot/storage/block"
)

// fakeNVMe answers admin commands like a drive with the given identify data.
type fakeNVMe struct {
	oacs, fna, flbas, dps byte
	formatError           error
	formats               []uint32 // command dword 10 of each format
	closed                bool
}

func (f *fakeNVMe) namespace() (uint32, error) { return 7, nil }
func (f *fakeNVMe) close() error               { f.closed = true; return nil }

func (f *fakeNVMe) admin(c *adminCommand, data []byte) error {
	switch {
	case c.opcode == opIdentify && c.cdw10 == identifyController:
		data[256], data[524] = f.oacs, f.fna
	case c.opcode == opIdentify && c.cdw10 == identifyNamespace && c.nsid == 7:
		data[26], data[29] = f.flbas, f.dps
	case c.opcode == opFormat && c.nsid == 7 && data == nil:
		f.formats = append(f.formats, c.cdw10)
		return f.formatError
	default:
		return unix.EINVAL
	}
	return nil
}

// nvmeTree is a machine with NVMe namespaces only.
func nvmeTree(t *testing.T, names ...string) block.System {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		for _, folder := range []string{"sys/block", "sys/class/block"} {
			dir := filepath.Join(root, folder, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"size": "20480\n", "ro": "0\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return block.System{Root: root}
}

func TestCommandSize(t *testing.T) {
	if size := unsafe.Sizeof(adminCommand{}); size != 72 {
		t.Errorf("struct nvme_passthru_cmd has 72 bytes, ours %d", size)
	}
	var c adminCommand
	if offset := unsafe.Offsetof(c.cdw10); offset != 40 {
		t.Errorf("cdw10 is at byte 40, ours at %d", offset)
	}
}

// Parity: P2
func TestNVMe(t *testing.T) {
	failure := errors.New("format failed")
	cases := []struct {
		name       string
		drive      fakeNVMe
		namespaces []string
		o          Options
		method     Method
		word       uint32
		err        error
	}{
		{name: "crypto", drive: fakeNVMe{oacs: 2, fna: 4}, method: NVMeCrypto, word: 2 << 9},
		{name: "user data", drive: fakeNVMe{oacs: 2}, method: NVMeUser, word: 1 << 9},
		{
			name: "format is kept", drive: fakeNVMe{oacs: 2, flbas: 0x53, dps: 0x09}, method: NVMeUser,
			word: 3 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 2<<12,
		},
		{name: "no format command", drive: fakeNVMe{oacs: 1}, o: Options{Zeroize: true}, method: Overwrite},
		{name: "all namespaces, one there", drive: fakeNVMe{oacs: 2, fna: 7}, method: NVMeCrypto, word: 2 << 9},
		{
			name: "all namespaces, two there", drive: fakeNVMe{oacs: 2, fna: 7}, namespaces: []string{"nvme0n1", "nvme0n2"},
			o: Options{Zeroize: true}, method: Overwrite,
		},
		{name: "failed", drive: fakeNVMe{oacs: 2, formatError: failure}, word: 1 << 9, err: failure},
		{
			name: "failed, overwritten", drive: fakeNVMe{oacs: 2, formatError: failure}, o: Options{Zeroize: true, ContinueOnFailure: true},
			word: 1 << 9, method: Overwrite,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			loop := testenv.Loop(t, testenv.SparseFile(t, 10<<20), 512)
			if c.namespaces == nil {
				c.namespaces = []string{"nvme0n1", "nvme1n1"}
			}
			c.o.NVMe = true
			disk := block.Device{Name: "nvme0n1", Path: loop, Type: "part"} // a loop device plays its node
			drive := c.drive
			open := func(path string) (adminDevice, error) {
				if path != loop {
					t.Errorf("opened %s", path)
				}
				return &drive, nil
			}
			method, err := full(context.Background(), nvmeTree(t, c.namespaces...), disk, c.o, open)
			if !errors.Is(err, c.err) || method != c.method {
				t.Errorf("got %q, %v, want %q, %v", method, err, c.method, c.err)
			}
			if c.word == 0 && len(drive.formats) > 0 || c.word != 0 && (len(drive.formats) != 1 || drive.formats[0] != c.word) {
				t.Errorf("format commands %x, want %x", drive.formats, c.word)
			}
			if !drive.closed {
				t.Error("the device was not closed")
			}
		})
	}
}
