package nvme

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// Each field is at the place of struct nvme_passthru_cmd: numbers in the command are their offsets.
func TestPassthru(t *testing.T) {
	p := Command{Data: make([]byte, identifyBytes)}.passthru()
	if p.address == 0 || p.dataLength != identifyBytes {
		t.Errorf("got address 0x%x and %d bytes, want the buffer", p.address, p.dataLength)
	}
	p = Command{
		Opcode: 1, Namespace: 4, CDW10: 40, CDW11: 44, CDW12: 48, CDW13: 52, CDW14: 56, CDW15: 60, Timeout: 64e6,
	}.passthru()
	for i, b := range (*[72]byte)(unsafe.Pointer(&p)) {
		want := byte(0)
		if i == 4 || i >= 40 && i <= 64 && i%4 == 0 {
			want = byte(i)
		} else if i == 0 {
			want = 1
		}
		if b != want {
			t.Errorf("got %d at %d, want %d", b, i, want)
		}
	}
	if p = (Command{}).passthru(); p.address != 0 || p.dataLength != 0 {
		t.Errorf("without data: got address 0x%x and %d bytes, want none", p.address, p.dataLength)
	}
	if binary.Size(p) != 72 || unsafe.Sizeof(p) != 72 || unsafe.Offsetof(p.cdw10) != 40 {
		t.Errorf("got %d bytes and dword 10 at %d, want 72 and 40", unsafe.Sizeof(p), unsafe.Offsetof(p.cdw10))
	}
}

// A block device that is not an NVMe namespace fails every command. The buffer of a command is unpinned afterwards: the
// runtime ends a program that does not.
func TestDevice(t *testing.T) {
	f, err := os.Open(testenv.Loop(t, testenv.SparseFile(t, 1<<20), 512))
	if err != nil {
		t.Fatal(err)
	}
	d := Device{f}
	if id, err := d.NamespaceID(); err == nil {
		t.Errorf("got namespace %d", id)
	}
	var errno unix.Errno
	if _, err := New(d).Identify(); !errors.As(err, &errno) {
		t.Errorf("got %v, want an error of the kernel", err)
	}
	if err := New(d).Format(Namespace{}, EraseUserData); !errors.As(err, &errno) {
		t.Errorf("without data: got %v, want an error of the kernel", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for range 2 { // the second one begins after the finalizers of the first have been queued
		done := make(chan struct{})
		runtime.SetFinalizer(new([64]byte), func(*[64]byte) { close(done) })
		runtime.GC()
		<-done
	}
}
