//go:build linux

// Command fakebootc replaces bootc in the image of a test, because Debian has no bootc. It checks its
// environment as "bootc install to-disk --source-imgref" does (bootc 1.x: cli.rs, install.rs, mount.rs, lsm.rs and
// baseline.rs), partitions the disk, and writes a file system whose files the test recognizes. Under other names it is
// a program that bootc calls, or the tool of a step.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/storage/mkfs"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

func main() {
	var err error
	switch filepath.Base(os.Args[0]) {
	case "bootc":
		err = install(os.Args[1:])
	case "udevadm": // in the mount namespace of process 1
		return
	case "inroot":
		err = inRoot()
	case "tool":
		err = tool()
	default:
		err = fmt.Errorf("unknown name %s", os.Args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(3)
	}
}

// target is the directory into which the image is installed.
type target struct {
	disk, keys, name string
	layout           string // OCI layout of the image
	rootMiB          int64
}

// install does the work of bootc install to-disk.
func install(args []string) error {
	if len(args) < 2 || args[0] != "install" || args[1] != "to-disk" {
		return fmt.Errorf("got arguments %q, want install to-disk", args)
	}
	var t target
	set := flag.NewFlagSet("bootc", flag.ContinueOnError)
	wipe, skip := set.Bool("wipe", false, ""), set.Bool("skip-fetch-check", false, "")
	noSELinux := set.Bool("disable-selinux", false, "")
	size, source := set.String("root-size", "", ""), set.String("source-imgref", "", "")
	set.StringVar(&t.name, "target-imgref", "", "")
	set.StringVar(&t.keys, "root-ssh-authorized-keys", "", "")
	if err := set.Parse(args[2:]); err != nil {
		return err
	}
	layout, isLayout := strings.CutPrefix(*source, "oci:")
	number, isMiB := strings.CutSuffix(*size, "M")
	var err error
	t.layout = layout
	t.rootMiB, err = strconv.ParseInt(number, 10, 64)
	t.disk = set.Arg(0)
	if err != nil {
		return fmt.Errorf("unexpected arguments %q: %w", args, err)
	}
	if !isMiB || !isLayout || !*wipe || !*skip || !*noSELinux || set.NArg() != 1 || t.name == "" {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	for _, check := range []func() error{
		checkRoot, checkNamespaces, checkDirectories, checkEngine, checkTemporary, checkVariables, checkSELinux,
		t.checkDisk, checkSecret, checkProcesses,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	digest, err := t.checkLayout()
	if err != nil {
		return err
	}
	if err := t.write(digest); err != nil {
		return err
	}
	return checkConfinement(true)
}

// checkDisk is the check of the target in install.rs and baseline.rs: a block device that is not mounted. There must be
// no other disk.
func (t target) checkDisk() error {
	info, err := os.Stat(t.disk)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) != fs.ModeDevice {
		return fmt.Errorf("%s is no block device", t.disk)
	}
	mounts, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), " "+t.disk) {
		return fmt.Errorf("%s is mounted", t.disk)
	}
	return filepath.WalkDir("/dev", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Type()&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice && !strings.HasPrefix(name, t.disk) {
			return fmt.Errorf("the container sees the disk %s", name)
		}
		return nil
	})
}

// checkLayout verifies the files of the OCI layout, and returns the digest of the manifest.
func (t target) checkLayout() (string, error) {
	text, err := os.ReadFile(filepath.Join(t.layout, "index.json"))
	if err != nil {
		return "", err
	}
	var index struct{ Manifests []struct{ Digest string } }
	if err := json.Unmarshal(text, &index); err != nil {
		return "", fmt.Errorf("index.json: %w", err)
	}
	if len(index.Manifests) != 1 {
		return "", fmt.Errorf("index.json: got %d manifests, want one", len(index.Manifests))
	}
	blobs := filepath.Join(t.layout, "blobs/sha256")
	entries, err := os.ReadDir(blobs)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(blobs, entry.Name()))
		if err != nil {
			return "", err
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != entry.Name() {
			return "", fmt.Errorf("blob %s has the digest %x", entry.Name(), sum)
		}
	}
	if len(entries) < 3 {
		return "", fmt.Errorf("%d blobs, want a manifest, a configuration and layers", len(entries))
	}
	return index.Manifests[0].Digest, nil
}

const mib = 1 << 20

// write does the work of install_create_rootfs of baseline.rs, and writes the files of the system.
func (t target) write(digest string) error {
	ctx, sys := context.Background(), sysfs.Root{}
	layout, err := partition.Plan(partition.Needs{UEFI: true, ESP: 512 * mib, Root: t.rootMiB * mib})
	if err != nil {
		return err
	}
	if _, err := partition.Create(ctx, t.disk, layout); err != nil {
		return err
	}
	if err := partition.Sync(ctx, sys, t.disk); err != nil {
		return err
	}
	for i, kind := range []string{"vfat", "ext4"} {
		name := t.disk + strconv.Itoa(i+1)
		if err := await(name); err != nil {
			return err
		}
		if err := mkfs.Make(ctx, name, kind, mkfs.Options{}); err != nil {
			return err
		}
	}
	root := "/run/bootc/mounts/rootfs"
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(t.disk+"2", root, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", t.disk+"2", err)
	}
	if err := t.fill(root, digest); err != nil {
		return err
	}
	// As install.rs: the file system is complete before it is unmounted.
	if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("remount %s: %w", root, err)
	}
	if err := unix.Unmount(root, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", root, err)
	}
	fmt.Println("Installation complete!")
	return nil
}

// await waits for the device node of a partition, as udevadm settle does.
func await(name string) error {
	for range 600 {
		if _, err := os.Stat(name); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s does not appear", name)
}

// fill writes the files of the system, one of them in a chroot as ChrootCmd of chroot.rs does.
func (t target) fill(root, digest string) error {
	var keys []byte
	if t.keys != "" {
		var err error
		if keys, err = os.ReadFile(t.keys); err != nil {
			return err
		}
	}
	program, err := os.ReadFile("/usr/bin/bootc")
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"image": []byte(t.name + " " + digest + "\n"), "authorized_keys": keys, "inroot": program,
	} {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o700); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		return err
	}
	command := exec.CommandContext(context.Background(), "/proc/self/exe")
	command.Args, command.Env = []string{"inroot", root}, []string{}
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("in a chroot: %w: %s", err, output)
	}
	return nil
}

// inRoot writes a file in a chroot with /proc and /dev.
func inRoot() error {
	root := os.Args[1]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := unix.Mount("proc", root+"/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := unix.Mount("/dev", root+"/dev", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind /dev: %w", err)
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	if _, err := os.Stat("/dev/null"); err != nil {
		return err
	}
	return os.WriteFile("/chrooted", []byte("yes\n"), 0o600)
}

// tool is the program of a step: it prints what it sees, and tries to escape.
func tool() error {
	disks := 0
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type()&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice {
			disks++
		}
	}
	fmt.Printf("tool ran: process %d, %d disks, %s\n", os.Getpid(), disks, strings.Join(os.Args[1:], " "))
	if os.Getenv("FAIL") != "" {
		return errors.New("told to fail")
	}
	return checkConfinement(false)
}
