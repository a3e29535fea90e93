package imaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/agent/container"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/growfs"
	"ironroot/storage/image/fetch"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// fakeRuntime is a container runtime whose bootc makes a partition.
type fakeRuntime struct {
	t        *testing.T
	disk     string
	reserved int64
	secret   string
	options  container.Options
	specs    []container.Spec
	closed   int
	prepared func() // may be nil

	resolveErr, prepareErr, runErr, closeErr error
	idle                                     bool // bootc writes nothing
	// makeRoot, if set, is the program that makes the root file system, in a partition of the requested size.
	makeRoot []string
}

func (f *fakeRuntime) use(i *Imager) {
	i.runtime = f
}

func (f *fakeRuntime) resolve(_ context.Context, _ fetch.Options, text, secret string) (*container.Image, error) {
	f.secret = secret
	return &container.Image{Name: container.NormalizeName(text), Digest: "sha256:0"}, f.resolveErr
}

func (f *fakeRuntime) prepare(_ context.Context, _ *container.Image, o container.Options) (bundle, error) {
	f.options = o
	o.Progress.SetPhase("unpack", 0, 1, 2)
	if f.prepared != nil {
		f.prepared()
	}
	return f, f.prepareErr
}

func (f *fakeRuntime) growFS(ctx context.Context, device string) error {
	if end, ok := ctx.Deadline(); ok {
		f.t.Errorf("growth of %s is limited until %v", device, end)
	}
	return growfs.Grow(ctx, device)
}

func (f *fakeRuntime) Reserved() int64 { return f.reserved }

func (f *fakeRuntime) Run(_ context.Context, s container.Spec) error {
	if f.closed > 0 {
		f.t.Error("the program runs after its image was removed")
	}
	f.specs = append(f.specs, s)
	s.Output.Line("installing")
	if f.makeRoot != nil {
		f.installRoot(s.Args)
	} else if f.runErr == nil && !f.idle {
		testenv.GPT(f.t, f.disk, "start=2048, size=16MiB, name=root")
	}
	return f.runErr
}

// installRoot makes an ESP and the root file system.
func (f *fakeRuntime) installRoot(args []string) {
	f.t.Helper()
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--root-size=") })
	size := strings.TrimPrefix(args[i], "--root-size=")
	testenv.GPT(f.t, f.disk, "start=2048, size=512MiB", "size="+size+"iB, name=root")
	if err := partition.Sync(f.t.Context(), sysfs.Root{}, f.disk); err != nil {
		f.t.Fatal(err)
	}
	root, err := block.WaitPartition(f.t.Context(), sysfs.Root{}, f.disk, 2)
	if err != nil {
		f.t.Fatal(err)
	}
	testenv.Run(f.t, f.makeRoot[0], append(f.makeRoot[1:], root)...)
}

func (f *fakeRuntime) Close(ctx context.Context) error {
	if ctx.Err() != nil {
		f.t.Errorf("removed with a context that has ended: %v", ctx.Err())
	}
	f.closed++
	return f.closeErr
}

// bootcRig returns an Imager with a disk and a fake runtime.
func bootcRig(t *testing.T) (*Imager, *fakeRuntime) {
	t.Helper()
	disk, i := loopDisk(t)
	f := &fakeRuntime{t: t, disk: disk}
	f.use(i)
	return i, f
}

const bootcSource = "oci://registry.example/os:1"

