package nvidia

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/storage/sysfs"
)

// class is the manager's class and name, as in ironic-python-agent.
const class = "MellanoxDeviceHardwareManager"

const (
	vendor       = "0x15b3" // PCI vendor of the cards
	networkClass = "0x02"   // first byte of the PCI class of network controllers, InfiniBand adapters included
)

// The tools.
const (
	mstflint   = "mstflint"
	mstconfig  = "mstconfig"
	mstfwreset = "mstfwreset"
)

// queryTimeout limits a tool that changes nothing. Tools that write are never killed.
const queryTimeout = 5 * time.Minute

// Options are the options of a Manager.
type Options struct {
	Config *config.Live
	System sysfs.Root
	Tools  ToolFinder
	Images Opener
	// Board shows the progress of operations; nil shows nothing.
	Board status.Trackers
	Log   *slog.Logger
}

// ToolFinder finds tools by their names.
type ToolFinder interface {
	FindTools(ctx context.Context, names ...string) (Tools, error)
}

// Opener opens the file at a URL of http or https: see [imaging.Imager.Open]. Unless verify is set, the certificate is
// not verified.
type Opener interface {
	Open(ctx context.Context, url string, verify bool) (io.ReadCloser, error)
}

// Tools run the tools.
type Tools interface {
	// Run runs a tool that changes nothing and returns its standard output. input, if not nil, is its standard input.
	// After the timeout, or when ctx ends, it is killed.
	Run(ctx context.Context, input *os.File, timeout time.Duration, argv ...string) ([]byte, error)
	// RunToEnd is Run for a tool that writes to a card, and is never killed.
	RunToEnd(input *os.File, argv ...string) ([]byte, error)
}

// Manager is the hardware manager for network cards of NVIDIA.
type Manager struct{ o Options }

// New returns the manager.
func New(o Options) *Manager {
	if o.Board == nil {
		o.Board = (*status.Board)(nil)
	}
	return &Manager{o}
}

// Class implements [hardware.Manager].
func (*Manager) Class() string { return class }

// Name implements [hardware.Manager].
func (*Manager) Name() string { return class }

// Version implements [hardware.Manager]. It is the version of the manager of the same name in ironic-python-agent.
func (*Manager) Version() string { return "1" }

// Support implements [hardware.Manager]. The kernel lists PCI devices before it loads their drivers.
func (m *Manager) Support(context.Context) hardware.Level {
	functions, err := m.functions()
	if err != nil {
		m.o.Log.Warn("PCI devices not read", "err", err)
	}
	if len(functions) == 0 {
		return hardware.None
	}
	return hardware.Mainline
}

// Steps implements [hardware.Stepper]. The steps are the same in cleaning, deployment and service.
func (m *Manager) Steps(hardware.Kind, *node.Node, []map[string]any) []hardware.Step {
	no := false
	return []hardware.Step{
		{
			Name: "update_nvidia_nic_firmware_image", Interface: "deploy", RebootRequested: true, Abortable: &no,
			ArgsInfo: map[string]hardware.ArgInfo{imagesArgument: {Required: true, Description: "" +
				"List of firmware images. Each is an object with url (file, http or https), checksum, checksumType " +
				"(md5, sha256 or sha512), componentFlavor (PSID of the cards) and version of the firmware."}},
			Help: "Updates the firmware of NVIDIA's network cards.",
			Run:  m.updateImages,
		},
		{
			Name: "update_nvidia_nic_firmware_settings", Interface: "deploy", RebootRequested: true, Abortable: &no,
			ArgsInfo: map[string]hardware.ArgInfo{settingsArgument: {Required: true, Description: "" +
				"List of settings. Each is an object with deviceID (PCI device ID of the cards, such as 101b) and " +
				"globalConfig, function0Config and function1Config: objects with parameters of mstconfig and their " +
				"values, for a whole card, its first function and its other functions."}},
			Help: "Changes settings of NVIDIA's network cards.",
			Run:  m.updateSettings,
		},
	}
}

// function is a PCI function of a card.
type function struct {
	address string // "0000:3b:00.0"
	device  string // PCI device ID in lower case, "101b"
}

