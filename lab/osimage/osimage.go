// Package osimage builds a whole-disk image of a real operating system for demonstrations and tests: Debian's own
// packages, a GPT with an EFI system partition (signed shim and GRUB, so that the image also boots with Secure Boot),
// a BIOS boot partition with GRUB, and an ext4 root.
//
// The running system writes to the first serial port
//
//	INSTANCE-UP <host name>
//	CONFIG-DRIVE <uuid> <device>      (or "CONFIG-DRIVE missing")
//	INSTANCE-READY
//
// where uuid is the one in openstack/latest/meta_data.json on the partition with the label config-2. Images are
// cached by their recipe.
//
// For arm64, the image contains Debian's kernel and boot loaders for UEFI, and a program of this repository that writes
// this report (package instance), instead of a whole Debian.
//
// Limits: amd64 and arm64; requires mke2fs, mtools, for amd64 mmdebstrap and, for qcow2, qemu-img.
package osimage

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/initramfs/debian"
)

//go:embed customize.sh
var customize string

// DefaultSuite is the default release of Debian for amd64.
const DefaultSuite = "bookworm"

// rootUUID is the UUID of the root file system. Boot loader and fstab refer to it.
const rootUUID = "6f1d3c1e-7a35-4a29-9d3a-3a7b4f3e7c11"

// layout is part of the cache key. It must change whenever the code that assembles images does, so that older images
// are not reused.
const layout = "1"

var packages = []string{"linux-image-cloud-amd64", "initramfs-tools", "sysvinit-core", "udev"}

// Up and ConfigDrive match the system's report on its serial console.
var (
	Up          = regexp.MustCompile(`INSTANCE-UP (\S+)\s`)
	ConfigDrive = regexp.MustCompile(`CONFIG-DRIVE (\S+)\s`)
)

// Options configures a build.
type Options struct {
	Arch     string    // GOARCH: "amd64" (also "") or "arm64"
	Suite    string    // Debian's release; "" means DefaultSuite, for arm64 the default of package initramfs/debian
	CacheDir string    // "" means ironroot/osimage in the user's cache directory
	Progress io.Writer // receives one line for each step; nil discards it
}

// Image describes a built image.
type Image struct {
	Raw    string // path
	Size   int64  // bytes of the disk
	SHA256 string // of the raw file, in hex
	Cached bool   // the image was in the cache
}