// Parity: U7
func TestInstallContainer(t *testing.T) {
	i, f := bootcRig(t)
	f.reserved, f.makeRoot = 100*mib+1, []string{"mkfs.xfs", "-q"}
	drive, _ := configDrive(t)
	c := BootableContainer{
		Source: bootcSource, AuthorizedKeys: "ssh-ed25519 AAAA admin\n", PullSecret: "c2VjcmV0", ConfigDrive: drive,
	}
	got, err := i.InstallContainer(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Container image (" + bootcSource + ") written to device " + f.disk; got != want {
		t.Errorf("got result %q, want %q", got, want)
	}
	if f.secret != c.PullSecret || !f.options.KeepImage || f.options.Disk != f.disk {
		t.Errorf("got secret %q, options %+v", f.secret, f.options)
	}
	if len(f.specs) != 1 || f.closed != 1 {
		t.Fatalf("got %d runs and %d removals, want 1 and 1", len(f.specs), f.closed)
	}
	spec := f.specs[0]
	spec.Output = nil
	want := container.Spec{
		Args: []string{
			"bootc", "install", "to-disk", "--wipe", "--skip-fetch-check",
			fmt.Sprintf("--root-size=%dM", 4096-768-101), "--source-imgref=oci:/var/tmp/ironroot-image",
			"--target-imgref=registry.example/os:1",
			"--root-ssh-authorized-keys=/run/ironroot/authorized_keys", "--disable-selinux", f.disk,
		},
		Privileged: true, Disks: []string{f.disk}, Layout: "/var/tmp/ironroot-image",
		Files: map[string]container.File{
			"/run/ironroot/authorized_keys": {Content: []byte(c.AuthorizedKeys), Mode: 0o600},
		},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("program (-want +got):\n%s", diff)
	}
	table, err := partition.Read(t.Context(), f.disk)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Partitions) != 3 {
		t.Errorf("got partitions %+v, want the ESP, the root file system and the config drive", table.Partitions)
	}
	if uuids := i.PartitionUUIDs(); len(uuids) > 0 {
		t.Errorf("got UUIDs %v, want none", uuids)
	}
}

// The root file system has the size that it would have without the scratch space, and the config drive is behind it.
func TestInstallContainerGrowsRoot(t *testing.T) {
	testenv.Programs(t, "mkfs.xfs", "xfs_repair", "xfs_db", "sgdisk")
	i, f := bootcRig(t)
	f.reserved, f.makeRoot = 100*mib+1, []string{"mkfs.xfs", "-q"}
	drive, _ := configDrive(t)
	got, err := i.InstallContainer(t.Context(), BootableContainer{Source: bootcSource, ConfigDrive: drive})
	if err != nil {
		t.Fatal(err)
	}
	if want := "Container image (" + bootcSource + ") written to device " + f.disk; got != want {
		t.Errorf("got result %q, want %q", got, want)
	}
	testenv.Run(t, "sgdisk", "-v", f.disk)
	table, err := partition.Read(t.Context(), f.disk)
	if err != nil {
		t.Fatal(err)
	}
	const want = diskSize - 768*mib
	if len(table.Partitions) != 3 || table.Partitions[1].Size != want || table.Partitions[1].Name != "root" {
		t.Fatalf("got partitions %+v, want a root of %d bytes and a config drive", table.Partitions, int64(want))
	}
	root := block.PartitionPath(sysfs.Root{}, f.disk, 2)
	testenv.Run(t, "xfs_repair", "-n", root)
	blocks := testenv.Run(t, "xfs_db", "-r", "-c", "sb 0", "-c", "p dblocks", root)
	if number := fmt.Sprintf("dblocks = %d\n", want/4096); blocks != number {
		t.Errorf("got %q, want %q", blocks, number)
	}
}