// card returns the address without the number of the function.
func (f function) card() string {
	card, _, _ := strings.Cut(f.address, ".")
	return card
}

// isFirst reports whether it is function 0.
func (f function) isFirst() bool { return strings.HasSuffix(f.address, ".0") }

// functions returns the functions of all cards, ordered by address. Virtual functions have no firmware of their own and
// are omitted.
func (m *Manager) functions() ([]function, error) {
	dir := m.o.System.Sys("bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []function
	var errs []error
	for _, entry := range entries {
		read := func(attribute string) string {
			text, err := m.o.System.Files.Read(filepath.Join(dir, entry.Name(), attribute))
			if err != nil && !sysfs.IsAbsent(err) {
				errs = append(errs, err)
			}
			return strings.ToLower(strings.TrimSpace(string(text)))
		}
		if read("vendor") != vendor || !strings.HasPrefix(read("class"), networkClass) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, entry.Name(), "physfn")); err == nil {
			continue
		}
		list = append(list, function{entry.Name(), strings.TrimPrefix(read("device"), "0x")})
	}
	return list, errors.Join(errs...)
}

// run is one run of a step.
type run struct {
	*Manager
	tools     Tools
	functions []function
	tracker   status.Tracker
}

// start finds the tools and the cards for a step.
func (m *Manager) start(ctx context.Context, what string) (*run, error) {
	tools, err := m.o.Tools.FindTools(ctx, mstflint, mstconfig, mstfwreset)
	if err != nil {
		return nil, fault.HardwareManagerConfiguration("%w: add a userland with Debian's packages mstflint, "+
			"pciutils and procps by ironroot image --manager-root DIR", err)
	}
	functions, err := m.functions()
	if err != nil {
		return nil, fmt.Errorf("list network cards: %w", err)
	}
	return &run{m, tools, functions, m.o.Board.Track(m.o.Log, what, "network cards")}, nil
}

// query runs a tool that changes nothing.
func (r *run) query(ctx context.Context, argv ...string) (string, error) {
	out, err := r.tools.Run(ctx, nil, queryTimeout, argv...)
	return string(out), err
}

// write runs a tool that writes to a card.
func (r *run) write(f function, input *os.File, argv ...string) error {
	r.o.Log.Info("tool writes to network card", "device", f.address, "command", strings.Join(argv, " "))
	_, err := r.tools.RunToEnd(input, argv...)
	return err
}

// firmwareOf queries the firmware of a card.
func (r *run) firmwareOf(ctx context.Context, f function) (firmware, error) {
	out, err := r.query(ctx, mstflint, "-d", f.address, "-qq", "query")
	if err != nil {
		return firmware{}, fmt.Errorf("network card %s: %w", f.address, err)
	}
	got, err := parseFirmware(out)
	if err != nil {
		return got, fmt.Errorf("network card %s: %w", f.address, err)
	}
	return got, nil
}

// reset makes a card run the firmware that it has in its flash.
func (r *run) reset(f function) error {
	r.tracker.SetPhase("resetting "+f.address, 0, 0, 0)
	if err := r.write(f, nil, mstfwreset, "-d", f.address, "-y", "--sync", "1", "reset"); err != nil {
		return fmt.Errorf("reset network card %s: %w", f.address, err)
	}
	return nil
}

// eachOf decodes the elements of the list that is the only argument of a step, and calls f with each and its name:
// "images[0]".
func eachOf[T any](
	call hardware.Call, name string, invalid func(format string, args ...any) *fault.Error,
	f func(element T, name string) error,
) error {
	if err := call.CheckArguments(name); err != nil {
		return err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(call.Args[name], &list); err != nil || list == nil {
		return invalid("the argument %s must be a list", name)
	}
	for i, text := range list {
		elementName := fmt.Sprintf("%s[%d]", name, i)
		var element T
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&element); err != nil {
			return invalid("%s: %w", elementName, err)
		}
		if err := f(element, elementName); err != nil {
			return err
		}
	}
	return nil
}
