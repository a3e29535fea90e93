//go:build linux && long

package ipa

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/internal/cachedir"
	"ironroot/lab/debootstrap"
)

//go:embed ramdisk
var files embed.FS

// Suite is the release of Debian whose ironic-python-agent is installed.
const Suite = debootstrap.Sid

// packages are those that the agent's package requires, and the programs that it calls if they are there. Sid's package
// requires the rest.
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
	recipe := append(packages(), Suite, filepath.Base(kernelDeb))
	entries, err := files.ReadDir("ramdisk")
	if err != nil {
		return Ramdisk{}, err
	}
	contents := map[string][]byte{}
	for _, entry := range entries {
		content, err := files.ReadFile("ramdisk/" + entry.Name())
		if err != nil {
			return Ramdisk{}, err
		}
		contents[entry.Name()] = content
		recipe = append(recipe, entry.Name(), string(content))
	}
	dir, err := cachedir.Get("", "ipa-"+Suite, strings.Join(recipe, "\n"), func(dir string) error {
		_, _ = fmt.Fprintf(progress, "building a ramdisk with ironic-python-agent in %s\n", dir)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		for name, content := range contents {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
				return err
			}
		}
		hook := "--customize-hook=OUT='" + dir + "' KERNEL_DEB='" + kernelDeb + "' sh '" +
			filepath.Join(dir, "customize.sh") + `' "$1"`
		return debootstrap.Install(ctx, progress, Suite, "/dev/null", slices.Clone(packages()), hook)
	})
	if err != nil {
		return Ramdisk{}, fmt.Errorf("ramdisk with ironic-python-agent: %w", err)
	}
	return Ramdisk{filepath.Join(dir, "kernel"), filepath.Join(dir, "initramfs")}, nil
}

// Versions returns the versions of the installed packages, and of the "kernel".
func (c Control) Versions(ctx context.Context) (map[string]string, error) {
	text, err := c.request(ctx, http.MethodGet, "/versions", nil)
	if err != nil {
		return nil, err
	}
	var versions map[string]string
	return versions, json.Unmarshal(text, &versions)
}