// Build returns the image of the recipe, from the cache if possible.
func Build(ctx context.Context, o Options) (*Image, error) {
	o.Arch = cmp.Or(o.Arch, "amd64")
	if o.Suite == "" {
		o.Suite = map[string]string{"amd64": DefaultSuite, "arm64": debian.DefaultSuite}[o.Arch]
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.CacheDir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		o.CacheDir = filepath.Join(cache, "ironroot", "osimage")
	}
	if err := os.MkdirAll(o.CacheDir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(o.CacheDir, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := filepath.Join(o.CacheDir, key(o))
	if image, err := load(dir); err == nil {
		image.Cached = true
		say(o.Progress, "operating system image: %s, %d MiB, from the cache\n", image.Raw, image.Size>>20)
		return image, nil
	}
	if err := build(ctx, o, dir); err != nil {
		return nil, fmt.Errorf("build the operating system image: %w", err)
	}
	return load(dir)
}

// key returns the name of an image in the cache, which contains a hash of the recipe.
func key(o Options) string {
	name := o.Suite
	if o.Arch == "arm64" {
		name += "-" + o.Arch
	}
	sum := sha256.Sum256([]byte(strings.Join(recipe(o), "\n")))
	return name + "-" + hex.EncodeToString(sum[:6])
}

// recipe returns what determines the content of an image, except Debian's packages and the packages of this repository
// that the program instance is built from.
func recipe(o Options) []string {
	if o.Arch == "arm64" {
		return []string{layout, o.Suite, instance, armBuild}
	}
	return append([]string{layout, o.Suite, customize}, packages...)
}

// lock takes an exclusive lock on a file. It prevents concurrent builds of the same image.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil // which unlocks it
}

// load returns a finished image. The checksum file is written last.
func load(dir string) (*Image, error) {
	sum, err := os.ReadFile(filepath.Join(dir, "disk.raw.sha256"))
	if err != nil {
		return nil, err
	}
	i := &Image{Raw: filepath.Join(dir, "disk.raw"), SHA256: strings.TrimSpace(string(sum))}
	info, err := os.Stat(i.Raw)
	if err != nil {
		return nil, err
	}
	i.Size = info.Size()
	return i, nil
}

func build(ctx context.Context, o Options, dir string) error {
	programs := []string{"mke2fs", "mformat"}
	if o.Arch == "amd64" {
		programs = append(programs, "mmdebstrap", "dpkg-deb")
	}
	for _, program := range programs {
		if _, err := lookup(program); err != nil {
			return fmt.Errorf("%w (Debian: apt-get install mmdebstrap e2fsprogs mtools)", err)
		}
	}
	parent := o.CacheDir
	if os.Geteuid() != 0 {
		// mmdebstrap's user namespace may not be allowed to enter the home directory; the directory for temporary
		// files is accessible.
		parent = ""
	}
	work, err := os.MkdirTemp(parent, "osimage-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // what is left of a build that went well
	step := stepper(o.Progress)
	if o.Arch == "arm64" {
		err = buildARM(ctx, o, work, step)
	} else {
		step("unpacking Debian " + o.Suite + " (" + strings.Join(packages, ", ") + ")")
		err = debootstrap(ctx, o, work)
	}
	if err != nil {
		return err
	}
	step("EFI system partition")
	if err := makeESP(ctx, work, o.Arch); err != nil {
		return err
	}
	step("partitions")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	raw := filepath.Join(dir, "disk.raw")
	if err := assemble(work, raw, o.Arch); err != nil {
		return err
	}
	step("checksum")
	sum, err := SHA256(raw)
	if err != nil {
		return err
	}
	// Written last: a directory without this file is not a finished image.
	if err := os.WriteFile(filepath.Join(dir, "disk.raw.sha256"), []byte(sum+"\n"), 0o644); err != nil {
		return err
	}
	step("done")
	return nil
}

// say prints progress. Errors are ignored, because they do not affect the build.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// stepper prints each step with the seconds since the start.
func stepper(w io.Writer) func(string) {
	start := time.Now()
	return func(text string) {
		say(w, "operating system image: %5.1f s  %s\n", time.Since(start).Seconds(), text)
	}
}

// debootstrap creates root.ext4 and the boot loaders in work.
func debootstrap(ctx context.Context, o Options, work string) error {
	hook := filepath.Join(work, "customize.sh")
	if err := os.WriteFile(hook, []byte(strings.ReplaceAll(customize, "@UUID@", rootUUID)), 0o755); err != nil {
		return err
	}
	// Without root, mmdebstrap runs in a user namespace, whose root must be able to write to this directory.
	if err := os.Chmod(work, 0o777); err != nil {
		return err
	}
	args := []string{
		"--variant=essential", "--format=null", "--quiet", "--skip=cleanup", "--include=" + strings.Join(packages, ","),
		"--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Retries \"3\"",
		"--dpkgopt=force-unsafe-io", // an image that is not complete is not used
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/man/*", "--customize-hook=" + hook + ` "$1"`, o.Suite, "-",
	}
	return run(ctx, []string{"OUT=" + work}, "mmdebstrap", args...)
}

// espSize is 34 MiB: the signed loaders need 8, and every firmware supports FAT16.
const espSize = 34 << 20

func makeESP(ctx context.Context, work, arch string) error {
	suffix := map[string]string{"amd64": "x64", "arm64": "aa64"}[arch]
	shim, grub, upper := "shim"+suffix+".efi", "grub"+suffix+".efi", strings.ToUpper(suffix)
	esp := filepath.Join(work, "esp.fat")
	if err := makeFile(esp, espSize); err != nil {
		return err
	}
	list := "BOOT" + upper + ".CSV"
	if err := os.WriteFile(filepath.Join(work, list),
		utf16(shim+",debian,,This is the boot entry for debian\n"), 0o644); err != nil {
		return err
	}
	commands := [][]string{
		{"mformat", "-i", esp, "-v", "ESP", "::"},
		{"mmd", "-i", esp, "::EFI", "::EFI/BOOT", "::EFI/debian"},
	}
	for _, c := range [][2]string{
		{shim, "EFI/BOOT/BOOT" + upper + ".EFI"},
		{grub, "EFI/BOOT/" + grub},
		{shim, "EFI/debian/" + shim},
		{grub, "EFI/debian/" + grub},
		{"grub.cfg", "EFI/debian/grub.cfg"},
		{list, "EFI/debian/" + list},
	} {
		commands = append(commands, []string{"mcopy", "-i", esp, filepath.Join(work, c[0]), "::" + c[1]})
	}
	for _, c := range commands {
		if err := run(ctx, nil, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// utf16 encodes ASCII text in the form that the UEFI fallback loader expects: little endian with a byte order mark.
func utf16(text string) []byte {
	out := []byte{0xff, 0xfe}
	for _, c := range []byte(text) {
		out = append(out, c, 0)
	}
	return out
}

// QCOW2 returns the path of the image in qcow2 form, compressed or not. The first call creates it.
func (i *Image) QCOW2(ctx context.Context, compressed bool) (string, error) {
	name := "disk.qcow2"
	args := []string{"convert", "-O", "qcow2"}
	if compressed {
		name, args = "disk.compressed.qcow2", append(args, "-c")
	}
	path := filepath.Join(filepath.Dir(i.Raw), name)
	unlock, err := lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := run(ctx, nil, "qemu-img", append(args, i.Raw, path+".part")...); err != nil {
		return "", err
	}
	return path, os.Rename(path+".part", path)
}

// SHA256 returns the digest of a file in hex.
func SHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// lookup finds a program, also in directories that are not in the PATH of ordinary users.
func lookup(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	if path := filepath.Join("/usr/sbin", program); isFile(path) {
		return path, nil
	}
	return "", err
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// run runs a program. The error contains the end of its output.
func run(ctx context.Context, env []string, program string, args ...string) error {
	path, err := lookup(program)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "MTOOLS_SKIP_CHECK=1")
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out[max(0, len(out)-3000):])
	}
	return nil
}
