package osimage

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"ironroot/initramfs"
	"ironroot/initramfs/debian"
)

var (
	//go:embed instance/main.go
	instance string
	//go:embed arm64.go
	armBuild string // this file: kernel, modules, options of the file system, boot loaders and their menu
)

// buildARM creates root.ext4, the boot loaders and GRUB's configuration of a system for arm64 in work. It runs no
// programs of arm64: the system consists of Debian's kernel, and of an initramfs with the command instance and the
// kernel's modules.
func buildARM(ctx context.Context, o Options, work string, step func(string)) error {
	step("kernel and initramfs for arm64")
	module, err := moduleDir(ctx)
	if err != nil {
		return err
	}
	built, err := initramfs.Build(ctx, initramfs.Options{
		Dir: module, Arch: "arm64", Package: "linux-image-cloud-arm64", Init: "ironroot/lab/osimage/instance",
		ModuleGroups: []string{"virtual"}, NoFirmware: true, Out: work, Name: "instance",
		Progress: io.Discard, Debian: debian.Options{Suite: o.Suite},
	})
	if err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	if err := os.MkdirAll(filepath.Join(tree, "etc"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tree, "etc/hostname"), []byte("instance\n"), 0o644); err != nil {
		return err
	}
	for from, to := range map[string]string{built.Kernel: "vmlinuz", built.Initramfs: "initrd.img"} {
		if err := os.Rename(from, filepath.Join(tree, to)); err != nil {
			return err
		}
	}
	const spare = 24 << 20 // for the tables of the file system, and files of the instance
	size := (built.KernelSize + built.InitramfsSize + spare) >> 10
	err = run(ctx, nil, "mke2fs", "-q", "-t", "ext4", "-L", "cloudroot", "-U", rootUUID, "-m", "0",
		"-O", "^metadata_csum_seed", "-E", "hash_seed="+rootUUID, "-d", tree, filepath.Join(work, "root.ext4"),
		strconv.FormatInt(size, 10)+"k")
	if err != nil {
		return err
	}
	return armLoaders(ctx, o, work)
}

// moduleDir returns the directory of the module of the working directory, which in tests is the directory of a package.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// armLoaders writes Debian's signed loaders and GRUB's configuration.
func armLoaders(ctx context.Context, o Options, work string) error {
	archive, err := debian.Open(debian.Options{Suite: o.Suite})
	if err != nil {
		return err
	}
	for pkg, file := range map[string]struct{ from, to string }{
		"shim-signed:arm64":           {"usr/lib/shim/shimaa64.efi.signed", "shimaa64.efi"},
		"grub-efi-arm64-signed:arm64": {"usr/lib/grub/arm64-efi-signed/grubaa64.efi.signed", "grubaa64.efi"},
	} {
		var content []byte
		if _, err := archive.ReadFiles(ctx, pkg, map[string]*[]byte{file.from: &content}); err != nil {
			return fmt.Errorf("boot loader: %w", err)
		}
		if err := os.WriteFile(filepath.Join(work, file.to), content, 0o644); err != nil {
			return err
		}
	}
	const menu = `search --no-floppy --fs-uuid --set=root ` + rootUUID + `
linux /vmlinuz quiet console=ttyAMA0
initrd /initrd.img
boot
`
	return os.WriteFile(filepath.Join(work, "grub.cfg"), []byte(menu), 0o644)
}
