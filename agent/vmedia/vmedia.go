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
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/removable"
	"ironroot/storage/sysfs"
)

const (
	floppyLabel   = "ir-vfd-dev"
	floppyModel   = "virtual media"
	parameterFile = "parameters.txt"
	networkFile   = "openstack/latest/network_data.json"

	maxParameters  = 64 << 10
	maxNetworkData = 4 << 20

	drivers = 2 * time.Minute  // limit of the wait for drivers
	limit   = 30 * time.Second // of the wait for required media, once drivers are loaded
	scan    = 10 * time.Second // of the wait for USB disks that the kernel is probing
	grace   = 3 * time.Second  // without changes after drivers are loaded, before the wait ends
)

// Options describe the machine. The zero value, with Params, is the running machine.
type Options struct {
	System sysfs.Root
	Params config.Params // of the kernel's command line
	Log    *slog.Logger
	// Settled is closed when the drivers of all devices are loaded; nil means that they are.
	Settled <-chan struct{}
	// Root is the directory below which etc is written; "" is "/".
	Root string
	// Signed is set if the firmware has verified the whole image. The media then replace no file and no parameter of
	// the image, and can set only what [config.Source] allows.
	Signed bool

	// Set by tests: the limits of waits, and the drives.
	drivers, limit, scan, grace time.Duration
	drives                      drives
}

// drives are the drives of a machine that can have media.
type drives interface {
	volumes(ctx context.Context, s sysfs.Root) ([]*removable.Volume, []*removable.Problem, error)
	ignored(ctx context.Context, s sysfs.Root) ([]removable.IgnoredDisk, error)
	// await calls done, again after every change of the drives, until it returns true or an error, or ctx ends.
	await(ctx context.Context, done func() (bool, error)) error
}

// removableDrives implements drives: see packages removable and block.
type removableDrives struct{}

func (removableDrives) volumes(
	ctx context.Context, s sysfs.Root,
) ([]*removable.Volume, []*removable.Problem, error) {
	return removable.Volumes(ctx, s)
}

func (removableDrives) ignored(ctx context.Context, s sysfs.Root) ([]removable.IgnoredDisk, error) {
	return removable.IgnoredDisks(ctx, s)
}

func (removableDrives) await(ctx context.Context, done func() (bool, error)) error {
	return block.Await(ctx, done)
}

// Media are the media of one boot. NetworkData uses what Load has found.
type Media struct {
	Options
	params      config.Params
	floppy, iso bool
	ironicNamed bool             // a file of the ISO contains api_url
	unusable    map[string]bool  // media with invalid configuration, by path, which are not read again
	unsigned    *config.Unsigned // what was read from media, if the image is signed
	network     networkSearch

	ignored         *ignoredSearch
	reported        map[string]bool // errors of media that were logged
	problems        []error         // the same errors, in order
	failed          bool            // the last visit could not read a medium; a retry can succeed
	quiet           bool            // no further media are expected: a fallback is accepted
	fallbackSkipped bool            // a fallback was not accepted yet

	began   time.Time     // start of the wait for drivers
	pending bool          // Again must read a medium
	merged  config.Params // the result of Load and Again so far
}

// New returns the media of a machine without reading them.
func New(o Options) *Media {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Root == "" {
		o.Root = "/"
	}
	if o.limit == 0 {
		o.drivers, o.limit, o.scan, o.grace = drivers, limit, scan, grace
	}
	if o.drives == nil {
		o.drives = removableDrives{}
	}
	m := &Media{
		Options: o, began: time.Now(), params: maps.Clone(o.Params),
		unusable: map[string]bool{}, reported: map[string]bool{},
		ignored: &ignoredSearch{running: make(chan struct{}, 1), named: map[string]bool{}},
		network: networkSearch{id: o.Params["ir_pub_id"], skipped: map[string]bool{}},
	}
	if o.Signed {
		m.unsigned = &config.Unsigned{Params: map[string]bool{}, Files: map[string]bool{}}
	}
	return m
}

