//go:build linux

package boot

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"ironroot/agent"
	"ironroot/agent/config"
	"ironroot/agent/extension"
	"ironroot/agent/hardware/external"
	"ironroot/agent/power"
	"ironroot/agent/status"
	"ironroot/agent/vmedia"
	"ironroot/internal/goroutine"
	"ironroot/netboot"
	"ironroot/storage/sysfs"
)

// Agent returns the work of the ramdisk: the network, and the deploy agent on it.
func Agent() Func { return AgentWith(func(*agent.Options) {}) }

// AgentWith is like Agent, with options that change modifies.
func AgentWith(change func(*agent.Options)) Func {
	var network *netboot.Network // kept when the agent is run again
	var params config.Params     // of the kernel and of virtual media
	var media *vmedia.Media
	var board *status.Board
	var san *sanDisks
	return func(ctx context.Context, m *Machine) (err error) {
		if board == nil {
			board = status.NewBoard(agent.Version, m.Journal)
			m.boot.show(ctx, board)
		}
		defer func() { board.Problem("boot", err) }()
		merged, mediaErr := params, error(nil)
		if params == nil { // read once: the media can be removed before the agent is run again
			media = vmedia.New(vmedia.Options{Params: m.Params, Log: m.Log, Settled: m.Settled, Signed: m.Signed})
			merged, mediaErr = media.Load(ctx)
			if err := vmedia.Unmount("/mnt/config"); err != nil {
				m.Log.Warn("config drive not unmounted", "err", err)
			}
			if merged == nil {
				return mediaErr
			}
		}
		settings, err := config.Load(sources(merged, media))
		if err != nil {
			return err
		}
		if mediaErr != nil && settings.APIURL == "" {
			return mediaErr // without a URL of Ironic: the media are read again
		}
		params = merged
		if network == nil {
			static := new(atomic.Bool)
			started, err := startNetwork(ctx, m, media, networkConfig(settings, m.Log), static, board)
			if err != nil {
				return err
			}
			network = started
			san = attachSAN(ctx, m, started, static.Load)
			keep(ctx, func() { board.Follow(ctx, started) })
			keep(ctx, func() { status.Reporter{Board: board, Log: m.Log}.Run(ctx) })
			keep(ctx, func() { followHostname(ctx, started, setHostname, m.Log) })
			goroutine.Go(func() error {
				return followAdapters(ctx, m, started, board)
			}, nil)
		}
		options := agentOptions(m, settings, network, media, san, board)
		change(&options)
		err = agent.Run(ctx, options)
		if errors.Is(err, agent.ErrRescue) {
			limited, cancel := context.WithTimeout(ctx, extension.DetachTimeout)
			san.Detach(limited)
			cancel()
		}
		return err
	}
}

// agentOptions returns the options of the agent on this machine. An agent that contacts Ironic postpones the modules of
// other devices than network cards, unless the network waits for a config drive.
func agentOptions(
	m *Machine, settings *config.Config, network *netboot.Network, media *vmedia.Media, san *sanDisks,
	board *status.Board,
) agent.Options {
	return agent.Options{
		Config: settings,
		Machine: agent.Machine{
			Network:    network,
			Neighbours: network,
			Power:      power.Machine{Log: m.Log, Console: m},
			Modules:    m.modules,
			Drivers:    drivers{m.coldplug, san.settled, settings.APIURL != "" && !media.NetworkDataExpected()},
			Disks:      san,
			Logins:     m.boot,
			Media:      rereadMedia{media, m.Log},
		},
		Dialer:      network,
		Journal:     m.Journal,
		System:      sysfs.Root{},
		ManagersDir: external.Dir,
		RootsDir:    external.RootsDir,
		Destructive: true,
		Forever:     true,
		Board:       board,
	}
}

// drivers implements [agent.Drivers]. With postpone, modules that do not belong to network cards are postponed until
// the first heartbeat, while the agent passes the phases of its start. Loading a module takes processor time that few
// or emulated processors lack then.
type drivers struct {
	coldplug
	settled  <-chan struct{}
	postpone bool
}

// Settled implements [agent.Drivers].
func (d drivers) Settled() <-chan struct{} { return d.settled }

// Enter implements [agent.Drivers].
func (d drivers) Enter(status.Phase) {
	if d.postpone {
		d.Postpone()
	}
}

// keep runs f in a goroutine, and again after a panic, until ctx ends.
func keep(ctx context.Context, f func()) {
	goroutine.Go(func() error {
		goroutine.Persist(ctx, panicPause, f)
		return nil
	}, nil)
}

// rereadMedia implements [agent.Media].
type rereadMedia struct {
	media *vmedia.Media
	log   *slog.Logger
}

// Reload reads the media again that could not be read, and returns the configuration with their parameters and files.
// It returns nil if nothing is new.
func (r rereadMedia) Reload(ctx context.Context) *config.Config {
	params, err := r.media.Again(ctx)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("virtual media not readable, retrying later", "err", err)
	}
	if params == nil {
		return nil
	}
	settings, err := config.Load(sources(params, r.media))
	if err != nil {
		r.log.Error("configuration of virtual media invalid, ignored", "err", err)
		return nil
	}
	return settings
}

// sources returns the sources of the configuration after the media were read.
func sources(params config.Params, media *vmedia.Media) config.Sources {
	return config.Sources{Params: params, Files: configFiles(media.Root), Unsigned: media.Unsigned()}
}

// configFiles returns the agent's configuration files below root, the main file first: from the ramdisk, an archive
// appended to it, and virtual media.
func configFiles(root string) []string {
	files, err := filepath.Glob(filepath.Join(root, "etc/ironic-python-agent/*.conf"))
	if err != nil {
		return nil // the pattern is constant and valid
	}
	more, err := filepath.Glob(filepath.Join(root, "etc/ironic-python-agent.d/*.conf"))
	if err != nil {
		return nil
	}
	return append(files, more...)
}
