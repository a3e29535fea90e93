//go:build linux && long

package ipa

import (
	"context"
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	"ironroot/lab/debootstrap"
)

// The files of the ramdisk.
var (
	//go:embed ramdisk/control.py
	controlProgram string
	//go:embed ramdisk/control.service
	controlService string
	//go:embed ramdisk/customize.sh
	customize string
	//go:embed ramdisk/dhcp.network
	network string
)

// Suite is the release of Debian whose ironic-python-agent is installed.
const Suite = debootstrap.Sid

// packages returns the package ironic-python-agent, and the packages of optional programs that it calls. It depends on
// the packages of all other programs.
func packages() []string {
	return strings.Fields(`ironic-python-agent systemd-sysv udev dbus iproute2 procps file fdisk util-linux-extra
		xfsprogs btrfs-progs ntfs-3g lvm2 cryptsetup-bin multipath-tools ipmitool sg3-utils lsscsi usbutils
		grub-efi-amd64-bin grub-pc-bin grub2-common xorriso`)
}

// Ramdisk is a ramdisk with ironic-python-agent.
type Ramdisk struct {
	Kernel, Initramfs string // paths
}

// Build builds the ramdisk, or takes it from the cache. kernelDeb is the path of the Debian package with its kernel and
// modules. progress receives the output of the programs that build it.
func Build(ctx context.Context, kernelDeb string, progress io.Writer) (Ramdisk, error) {
	dir, err := debootstrap.Ramdisk{
		Name: "ipa", Suite: Suite, Packages: packages(), Deb: kernelDeb,
		Files: map[string]string{
			"control.py": controlProgram, "control.service": controlService, "customize.sh": customize,
			"dhcp.network": network,
		},
	}.Build(ctx, progress)
	return Ramdisk{filepath.Join(dir, "kernel"), filepath.Join(dir, "initramfs")}, err
}

// Versions returns the versions of the installed packages, and of the kernel as "kernel". Only a Ramdisk has them.
func (c Control) Versions(ctx context.Context) (map[string]string, error) {
	text, err := c.request(ctx, http.MethodGet, "/versions", nil)
	if err != nil {
		return nil, err
	}
	var versions map[string]string
	return versions, json.Unmarshal(text, &versions)
}