// A root that cannot grow is a part of the result. The installation is complete, with its config drive.
func TestInstallContainerCannotGrow(t *testing.T) {
	testenv.Programs(t, "mkfs.vfat", "sfdisk", "sgdisk")
	const asked, full = diskSize - 868*mib, diskSize - 768*mib
	for name, tt := range map[string]struct {
		change func(*fakeRuntime)
		size   int64 // of partition 2
		want   string
	}{
		"file system": {
			func(f *fakeRuntime) { f.makeRoot = []string{"mkfs.vfat"} }, full,
			fmt.Sprintf("partition 2 grew to %d bytes, its file system did not: grow the file system of ", int64(full)),
		},
		"other partition behind": {
			func(f *fakeRuntime) {
				f.makeRoot = []string{"sh", "-c", "sgdisk -n 3:0:+1M " + f.disk}
			}, asked, fmt.Sprintf("last partition 3: got 1048576 bytes, want %d", int64(asked)),
		},
		"no space": { // until 80 MiB after the root
			func(f *fakeRuntime) {
				const last = (1 + 512 + 4096 - 868 + 80) << 11
				f.makeRoot = []string{"sh", "-c", fmt.Sprintf("sfdisk -d %[1]s | "+
					"sed 's/^last-lba:.*/last-lba: %[2]d/' | sfdisk --no-reread --force %[1]s", f.disk, last)}
			}, asked, "grow partition 2 of ",
		},
		"MBR": {
			func(f *fakeRuntime) {
				f.makeRoot = []string{"sh", "-c", fmt.Sprintf("sgdisk -m 1:2 %s", f.disk)}
			}, asked, "got partition table mbr, want gpt",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, f := bootcRig(t)
			f.reserved = 100 * mib
			tt.change(f)
			drive, _ := configDrive(t)
			got, err := i.InstallContainer(t.Context(), BootableContainer{Source: bootcSource, ConfigDrive: drive})
			if err != nil {
				t.Fatal(err)
			}
			prefix := "Container image (" + bootcSource + ") written to device " + f.disk +
				"; root file system not grown by 100 MiB: "
			if !strings.HasPrefix(got, prefix+tt.want) {
				t.Errorf("got result %q, want %q", got, prefix+tt.want)
			}
			table, err := partition.Read(t.Context(), f.disk)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(table.Partitions); n < 3 || table.Partitions[1].Size != tt.size {
				t.Errorf("got partitions %+v, want a root of %d bytes and a config drive", table.Partitions, tt.size)
			}
		})
	}
}

// A disk that is lost before its root grows, or a broken table, fails the step.
func TestInstallContainerGrowthFails(t *testing.T) {
	testenv.Programs(t, "mkfs.xfs", "sgdisk")
	t.Run("broken primary GPT", func(t *testing.T) {
		i, f := bootcRig(t)
		f.reserved = 100 * mib
		f.makeRoot = []string{"sh", "-c", "dd if=/dev/zero bs=512 seek=1 count=1 conv=notrunc,fsync of=" + f.disk}
		_, err := i.InstallContainer(t.Context(), BootableContainer{Source: bootcSource})
		if typeOf(err) != "ImageWriteError" || !strings.Contains(err.Error(), "the primary GPT is broken") {
			t.Errorf("got %v, want an ImageWriteError", err)
		}
	})
	t.Run("lost disk", func(t *testing.T) {
		path, i := loopDisk(t)
		testenv.GPT(t, path, fmt.Sprintf("start=2048, size=%dMiB", 4096-868))
		table, err := partition.Read(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		backing, err := os.ReadFile("/sys/class/block/" + filepath.Base(path) + "/loop/backing_file")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(strings.TrimSpace(string(backing)), 0); err != nil { // reads of the device fail
			t.Fatal(err)
		}
		disk := block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: diskSize}
		problem, err := i.growRoot(t.Context(), disk, table, 100*mib)
		if problem != nil || typeOf(err) != "ImageWriteError" || !errors.Is(err, unix.EIO) {
			t.Errorf("got problem %v and %v, want an ImageWriteError with %v", problem, err, unix.EIO)
		}
	})
}

// Without keys, encryption and scratch space on the disk the program gets none of their arguments.
func TestInstallContainerPlain(t *testing.T) {
	i, f := bootcRig(t)
	if _, err := i.InstallContainer(t.Context(), BootableContainer{Source: bootcSource}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"bootc", "install", "to-disk", "--wipe", "--skip-fetch-check", "--root-size=3328M",
		"--source-imgref=oci:/var/tmp/ironroot-image", "--target-imgref=registry.example/os:1", "--disable-selinux",
		f.disk,
	}
	if diff := cmp.Diff(want, f.specs[0].Args); diff != "" || len(f.specs[0].Files) > 0 {
		t.Errorf("arguments (-want +got):\n%s, files %v", diff, f.specs[0].Files)
	}
}

