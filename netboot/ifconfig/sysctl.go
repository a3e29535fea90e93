//go:build linux

package ifconfig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// AllowRouters makes the kernel use router advertisements on a link: it forms addresses (SLAAC, RFC 4862), unless
// slaac is false, and keeps routes, even if the machine forwards packets. Without IPv6 in the kernel it does nothing.
func AllowRouters(link string, slaac bool) error {
	var failed []error
	autoconf := map[bool]string{false: "0", true: "1"}[slaac]
	// The last setting makes the kernel start.
	for _, setting := range [][2]string{{"accept_ra", "2"}, {"autoconf", autoconf}, {"disable_ipv6", "0"}} {
		err := Sysctl("ipv6", link, setting[0], setting[1])
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// HasIPv6 reports whether the kernel has IPv6.
func HasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}

// Sysctl changes a setting of the kernel for one link (Documentation/networking/ip-sysctl.rst).
func Sysctl(family, link, setting, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys/net", family, "conf", link, setting), []byte(value), 0)
}
