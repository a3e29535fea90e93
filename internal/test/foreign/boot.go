package foreign

import (
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// patience limits the time from power-on to the message of the ramdisk.
const patience = 10 * time.Minute

// Boots starts a machine that boots the ramdisk, waits for its message and stops the machine. It returns the kernel's
// command line and the output of the console. The test fails if there is no message.
func Boots(t testing.TB, config qemu.Config) (cmdline, console string) {
	t.Helper()
	ctx := testenv.Context(t, patience)
	started := time.Now()
	machine, err := qemu.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := machine.Stop(); err != nil {
			t.Error(err)
		}
	}()
	match, err := machine.Console().Follow(ctx, Hello)
	if err != nil {
		t.Fatalf("%v\n%s", err, machine.Console().Tail(4000))
	}
	t.Logf("ramdisk after %v", time.Since(started).Round(100*time.Millisecond))
	return match.Groups[1], machine.Console().String()
}
