package confine

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"ironroot/internal/testenv"
)

// confinedName is the first argument of the test's program that limits itself, and prints the results of its calls.
const confinedName = "confine-test"

func TestMain(m *testing.M) {
	if os.Args[0] != confinedName {
		os.Exit(m.Run())
	}
	if err := ProgramPolicy("acct").ApplyAndSend(3); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	bad := ^uintptr(0)
	for range 2 {
		for _, call := range []struct {
			name   string
			number uintptr
		}{
			{"bpf", unix.SYS_BPF},
			{"keyctl", unix.SYS_KEYCTL},
			{"clone3", unix.SYS_CLONE3},
			{"later", 1000},
			{"much later", 1 << 30},
			{"acct", unix.SYS_ACCT},
			{"getppid", unix.SYS_GETPPID},
		} {
			_, _, errno := unix.Syscall6(call.number, bad, bad, bad, bad, bad, bad)
			fmt.Printf("%s: %d\n", call.name, errno)
		}
	}
	os.Exit(0)
}

// A call that is not permitted fails with EPERM, or with ENOSYS if kernels can lack it. Each is logged once by its
// name, unless programs are prepared for its failure; unknown calls are logged once together.
func TestNewDenialSocket(t *testing.T) {
	testenv.Root(t)
	var log testenv.Log
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	calls, err := NewDenialSocket()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe")
	c.Args, c.ExtraFiles = []string{confinedName}, []*os.File{calls}
	output, err := c.CombinedOutput()
	if err := calls.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	once := fmt.Sprintf("bpf: %d\nkeyctl: %d\nclone3: %d\nlater: %d\nmuch later: %d\nacct: %d\ngetppid: 0\n",
		unix.EPERM, unix.ENOSYS, unix.ENOSYS, unix.ENOSYS, unix.ENOSYS, unix.EFAULT)
	if want := once + once; string(output) != want {
		t.Errorf("got\n%s\nwant\n%s", output, want)
	}
	var logged []string
	for line := range strings.Lines(log.String()) {
		_, rest, _ := strings.Cut(line, "msg=")
		logged = append(logged, strings.TrimSpace(rest))
	}
	machine, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, call := range [][2]string{
		{"bpf", unix.EPERM.Error()}, {"keyctl", unix.ENOSYS.Error()}, {"1000", unix.ENOSYS.Error()},
	} {
		want = append(want, fmt.Sprintf(`"system call not permitted" call=%s arch=%s program=exe err=%q`,
			call[0], machine.Name, call[1]))
	}
	if !slices.Equal(logged, want) {
		t.Errorf("got the log\n%s\nwant\n%s", strings.Join(logged, "\n"), strings.Join(want, "\n"))
	}
}
