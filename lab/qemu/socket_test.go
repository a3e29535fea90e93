package qemu

import (
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// Single bytes that the machine writes while nobody reads are not lost.
func TestConsoleIsNotReadForAWhile(t *testing.T) {
	testenv.Root(t)
	here, there, err := socketPair("test")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	defer there.Close()
	const size = 32 << 10
	for n := range size {
		if _, err := unix.SendmsgN(int(there.Fd()), []byte{'x'}, nil, nil, unix.MSG_DONTWAIT); err != nil {
			t.Fatalf("byte %d of %d: %v", n, size, err)
		}
	}
}
