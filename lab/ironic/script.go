//go:build linux

package ironic

import (
	"regexp"
	"strings"
)

var (
	scriptTarget = regexp.MustCompile(`(?m)^goto (\S+)`)
	scriptKernel = regexp.MustCompile(`(?m)^kernel (?:--\S+ \S+ )*(\S+) (.*?) (?:initrd=\S+ )?\|\|`)
	scriptInitrd = regexp.MustCompile(`(?m)^initrd (?:--\S+ \S+ )*(\S+)`)
)

// parseScript returns the kernel, initramfs and command line that an iPXE script of Ironic boots. ok is false if the
// script does not boot a deploy ramdisk.
func parseScript(text, mac string) (kernel, initrd, cmdline string, ok bool) {
	head, deploy, found := strings.Cut(text, "\n:deploy\n")
	target := scriptTarget.FindStringSubmatch(head)
	if !found || target == nil || target[1] != "deploy" {
		return "", "", "", false
	}
	k, i := scriptKernel.FindStringSubmatch(deploy), scriptInitrd.FindStringSubmatch(deploy)
	if k == nil || i == nil {
		return "", "", "", false
	}
	return k[1], i[1], strings.ReplaceAll(k[2], "${mac}", mac), true
}
