package container

import (
	"errors"
	"log/slog"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"ironroot/storage/image/fetch"
	"ironroot/storage/sysfs"
)

// Image is an image in a registry, of which the manifest and the configuration are known.
type Image struct {
	// Name is the name of the image without a transport: HOST[:PORT]/REPOSITORY[:TAG][@DIGEST].
	Name string
	// Digest is the digest of the manifest for the machine's architecture, "sha256:...".
	Digest string
	// ID is the image ID: the digest of the configuration, as hexadecimal digits.
	ID string
	// Config has the program, its environment, user and working directory.
	Config v1.Config

	remote *fetch.Container
}

// Errors that callers distinguish.
var (
	// ErrReference is the cause of errors about an image reference or a pull secret that cannot be used.
	ErrReference = fetch.ErrReference
	// ErrNoSpace is the cause of errors about an image for which there is not enough space.
	ErrNoSpace = errors.New("not enough space")
	// ErrNotFound is the cause of an error about a program that the image lacks.
	ErrNotFound = errors.New("program not found in the image")
	// ErrMaxDuration is the cause of an error about a program that was ended after Spec.MaxDuration.
	ErrMaxDuration = errors.New("time limit of the program exceeded")
)

// Options are the options of Prepare.
type Options struct {
	Log    *slog.Logger
	System sysfs.Root
	// KeepImage also stores the image as an OCI layout, see Spec.Layout. It needs space for the compressed layers.
	KeepImage bool
	// Disk is the device whose end can be used as scratch space, if memory does not suffice: its whole content is
	// about to be replaced. "" allows memory only.
	Disk string
	// Progress is set when a part of a layer has arrived, to the number of bytes of all layers. It may be nil.
	Progress Progress
}

// Progress shows the progress of a phase of work. It is a part of [status.Tracker].
type Progress interface {
	SetPhase(phase string, attempt int, done, total int64)
}

// Spec describes a program to run in an image.
type Spec struct {
	// Args are the program and its arguments. They replace the image's command; the image's entrypoint is used only
	// if Args is empty. A program without a slash is searched in the PATH of the image.
	Args []string
	// Env is added to the environment of the image, as NAME=VALUE.
	Env []string
	// Dir is the working directory; "" is the image's.
	Dir string
	// User is USER[:GROUP], names in the image or numbers, instead of the image's; "" does not replace it.
	User string
	// Disks are block devices of the machine, such as /dev/vda, which the program sees with their partitions.
	Disks []string
	// Privileged gives the program the capabilities and mounts of a privileged container of podman, without those
	// that lead to the agent. Otherwise it has the default capabilities of podman and cannot mount.
	Privileged bool
	// NoNetwork gives the program a network of its own, without interfaces. Otherwise it has the machine's.
	NoNetwork bool
	// Files are files that the program sees, by their absolute path.
	Files map[string]File
	// Mounts are directories of the ramdisk that the program sees.
	Mounts []Mount
	// Layout is the directory in which the program sees the image as an OCI layout. It requires Options.KeepImage. ""
	// means none.
	Layout string
	// MaxDuration is the longest time for which the program can run; 0 means forever. After that it is ended like a
	// cancelled one.
	MaxDuration time.Duration
	// Output receives the output. It may be nil.
	Output Output
}

// Output receives the output of a program, in one goroutine at a time.
type Output interface {
	// Line is called with each line, without its newline. Lines are cut after 4 KiB.
	Line(line string)
}

// File is a file that a container sees.
type File struct {
	Content []byte
	Mode    uint32 // permissions, such as 0o600
}

// Mount is a directory that a container sees. Nothing in it can be executed, and its device nodes are not devices.
type Mount struct {
	Source   string // absolute path in the ramdisk
	Target   string // absolute path in the container
	ReadOnly bool
}

// ExitError is the error of a program that ended with a status other than 0.
type ExitError struct {
	Program string
	Status  string // such as "exit status 1" or "signal: killed"
	Code    int    // exit status, -1 after a signal
	Output  string // the end of its output, at most 4 KiB
}

func (e *ExitError) Error() string {
	text := e.Program + " of the image: " + e.Status
	if e.Output != "" {
		text += ": " + e.Output
	}
	return text
}