// Unsigned returns the parameters and files of the media, or nil if the image is not signed. It must not be called
// concurrently with Load and Again.
func (m *Media) Unsigned() *config.Unsigned { return m.unsigned }

// Booted reports whether the kernel's command line says that the machine was booted from virtual media.
func Booted(params config.Params) bool { return params["boot_method"] == "vmedia" }

// ErrMedia means that a medium with configuration is present but not usable.
var ErrMedia = errors.New("virtual media not usable")

// Load copies the agent's configuration files from the boot ISO into the root file system and returns the parameters of
// the kernel's command line, overridden by the floppy's. Without boot_method=vmedia it returns Params at once. It waits
// for drivers for at most two minutes, and then for media for at most 30 s. Missing media are not an error. If the
// error wraps ErrMedia, the parameters are those without the unusable medium, and the caller decides whether they
// suffice.
func (m *Media) Load(ctx context.Context) (config.Params, error) {
	if !Booted(m.Params) {
		return m.Params, nil
	}
	// A medium is required as long as nothing contains the URL of Ironic.
	must := func() bool { return !m.floppy && !m.ironicNamed && m.params["ipa-api-url"] == "" }
	if err := m.await(ctx, must, m.visit); err != nil {
		return nil, err
	}
	m.merged = m.params
	if len(m.problems) > 0 {
		m.pending = true
		return m.params, fmt.Errorf("%w: %w", ErrMedia, errors.Join(m.problems...))
	}
	if !m.floppy || !m.iso {
		m.warnIgnored(ctx)
	}
	if !m.floppy && !m.iso {
		m.Log.Warn("booted from virtual media (boot_method=vmedia), " +
			"but neither the floppy with parameters nor the boot ISO with configuration is attached")
	}
	return m.params, nil
}

// Again reads the media again if Load or the last call of Again could not use one: the BMC can attach it late, or
// replace it. It works like Load. The new parameters override those found before, whose medium can be gone. It returns
// nil if every medium has been read. It must not be called concurrently with Load or itself.
func (m *Media) Again(ctx context.Context) (config.Params, error) {
	if !m.pending {
		return nil, nil //nolint:nilnil // nothing is to be read
	}
	o := m.Options
	o.Params = m.merged
	next := New(o)
	next.ignored, next.began, next.unsigned = m.ignored, m.began, m.unsigned
	params, err := next.Load(ctx)
	if params != nil {
		m.merged = params
	}
	if err == nil && (next.floppy || next.iso) {
		m.pending = false
	}
	return params, err
}

// ignoredSearch is the search for disks that look like media but are not used as such.
type ignoredSearch struct {
	running chan struct{}   // full during a search
	named   map[string]bool // disks that were logged, by path; only the running search accesses it
}

// warnIgnored logs each disk once that has the label or the model of a medium but is not used as one. It does not wait
// for the result, because opening a disk can hang in the kernel. While a search is running, it does nothing.
func (m *Media) warnIgnored(ctx context.Context) {
	s := m.ignored
	select {
	case s.running <- struct{}{}:
	default:
		return
	}
	goroutine.Go(func() error {
		disks, err := m.drives.ignored(ctx, m.System)
		if err != nil {
			m.Log.Warn("media not listed", "err", err)
		}
		for _, d := range disks {
			m.warnOf(d, s.named)
		}
		return nil
	}, func(error) { <-s.running }) // a panic is logged
}

// warnOf logs a disk unless it was logged before.
func (m *Media) warnOf(d removable.IgnoredDisk, named map[string]bool) {
	isMedium := strings.EqualFold(d.Label, floppyLabel) || isBootLabel(d.Label) ||
		strings.Contains(strings.ToLower(d.Device.Model), floppyModel)
	if isMedium && !named[d.Device.Path] {
		named[d.Device.Path] = true
		m.Log.Warn("USB disk not used as virtual media: it is neither removable nor write-protected",
			"device", d.Device.Path, "label", d.Label, "model", d.Device.Model)
	}
}

