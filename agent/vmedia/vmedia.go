// Package vmedia takes configuration from the virtual media a BMC attached: the parameters of the conductor's floppy,
// the agent's configuration files on the boot ISO, and the static network data of the config drive.
//
// Names and rules are those of ironic-python-agent's images. Only whole optical drives and small USB disks are looked
// at (see storage/removable); parameters and configuration files only where the kernel's own command line says
// boot_method=vmedia. Nothing is mounted. Everything that is read has a bound. A medium that is damaged or holds rubbish
// is a warning with its name, and the machine goes on with what else configures it.
package vmedia

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/storage/block"
	"ironroot/storage/removable"
)

const (
	floppyLabel   = "ir-vfd-dev"
	floppyModel   = "virtual media"
	parameterFile = "parameters.txt"
	networkFile   = "openstack/latest/network_data.json"

	maxParameters  = 64 << 10
	maxNetworkData = 4 << 20

	limit = 30 * time.Second // of the wait for media that must come
	scan  = 10 * time.Second // of the wait for USB disks that the kernel is asking what they are
	grace = 3 * time.Second  // for media to appear once drivers are loaded
)

// Options say where to look. The zero value, with Params, is the running machine.
type Options struct {
	System block.System
	Params config.Params // of the kernel's command line
	Log    *slog.Logger
	// Settled is closed when the machine's devices have their drivers; nil means that they have.
	Settled <-chan struct{}
	// Root is the folder below which etc is written; "" is "/".
	Root string
	// Overdue, when set, is called by NetworkData when there is no reason any more to hold anything back for its drive.
	Overdue func()

	limit, scan, grace time.Duration // of tests
	progress           *progress
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Root == "" {
		o.Root = "/"
	}
	if o.limit == 0 {
		o.limit, o.scan, o.grace = limit, scan, grace
	}
	o.progress = &progress{said: map[string]bool{}}
	return o
}

// Booted tells whether the machine was booted from virtual media, by the kernel's command line.
func Booted(params config.Params) bool { return params["boot_method"] == "vmedia" }

// ErrMedia says that a medium with configuration is there and of no use.
var ErrMedia = errors.New("virtual media cannot be used")

// Load copies the agent's configuration files from the boot ISO into the root file system and returns the parameters
// of the kernel's command line with those of the floppy over them. Without boot_method=vmedia it returns at once what
// it was given. Media that never appear are no error, and are waited for at most 30 s. With an error that wraps
// ErrMedia come the parameters that there are without the medium; whether they are enough to go on is for the caller
// to say.
func Load(ctx context.Context, o Options) (config.Params, error) {
	if !Booted(o.Params) {
		return o.Params, nil
	}
	o = o.withDefaults()
	s := search{Options: o, params: maps.Clone(o.Params), useless: map[string]bool{}}
	// As long as nothing names Ironic, a medium that does has to come.
	must := func() bool { return !s.floppy && !s.named && s.params["ipa-api-url"] == "" }
	if err := o.await(ctx, must, s.visit); err != nil {
		return nil, err
	}
	if len(o.progress.seen) > 0 {
		return s.params, fmt.Errorf("%w: %w", ErrMedia, errors.Join(o.progress.seen...))
	}
	if !s.floppy && !s.iso {
		o.Log.Warn("booted from virtual media (boot_method=vmedia), but neither the parameters' floppy nor the boot ISO with configuration is attached")
	}
	return s.params, nil
}

// search is what Load has found.
type search struct {
	Options
	params      config.Params
	floppy, iso bool
	named       bool            // a file of the ISO seems to say where Ironic is
	useless     map[string]bool // media, by path, that are not looked at again
}

func (s *search) visit(volumes []*removable.Volume) (bool, error) {
	if !s.iso {
		s.iso = s.use(volumes, bootISO, s.copyConfig)
	}
	if !s.floppy {
		s.floppy = s.use(volumes, parametersFloppy, s.readParameters)
	}
	s.progress.partly = s.floppy || s.iso
	return s.floppy && s.iso, nil
}

// use reads the medium that pick chooses, and tells whether it was of use. One that makes no sense makes room for
// another; one that cannot be read is tried again at the next look.
func (s *search) use(volumes []*removable.Volume, pick func([]*removable.Volume) *removable.Volume, read func(*removable.Volume) error) bool {
	for {
		v := pick(slices.DeleteFunc(slices.Clone(volumes), func(v *removable.Volume) bool { return s.useless[v.Device.Path] }))
		if v == nil {
			return false
		}
		err := read(v)
		if err == nil {
			return true
		}
		if again := s.warn(v.Device.Path, err); again {
			return false
		}
		s.useless[v.Device.Path] = true
	}
}

// parametersFloppy picks the medium with the floppy's label, else one whose model says what it is.
func parametersFloppy(volumes []*removable.Volume) *removable.Volume {
	for _, v := range volumes {
		if strings.EqualFold(v.Label, floppyLabel) {
			return v
		}
	}
	for _, v := range volumes {
		if strings.Contains(strings.ToLower(v.Device.Model), floppyModel) && !isDisc(v) {
			return v
		}
	}
	return nil
}

// isDisc tells whether a medium is an optical one without parameters: on some BMCs the boot ISO is in a drive of the
// floppy's model.
func isDisc(v *removable.Volume) bool {
	if isBootISO(v) {
		return true
	}
	_, err := v.ReadFile(parameterFile, maxParameters)
	return v.Device.Type == "rom" && errors.Is(err, fs.ErrNotExist)
}

// readParameters puts the floppy's parameters over those that there are.
func (s *search) readParameters(v *removable.Volume) error {
	data, err := v.ReadFile(parameterFile, maxParameters)
	if err != nil {
		return fault.VirtualMediaBoot("parameters floppy: %w", err)
	}
	more, err := parseParameters(data)
	if err != nil {
		return fault.VirtualMediaBoot("parameters floppy: %s on %s: %w", parameterFile, v.Device.Path, err)
	}
	s.Log.Info("parameters of the virtual floppy", "device", v.Device.Path, "label", v.Label, "parameters", more)
	maps.Copy(s.params, more)
	return nil
}

// parseParameters reads the text of a floppy by the rules of the kernel's command line. Zeros that fill the file up and
// the mark that some editors put before a text are not part of it; a file that is no text at all is an error.
func parseParameters(data []byte) (config.Params, error) {
	data = bytes.TrimPrefix(bytes.TrimRight(data, "\x00"), []byte("\ufeff"))
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return nil, fmt.Errorf("byte %d is zero, want a text", at)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("got bytes that are no UTF-8, want a text")
	}
	return config.ParseCmdline(string(data)), nil
}