// Every failure is an error of the protocol, and removes the image.
func TestInstallContainerFails(t *testing.T) {
	cause := errors.New("cause")
	for name, tt := range map[string]struct {
		change func(*Imager, *fakeRuntime, *BootableContainer)
		want   string // type
		text   string
		runs   int
		closed int
	}{
		"disabled": {
			func(i *Imager, _ *fakeRuntime, _ *BootableContainer) {
				i.o.Config.Update(func(c *config.Config) { c.DisableBootcDeploy = true })
			}, "CommandExecutionError", "disable_bootc_deploy", 0, 0,
		},
		"no disk": {
			func(i *Imager, _ *fakeRuntime, _ *BootableContainer) {
				i.o.Disks = disktest.List{}
			}, "DeviceNotFound", "", 0, 0,
		},
		"read-only disk": {
			func(i *Imager, f *fakeRuntime, _ *BootableContainer) {
				i.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
					return []block.Device{{Name: "x", Path: f.disk, Type: "disk", Size: diskSize, ReadOnly: true}}, nil
				})
			}, "ImageWriteError", "read-only", 0, 0,
		},
		"small disk": {
			func(i *Imager, f *fakeRuntime, _ *BootableContainer) { f.reserved = diskSize - 768*mib },
			"ImageWriteError", "disk has 4096 MiB", 0, 1,
		},
		"disk in use": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) {
				holder, err := os.OpenFile(f.disk, os.O_RDONLY|unix.O_EXCL, 0)
				if err != nil {
					f.t.Fatal(err)
				}
				f.t.Cleanup(func() { _ = holder.Close() })
			}, "ImageWriteError", "busy", 0, 1,
		},
		"broken config drive": {
			func(_ *Imager, _ *fakeRuntime, c *BootableContainer) { c.ConfigDrive = "!" },
			"DeploymentError", "config drive", 0, 0,
		},
		"bad reference": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) {
				f.resolveErr = fmt.Errorf("x: %w", container.ErrReference)
			}, "InvalidCommandParamsError", bootcSource, 0, 0,
		},
		"unknown image": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) {
				f.resolveErr = &fetch.DownloadError{URL: "https://x", Status: 404, Fatal: true}
			}, "ImageDownloadError", bootcSource, 0, 0,
		},
		"slow registry": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) { f.prepareErr = &fetch.TimeoutError{} },
			"ImageDownloadTimeoutError", bootcSource, 0, 0,
		},
		"no space": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) {
				f.prepareErr = fmt.Errorf("layer: %w", container.ErrNoSpace)
			}, "ImageDownloadError", "not enough space", 0, 0,
		},
		"no bootc": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) {
				f.runErr = fmt.Errorf("bootc: %w", container.ErrNotFound)
			}, "ImageDownloadError", "does not contain the required bootc binary", 1, 1,
		},
		"bootc fails": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) {
				f.runErr = &container.ExitError{Program: "bootc", Status: "exit status 3", Code: 3, Output: "no ESP"}
			}, "ImageWriteError", "exit status 3: no ESP", 1, 1,
		},
		"bootc does nothing": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) { f.idle = true },
			"DeploymentError", "no valid partition table", 1, 1,
		},
		"bootc does nothing on a used disk": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) {
				testenv.GPT(f.t, f.disk, "start=2048, size=16MiB, name=root")
				f.idle = true
			}, "DeploymentError", "no valid partition table", 1, 1,
		},
		"array": {
			func(i *Imager, f *fakeRuntime, _ *BootableContainer) {
				i.o.System = sysfs.Root{Path: f.t.TempDir()}
				array := arrayDisk(f.t, i.o.System, diskSize)
				i.o.Disks = disktest.List{array}
			}, "ImageWriteError", "firmware cannot read this RAID array", 0, 0,
		},
		"image stays": {
			func(_ *Imager, f *fakeRuntime, _ *BootableContainer) { f.closeErr = cause },
			"ImageWriteError", "remove the container image: cause", 1, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, f := bootcRig(t)
			c := BootableContainer{Source: bootcSource, PullSecret: "c2VjcmV0"}
			tt.change(i, f, &c)
			_, err := i.InstallContainer(t.Context(), c)
			if got := typeOf(err); got != tt.want || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %s with %q", err, tt.want, tt.text)
			}
			if len(f.specs) != tt.runs || f.closed != tt.closed {
				t.Errorf("got %d runs, %d removals, want %d and %d", len(f.specs), f.closed, tt.runs, tt.closed)
			}
		})
	}
}

