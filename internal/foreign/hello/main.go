// Command hello is the whole of a foreign ramdisk: it says on the console that it runs and with which kernel command
// line, and switches the machine off.
package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

func main() {
	if err := os.MkdirAll("/proc", 0o755); err != nil {
		fmt.Println("hello:", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Println("hello:", err)
	}
	line, err := os.ReadFile("/proc/cmdline")
	fmt.Printf("HELLO-FROM-THE-RAMDISK cmdline=<%s> err=%v\n", strings.TrimSpace(string(line)), err)
	version, err := os.ReadFile("/proc/version")
	fmt.Printf("version=<%s> err=%v\n", strings.TrimSpace(string(version)), err)
	if err := syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("hello:", err)
	}
}
