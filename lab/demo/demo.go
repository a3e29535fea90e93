// Package demo demonstrates the life cycle of a bare-metal node on this machine. A virtual machine boots the ramdisk.
// The embedded conductor inspects, cleans and deploys it with a freshly built operating system. The machine then
// restarts from its disk, and reports on its serial console that it runs and which config drive it found.
//
// All servers listen on free ports of the loopback interface. The virtual machine reaches them through QEMU's own
// network.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"ironroot/initramfs"
	"ironroot/internal/bootfile"
	"ironroot/lab/conductor"
	"ironroot/lab/imageserver"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
)

// The ways to boot the node.
const (
	Network = "network" // iPXE over HTTP
	ISO     = "iso"     // virtual CD
)

// Options configures the demonstration.
type Options struct {
	Arch      string // GOARCH of the node: "amd64" (also "") or "arm64"
	Boot      string // Network or ISO; "" means Network, on arm64 ISO, which alone is possible there
	Out       string // directory of artefacts, "" means "build"; the demo's own files are in its subdirectory demo
	Kernel    string // existing kernel and initramfs to boot; "" builds them
	Initramfs string
	Memory    int64         // of the node in bytes, 0 means 512 MiB
	Firmware  qemu.Firmware // "" means UEFI; arm64 has no BIOS
	Append    string        // additional kernel parameters for the ramdisk
	QCOW2     bool          // deploy the image as qcow2 instead of raw
	Limit     time.Duration // maximum time from power-on to the running instance, 0 means 15 minutes, on arm64 45
	Progress  io.Writer     // nil discards it
}

// Report is the result of a demonstration.
type Report struct {
	Timeline   []Moment
	Artefacts  []Artefact
	Dir        string   // directory with console.log, qemu.log and agent-logs.tar.gz
	Node       string   // UUID
	Drive      string   // UUID of the config drive, which the instance must report
	Violations []string // the agent's violations of the protocol
	Token      string   // the run's agent token, now invalid; tests search output for it
}

// Moment is an entry of the timeline.
type Moment struct {
	At   time.Duration // since power-on
	Text string
}

// Artefact is a file that the demonstration used.
type Artefact struct {
	Name string
	Size int64 // bytes
}

// demo is the state of one run.
type demo struct {
	options   Options
	progress  *progress
	report    Report
	os        *osimage.Image
	osFile    string
	images    *imageserver.Server
	conductor *conductor.Conductor
	node      *conductor.Node
	config    qemu.Config
	machine   *qemu.Machine
	began     time.Time // power-on
	finished  bool      // the report is complete and no longer changes
	cancel    context.CancelCauseFunc
}

// host is the address under which the guest reaches this machine's loopback.
const host = "10.0.2.2"

const nodeMAC = "52:54:00:12:34:56"