// The image is removed even when the command was cancelled.
func TestInstallContainerCancelled(t *testing.T) {
	i, f := bootcRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.runErr = context.Canceled
	f.prepared = cancel
	if _, err := i.InstallContainer(ctx, BootableContainer{Source: bootcSource}); err == nil || f.closed != 1 {
		t.Errorf("got %v and %d removals, want an error and one", err, f.closed)
	}
}

func TestParseBootableContainer(t *testing.T) {
	parse := func(source, info, secret, drive string) (BootableContainer, error) {
		return ParseBootableContainer(json.RawMessage(source), json.RawMessage(info), json.RawMessage(secret),
			json.RawMessage(drive))
	}
	for _, tt := range []struct {
		source, info, secret, drive string
		want                        BootableContainer
	}{
		{`"a"`, "", "", "", BootableContainer{Source: "a"}},
		{`"a"`, "null", "null", "null", BootableContainer{Source: "a"}},
		{
			`"a"`, `{"image_source": "b"}`, `"c"`, `"d"`,
			BootableContainer{Source: "a", PullSecret: "c", ConfigDrive: "d"},
		},
		{
			`"a"`, `{"bootc_authorized_keys": "k", "bootc_tpm2_luks": false}`, "", "",
			BootableContainer{Source: "a", AuthorizedKeys: "k"},
		},
		{`"a"`, `{"bootc_tpm2_luks": "false", "bootc_authorized_keys": null}`, "", "", BootableContainer{Source: "a"}},
	} {
		got, err := parse(tt.source, tt.info, tt.secret, tt.drive)
		if err != nil || got != tt.want {
			t.Errorf("%+v: got %+v and %v", tt, got, err)
		}
	}
	long := strings.Repeat("k", maxKeysBytes+1)
	for want, tt := range map[string][4]string{
		"image_source is missing":        {"", "", "", ""},
		"image_source must be a string":  {"7", "", "", ""},
		"pull secret must be a string":   {`"a"`, "", `{"s3cret": 1}`, ""},
		"configdrive must be a string":   {`"a"`, "", "", "{}"},
		"instance_info must be an objec": {`"a"`, "[]", "", ""},
		"'bootc_authorized_keys' must":   {`"a"`, `{"bootc_authorized_keys": ["k"]}`, "", ""},
		"'bootc_authorized_keys' has":    {`"a"`, `{"bootc_authorized_keys": "` + long + `"}`, "", ""},
		"'bootc_tpm2_luks' must":         {`"a"`, `{"bootc_tpm2_luks": "perhaps"}`, "", ""},
		"'bootc_tpm2_luks' is not":       {`"a"`, `{"bootc_tpm2_luks": true}`, "", ""},
		"neither the device mapper":      {`"a"`, `{"bootc_tpm2_luks": "True"}`, "", ""},
	} {
		_, err := parse(tt[0], tt[1], tt[2], tt[3])
		if typeOf(err) != "InvalidCommandParamsError" || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want an InvalidCommandParamsError with %q", err, want)
		}
	}
}
