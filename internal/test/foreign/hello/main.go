//go:build linux

// Command hello is the init of a foreign ramdisk. It prints a message with the kernel command line, and registers of
// the TPM, on the console and switches the machine off.
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
	registers()
	fmt.Printf("secure boot enforced: %t\n", secureBoot())
	fmt.Printf("HELLO-FROM-THE-RAMDISK cmdline=<%s> err=%v\n", strings.TrimSpace(string(line)), err)
	if err := syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("hello:", err)
	}
}

// secureBoot reports whether the kernel's log says that Secure Boot is enabled.
func secureBoot() bool {
	const readAll = 3 // syslog(2)
	log := make([]byte, 1<<20)
	n, err := syscall.Klogctl(readAll, log)
	return err == nil && strings.Contains(string(log[:n]), "Secure boot enabled")
}

// registers prints registers of the TPM, if there is one.
func registers() {
	if err := os.MkdirAll("/sys", 0o755); err != nil {
		fmt.Println("hello:", err)
	}
	if err := syscall.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		fmt.Println("hello:", err)
	}
	for _, number := range []int{4, 11} {
		value, err := os.ReadFile(fmt.Sprintf("/sys/class/tpm/tpm0/pcr-sha256/%d", number))
		if err == nil {
			fmt.Printf("pcr %d: %s\n", number, strings.ToLower(strings.TrimSpace(string(value))))
		}
	}
}