// Run runs the demonstration and prints its progress and timeline. If it fails, it also prints the error, the end of
// the node's console and the directory of the logs.
func Run(ctx context.Context, o Options) (*Report, error) {
	o, err := withDefaults(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &demo{options: o, progress: newProgress(o.Progress), cancel: cancel}
	d.report.Dir = filepath.Join(o.Out, "demo")
	err = d.run(ctx)
	d.progress.locked(func() { d.finished = true })
	if d.conductor != nil {
		d.report.Violations = d.conductor.Violations()
	}
	if err == nil {
		d.printReport()
		return &d.report, nil
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	d.printFailure(err)
	return &d.report, err
}

func withDefaults(o Options) (Options, error) {
	boot, limit := Network, 15*time.Minute
	switch o.Arch = cmp.Or(o.Arch, "amd64"); o.Arch {
	case "amd64":
	case "arm64":
		boot, limit = ISO, 45*time.Minute // never with hardware virtualisation
	default:
		return o, fmt.Errorf("architecture %q is unknown, want amd64 or arm64", o.Arch)
	}
	o.Boot, o.Firmware = cmp.Or(o.Boot, boot), cmp.Or(o.Firmware, qemu.UEFI)
	switch {
	case o.Boot != Network && o.Boot != ISO:
		return o, fmt.Errorf("boot %q is unknown, want %s or %s", o.Boot, Network, ISO)
	case o.Arch == "arm64" && (o.Boot != ISO || o.Firmware == qemu.BIOS):
		return o, fmt.Errorf("boot by %s with firmware %s: want %s and UEFI on arm64", o.Boot, o.Firmware, ISO)
	}
	if o.Out == "" {
		o.Out = "build"
	}
	if o.Memory == 0 {
		o.Memory = 512 << 20
	}
	if o.Limit == 0 {
		o.Limit = limit
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	out, err := filepath.Abs(o.Out)
	o.Out = out
	return o, err
}

func (d *demo) run(ctx context.Context) error {
	if err := os.RemoveAll(d.report.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(d.report.Dir, 0o755); err != nil {
		return err
	}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if err := d.serve(ctx); err != nil {
		return err
	}
	defer d.close()
	ctx, stop := context.WithTimeoutCause(ctx, d.options.Limit,
		fmt.Errorf("the node needed more than %v", d.options.Limit))
	defer stop()
	if err := d.powerOn(ctx); err != nil {
		return err
	}
	if err := d.operate(ctx); err != nil {
		return err
	}
	return d.bootInstance(ctx)
}

// prepare builds missing artefacts.
func (d *demo) prepare(ctx context.Context) error {
	if d.options.Kernel == "" || d.options.Initramfs == "" {
		end := d.progress.wait("building the ramdisk")
		built, err := initramfs.Build(ctx, initramfs.Options{
			Arch: d.options.Arch, Out: d.options.Out, Shell: true, Progress: d.progress,
		})
		end()
		if err != nil {
			return fmt.Errorf("build the ramdisk: %w", err)
		}
		d.options.Kernel, d.options.Initramfs = built.Kernel, built.Initramfs
	} else if err := bootfile.CheckPair(d.options.Arch, d.options.Kernel, d.options.Initramfs); err != nil {
		return err
	}
	end := d.progress.wait("building an operating system image to deploy")
	image, err := osimage.Build(ctx, osimage.Options{Arch: d.options.Arch, Progress: d.progress})
	if err == nil {
		d.os, d.osFile = image, image.Raw
		if d.options.QCOW2 {
			d.osFile, err = image.QCOW2(ctx, false)
		}
	}
	end()
	if err != nil {
		return err
	}
	for _, file := range []string{d.options.Kernel, d.options.Initramfs, d.osFile} {
		if err := d.artefact(file); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) artefact(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	d.report.Artefacts = append(d.report.Artefacts, Artefact{Name: path, Size: info.Size()})
	return nil
}

// operate takes the node from inspection to a written disk during one boot of the ramdisk.
func (d *demo) operate(ctx context.Context) error {
	end := d.progress.wait("the node's inspection data (firmware, boot by " + d.options.Boot +
		", kernel, ramdisk, network)")
	err := d.node.WaitInspection(ctx)
	end()
	if err != nil {
		return err
	}
	end = d.progress.wait("the agent's first heartbeat")
	err = d.node.WaitAgent(ctx)
	end()
	if err != nil {
		return err
	}
	end = d.progress.wait("cleaning (the disk's metadata are erased)")
	err = d.node.Clean(ctx)
	end()
	if err != nil {
		return err
	}
	return d.deploy(ctx)
}

func (d *demo) deploy(ctx context.Context) error {
	image, err := d.imageToDeploy()
	if err != nil {
		return err
	}
	drive, err := conductor.ConfigDrive(map[string]any{
		"uuid": d.report.Drive, "name": "demo", "hostname": "demo-instance", "launch_index": 0,
	}, []byte("#cloud-config\n"))
	if err != nil {
		return err
	}
	end := d.progress.wait("deployment")
	err = d.node.Deploy(ctx, image, drive)
	end()
	if archive := d.node.Logs(); archive != nil {
		err = errors.Join(err, os.WriteFile(filepath.Join(d.report.Dir, "agent-logs.tar.gz"), archive, 0o600))
	}
	return err
}

func (d *demo) imageToDeploy() (conductor.Image, error) {
	image := conductor.Image{URL: d.images.URLFrom(host, "debian.raw"), Format: "raw", Checksum: d.os.SHA256}
	if !d.options.QCOW2 {
		return image, nil
	}
	sum, err := osimage.SHA256(d.osFile)
	return conductor.Image{URL: d.images.URLFrom(host, "debian.qcow2"), Format: "qcow2", Checksum: sum}, err
}

// bootInstance starts the machine from its disk, as Ironic does through the BMC, and checks its report on the
// console.
func (d *demo) bootInstance(ctx context.Context) error {
	end := d.progress.wait("the node to switch itself off")
	_, err := d.machine.WaitEvent(ctx, "SHUTDOWN", 1)
	end()
	if err != nil {
		return err
	}
	d.moment("the node has switched itself off")
	mark := d.machine.Console().Mark()
	if err := d.bootFromDisk(ctx); err != nil {
		return err
	}
	d.moment("power on, from the disk now")
	end = d.progress.wait("the deployed system")
	defer end()
	up, err := d.machine.Console().FollowFrom(ctx, mark, osimage.Up)
	if err != nil {
		return fmt.Errorf("the deployed system did not come up: %w", err)
	}
	d.moment("the deployed system runs: " + up.Groups[0])
	drive, err := d.machine.Console().FollowFrom(ctx, mark, osimage.ConfigDrive)
	if err != nil {
		return err
	}
	if drive.Groups[1] != d.report.Drive {
		return fmt.Errorf("the deployed system read config drive %q, want %q", drive.Groups[1], d.report.Drive)
	}
	d.moment("it read its config drive: uuid " + drive.Groups[1])
	return nil
}

// start records the time of power-on. Events arrive in other goroutines.
func (d *demo) start() { d.progress.locked(func() { d.began = time.Now() }) }

// moment adds a moment to the timeline.
func (d *demo) moment(text string) {
	d.progress.say("%s", text)
	d.progress.locked(func() {
		if d.finished {
			return
		}
		d.report.Timeline = append(d.report.Timeline, Moment{At: time.Since(d.began), Text: text})
	})
}

var (
	imageProgress = regexp.MustCompile(`writing image.*percent="?(\d+)`)
	ramdiskUp     = regexp.MustCompile(`ironroot starts`)
	deadNode      = regexp.MustCompile(`Kernel panic - not syncing|panic: |fatal error: `)
)

// Line reports progress that it finds in a line of the node's console, and ends the run if the node crashes.
func (d *demo) Line(line string) {
	if m := imageProgress.FindStringSubmatch(line); m != nil {
		d.progress.say("image: %s %%", m[1])
	}
	if ramdiskUp.MatchString(line) {
		d.moment("the kernel has started the ramdisk")
	}
	if deadNode.MatchString(line) {
		d.cancel(fmt.Errorf("the node has crashed: %s", line))
	}
}
