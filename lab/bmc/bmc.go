// Package bmc implements a small Redfish BMC for the machines of a lab. It supports what Ironic's redfish hardware
// type requires: power control, the boot device, and virtual media that the BMC downloads itself.
//
// The resources follow DMTF DSP0266 and the schemas ServiceRoot 1.5, ComputerSystem 1.10, Manager 1.3, Chassis 1.5,
// EthernetInterface 1.4 and VirtualMedia 1.3. Not implemented: authentication, sessions, tasks, events, entity tags,
// BIOS settings, firmware updates, storage.
package bmc

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
)

// Boot describes what a machine boots from.
type Boot struct {
	// Target is Redfish's BootSource: "None", "Pxe", "Cd", "UsbCd", "Hdd" or "UefiHttp". "None" means the firmware's
	// order.
	Target string
	URL    string // what UefiHttp boots
	CD     string // path of the ISO in the CD drive, "" means none
	USB    string // path of the image of the USB stick, "" means none
}

// Machine is a machine that can be switched on.
type Machine interface {
	// Start switches the machine on. The machine runs until its Session ends; ctx limits the start only.
	Start(ctx context.Context, boot Boot) (Session, error)
}

// Session is one run of a machine, from power-on to power-off.
type Session interface {
	// Wait waits until the machine has ended and reports whether its guest requested a restart.
	Wait() (restart bool)
	// Shutdown requests a shutdown from the guest, like the power button.
	Shutdown(ctx context.Context) error
	// Stop ends the machine at once, like a power cut.
	Stop() error
}

// Options describes a system.
type Options struct {
	UUID   string
	Name   string
	MACs   []string
	Memory int64 // bytes
	CPUs   int
	UEFI   bool
	// Dir is the directory for downloaded media.
	Dir     string
	Machine Machine
	Log     *slog.Logger // nil discards it
	// Client downloads media; nil means http.DefaultClient.
	Client *http.Client
	Resets Resets // may be nil
}

// Resets receives the requests to reset a system.
type Resets interface {
	// BeforeReset is called with the ResetType of each request, before the BMC acts on it.
	BeforeReset(kind string)
}

// System is one machine with its power state, boot device and virtual drives.
type System struct {
	Options

	mu      sync.Mutex
	session Session // nil when off
	target  string
	enabled string // Disabled, Once or Continuous
	mode    string // UEFI or Legacy
	url     string // HttpBootUri
	media   map[string]medium
	closed  bool
	history []string
}

// Actions of a guest on the power of its machine, in the history of a system.
const (
	GuestOff     = "guest off"
	GuestRestart = "guest restart"
)

// medium is the content of a virtual drive.
type medium struct{ url, file string }

// NewSystem returns a system that is switched off.
func NewSystem(o Options) *System {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Client == nil {
		o.Client = http.DefaultClient
	}
	s := &System{Options: o, target: "None", enabled: "Disabled", mode: "Legacy", media: map[string]medium{}}
	if o.UEFI {
		s.mode = "UEFI"
	}
	return s
}

// On reports whether the machine is switched on.
func (s *System) On() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session != nil
}

// History returns the ResetTypes that were requested from the BMC, and what guests did themselves: GuestOff and
// GuestRestart, in the order of their time.
func (s *System) History() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// Reset performs a Redfish ResetType.
func (s *System) Reset(ctx context.Context, kind string) error {
	s.Log.Info("reset", "node", s.Name, "type", kind)
	if s.Resets != nil {
		s.Resets.BeforeReset(kind)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, kind)
	switch kind {
	case "On", "ForceOn":
		return s.start(ctx)
	case "ForceOff":
		return s.stop()
	case "GracefulShutdown", "PushPowerButton":
		if s.session == nil {
			return nil
		}
		return s.session.Shutdown(ctx)
	case "ForceRestart", "GracefulRestart", "PowerCycle":
		if err := s.stop(); err != nil {
			return err
		}
		return s.start(ctx)
	}
	return fmt.Errorf("%w: reset type %q", errBadRequest, kind)
}

// Close switches the machine off. Later starts are ignored.
func (s *System) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.stop()
}

// start switches the machine on. The caller holds the lock.
func (s *System) start(ctx context.Context) error {
	if s.session != nil || s.closed {
		return nil
	}
	boot := Boot{Target: "None", CD: s.media["Cd"].file, USB: s.media["UsbStick"].file}
	if s.enabled != "Disabled" {
		boot.Target = s.target
		if s.target == "UefiHttp" {
			boot.URL = s.url
		}
	}
	session, err := s.Machine.Start(ctx, boot)
	if err != nil {
		return err
	}
	s.Log.Info("switched on", "node", s.Name, "boot", boot.Target)
	if s.enabled == "Once" {
		s.enabled, s.target = "Disabled", "None"
	}
	s.session = session
	go s.watch(session)
	return nil
}

// watch waits for the end of a session and restarts the machine if its guest requested that.
func (s *System) watch(session Session) {
	restart := session.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != session {
		return // ended by the BMC
	}
	s.session = nil
	s.Log.Info("the guest ended", "node", s.Name, "restart", restart)
	if !restart {
		s.history = append(s.history, GuestOff)
		return
	}
	s.history = append(s.history, GuestRestart)
	if err := s.start(context.Background()); err != nil {
		s.Log.Error("restart failed", "node", s.Name, "err", err)
	}
}

// stop switches the machine off. The caller holds the lock.
func (s *System) stop() error {
	session := s.session
	if session == nil {
		return nil
	}
	s.session = nil
	return session.Stop()
}