func (m *Media) visit(volumes []*removable.Volume) (bool, error) {
	if !m.iso {
		m.iso = m.use(volumes, bootISO, m.copyConfig)
	}
	if !m.floppy {
		m.floppy = m.use(volumes, m.parametersFloppy, m.readParameters)
	}
	m.network.inspect(m, volumes)
	return m.floppy && m.iso, nil
}

// use reads the medium that pick returns, and reports whether it succeeded. If the content is invalid or causes a
// panic, it tries another medium. If the medium cannot be read, the next visit tries it again.
func (m *Media) use(
	volumes []*removable.Volume, pick func([]*removable.Volume) *removable.Volume, read func(*removable.Volume) error,
) bool {
	useless := func(v *removable.Volume) bool { return m.unusable[v.Device.Path] }
	for {
		v := pick(slices.DeleteFunc(slices.Clone(volumes), useless))
		if v == nil {
			return false
		}
		err := goroutine.Catch(func() error { return read(v) })
		if err == nil {
			return true
		}
		if again := m.warn(v.Device.Path, err); again {
			return false
		}
		m.unusable[v.Device.Path] = true
	}
}

// parametersFloppy returns the medium with the floppy's label. A medium with the floppy's model is a fallback, accepted
// only when no further media are expected, because devices appear in any order.
func (m *Media) parametersFloppy(volumes []*removable.Volume) *removable.Volume {
	for _, v := range volumes {
		if strings.EqualFold(v.Label, floppyLabel) {
			return v
		}
	}
	for _, v := range volumes {
		if strings.Contains(strings.ToLower(v.Device.Model), floppyModel) && !isDisc(v) {
			if m.quiet {
				return v
			}
			m.fallbackSkipped = true
		}
	}
	return nil
}

// isDisc reports whether a medium is an optical one without parameters: some BMCs attach the boot ISO with the floppy's
// model.
func isDisc(v *removable.Volume) bool {
	if isBootISO(v) {
		return true
	}
	_, err := v.ReadFile(parameterFile, maxParameters)
	return v.Device.Type == "rom" && errors.Is(err, fs.ErrNotExist)
}

// readParameters overrides the parameters by the floppy's.
func (m *Media) readParameters(v *removable.Volume) error {
	data, err := v.ReadFile(parameterFile, maxParameters)
	if err != nil {
		return fault.VirtualMediaBoot("parameters floppy: %w", err)
	}
	more, err := parseParameters(data)
	if err != nil {
		return fault.VirtualMediaBoot("parameters floppy: %s on %s: %w", parameterFile, v.Device.Path, err)
	}
	if m.Signed {
		m.restrict(more, v.Device.Path)
	}
	m.Log.Info("parameters read from virtual floppy", "device", v.Device.Path, "label", v.Label, "parameters", more)
	maps.Copy(m.params, more)
	return nil
}

// restrict deletes the parameters that a medium cannot set in a signed image, and notes where the others come from.
func (m *Media) restrict(more config.Params, device string) {
	maps.DeleteFunc(more, func(name, value string) bool {
		own, given := m.Params[name]
		return given && own == value && !m.unsigned.Params[name]
	})
	unknown := 0
	for _, r := range more.DropRefused(func(name string) bool {
		_, given := m.Params[name]
		return given && !m.unsigned.Params[name]
	}) {
		if r.Name == "" {
			unknown++
			continue
		}
		m.Log.Warn("parameter of virtual floppy ignored", "device", device, "parameter", r.Name, "reason", r.Reason)
	}
	if unknown > 0 {
		m.Log.Warn("unknown parameters of virtual floppy ignored: the image is signed", "device", device,
			"count", unknown)
	}
	for name := range more {
		m.unsigned.Params[name] = true
	}
}

// parseParameters parses the text of a floppy by the rules of the kernel's command line. It ignores trailing zeros
// and a leading byte order mark. A file that is not text is an error.
func parseParameters(data []byte) (config.Params, error) {
	data = bytes.TrimPrefix(bytes.TrimRight(data, "\x00"), []byte("\ufeff"))
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return nil, fmt.Errorf("byte %d is zero, want text", at)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("got invalid UTF-8, want text")
	}
	return config.ParseCmdline(string(data)), nil
}
