package qemu

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// AccelEnv is the environment variable that selects "kvm" or "tcg" if Config.Accel is empty.
const AccelEnv = "IRONROOT_ACCEL"

// usesKVM reports whether a machine runs under KVM.
func usesKVM(c Config) bool {
	if c.InstructionClock {
		return false
	}
	wanted := c.Accel
	if wanted == "" {
		wanted = os.Getenv(AccelEnv)
	}
	return wanted == "kvm" || wanted == "" && HasKVM()
}

func accelArguments(c Config) []string {
	if usesKVM(c) {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	if c.InstructionClock { // QEMU counts the instructions of one thread only
		return []string{"-accel", "tcg,thread=single", "-cpu", emulatedProcessor, "-icount", "shift=0"}
	}
	return []string{"-accel", "tcg,thread=" + tcgThreads("qemu-system-x86_64"), "-cpu", emulatedProcessor}
}

// emulatedProcessor is the processor of machines without KVM. It lacks CMPXCHG16B: QEMU 7.2 computes the flags of this
// instruction from an outdated state and can set arbitrary bits. If an interrupt arrives before the next instruction
// that sets the flags, the kernel returns from it with these bits, for example in virtual-8086 mode, and ends with a
// double fault.
//
// It also lacks fast string operations (ERMS, FSRM). With them, Linux clears and copies pages with REP STOSB and REP
// MOVSB, which QEMU emulates byte by byte; without, eight bytes at a time. Each write to a page that once contained
// code searches all its translated blocks: with QEMU 7.2, Linux was stuck in clear_page_erms for 26 s.
const emulatedProcessor = "max,-cx16,-erms,-fsrm"

// tcgThreads returns the threading mode of QEMU's emulator: "multi" runs each processor in its own thread, "single"
// runs all in one. It returns "single" if QEMU is older than 8.1 or its version is unknown: these versions can
// execute an instruction after another processor has replaced it. About one in 150 starts of Linux 6.12 ended with
// "Oops: int3", because the kernel patches its code while it runs.
func tcgThreads(program string) string {
	out, err := exec.Command(program, "--version").Output() //nolint:noctx // it prints a line and ends
	if err != nil {
		return "single"
	}
	return threadsOf(string(out))
}

// threadsOf returns the result of tcgThreads for the text of "qemu --version".
func threadsOf(text string) string {
	var major, minor int
	n, _ := fmt.Sscanf(text, "QEMU emulator version %d.%d", &major, &minor)
	if n < 2 || major < 8 || major == 8 && minor < 1 {
		return "single"
	}
	return "multi"
}

// HasKVM reports whether hardware virtualisation works. It runs a virtual machine, because an existing /dev/kvm can
// reject the creation of a machine, or create one whose processor QEMU cannot initialise.
var HasKVM = sync.OnceValue(func() bool {
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && (runtime.GOARCH != "amd64" || virtualizes(string(cpuinfo))) && createsVM() && startsFirmware()
})

// virtualizes reports whether the first processor of an x86 /proc/cpuinfo has VMX or SVM. KVM exists without them as
// well (kvm-pvm): it runs kernels that were built for it. It emulates all others, and stops them at the first
// instruction that it does not know: SeaBIOS runs, Linux does not.
func virtualizes(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "flags" {
			flags := strings.Fields(value)
			return slices.Contains(flags, "vmx") || slices.Contains(flags, "svm")
		}
	}
	return false
}

func createsVM() bool {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // nothing is written
	fd, err := createVM(f)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// startsFirmware reports whether SeaBIOS prints its name under KVM.
func startsFirmware() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "q35,graphics=off", "-m", "64", "-accel", "kvm", "-cpu", "host", "-serial", "stdio")
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return false
	}
	works := false
	for lines := bufio.NewScanner(out); !works && lines.Scan(); {
		works = strings.Contains(lines.Text(), "SeaBIOS")
	}
	cancel()
	_ = cmd.Wait() // the process was killed
	return works
}
