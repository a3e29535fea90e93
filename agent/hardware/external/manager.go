package external

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"

	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/confine"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
)

// Dir is the directory of the ramdisk with the executables.
const Dir = "/usr/lib/ironroot/managers"

// Manager is a hardware manager that is an executable.
type Manager struct {
	path string
	description
	limits
	log   *slog.Logger
	start starter
	board status.Trackers
}

// Load describes the executables in a directory, which must be on the root file system, and logs their SHA-256. A
// manager of [hardware.Unusable] is in place of each that cannot be used. A directory that does not exist has none. The
// board shows the progress of steps; nil shows nothing.
func Load(ctx context.Context, dir string, log *slog.Logger, board status.Trackers) []hardware.Manager {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		log.Error("external hardware managers not read", "err", err)
		return []hardware.Manager{hardware.Unusable("in "+dir, err)}
	}
	paths := make([]string, len(entries))
	for i, entry := range entries {
		paths[i] = filepath.Join(dir, entry.Name())
	}
	calls, err := readCalls(dir)
	if err != nil {
		log.Error("further system calls of hardware managers not permitted", "err", err)
	}
	return loadAll(paths, "", board, func(path string) (*Manager, error) {
		return load(ctx, program{Argv: []string{path}, Calls: calls[filepath.Base(path)]}, log)
	})
}

// loadAll calls load for each path, concurrently. A manager of [hardware.Unusable] is in place of each that fails.
// suffix follows each path in errors, such as " in ROOT".
func loadAll(
	paths []string, suffix string, board status.Trackers, load func(path string) (*Manager, error),
) []hardware.Manager {
	list := make([]hardware.Manager, len(paths))
	loads := make([]func(), len(paths))
	for i, path := range paths {
		loads[i] = func() {
			var m *Manager
			err := goroutine.Catch(func() (err error) {
				m, err = load(path)
				return err
			})
			if err != nil {
				list[i] = hardware.Unusable(path+suffix, err)
				return
			}
			m.board = board
			list[i] = m.Hardware()
		}
	}
	goroutine.Do(loads...)
	return list
}

// load describes an executable.
func load(ctx context.Context, p program, log *slog.Logger) (*Manager, error) {
	path := p.Argv[0]
	if err := checkOrigin(path); err != nil { // first: opening a named pipe could take forever
		return nil, err
	}
	if err := checkExecutable(path); err != nil {
		return nil, err
	}
	sum, err := checksum(path)
	if err != nil {
		return nil, err
	}
	log.Info("external hardware manager found", "path", path, "sha256", sum, "calls", p.Calls)
	m := newManager(path, log, p)
	return m, m.describeForLoad(ctx)
}

// repeated calls f, and calls it again, once, if it was not done within its time limit: the machine may have been busy.
// A process that could not be ended may still use a device, and is not started again. The error of a time limit says
// what the operator can do.
func repeated(log *slog.Logger, f func() error) error {
	err := f()
	attempts := "one attempt, whose process could not be ended"
	if errors.Is(err, errNotDone) && !errors.Is(err, confine.ErrStillRunning) {
		log.Warn("hardware manager not done within its time limit, repeating", "err", err)
		attempts, err = "both of two attempts", f()
	}
	if !errors.Is(err, errNotDone) {
		return err
	}
	return fmt.Errorf("%w; this was the result of %s; if the machine was busy, boot the ramdisk again: it asks its "+
		"managers only at the start of the agent", err, attempts)
}

// describeForLoad is describe, see repeated.
func (m *Manager) describeForLoad(ctx context.Context) error {
	return repeated(m.log, func() error { return m.describe(ctx) })
}

// checksum returns the SHA-256 of a file.
func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func newManager(path string, log *slog.Logger, start starter) *Manager {
	return &Manager{path: path, limits: defaultLimits, log: log.With("path", path), start: start}
}

// ask runs the executable for a request of limited duration.
func (m *Manager) ask(ctx context.Context, r request) (json.RawMessage, error) {
	c := &conversation{limits: m.limits, log: m.log, request: r, timeout: m.describeTimeout, abortable: true}
	return c.run(ctx, m.start)
}

// describe asks for the description.
func (m *Manager) describe(ctx context.Context) error {
	result, err := m.ask(ctx, request{Method: methodDescribe, Protocols: protocols})
	if err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	if m.description, err = parseDescription(result); err != nil {
		return fmt.Errorf("describe: %w", protocolError("%w", err))
	}
	return nil
}

// Evaluate implements [hardware.Evaluator]: it asks for the support level.
func (m *Manager) Evaluate(ctx context.Context) (hardware.Level, error) {
	result, err := m.ask(ctx, request{Method: methodEvaluate, Protocol: m.Protocol})
	if err != nil {
		return hardware.None, fmt.Errorf("evaluate: %w", err)
	}
	level, err := parseEvaluation(result)
	if err != nil {
		return hardware.None, fmt.Errorf("evaluate: %w", protocolError("%w", err))
	}
	return level, nil
}

// Hardware returns the manager for the list of managers. If the executable selects disks, no disks are listed: a step
// must not change one that the executable would have omitted.
func (m *Manager) Hardware() hardware.Manager {
	if m.SelectsDisks {
		return diskSelector{m}
	}
	return m
}

// diskSelector is a manager that selects disks.
type diskSelector struct{ *Manager }

// FilterDevice implements [hardware.DeviceFilter].
func (d diskSelector) FilterDevice(context.Context, block.Device) (block.Device, bool, error) {
	return block.Device{}, false, fmt.Errorf("hardware manager %s selects disks, which executables cannot do", d.Name())
}

// Class implements [hardware.Manager].
func (m *Manager) Class() string { return m.description.Class }

// Name implements [hardware.Manager].
func (m *Manager) Name() string { return m.description.Name }

// Version implements [hardware.Manager].
func (m *Manager) Version() string { return m.description.Version }

// Support implements [hardware.Manager]. An executable that fails does not support the machine; see Evaluate.
func (m *Manager) Support(ctx context.Context) hardware.Level {
	level, err := m.Evaluate(ctx)
	if err != nil {
		m.log.Error("external hardware manager does not return its support level", "err", err)
	}
	return level
}

// Steps implements [hardware.Stepper].
func (m *Manager) Steps(kind hardware.Kind, _ *node.Node, _ []map[string]any) []hardware.Step {
	var steps []hardware.Step
	for _, s := range m.description.Steps {
		if s.Kind != kind {
			continue
		}
		steps = append(steps, hardware.Step{
			Name: s.Step, Priority: s.Priority, Interface: s.Interface, RebootRequested: s.RebootRequested,
			Abortable: s.Abortable, ArgsInfo: s.ArgsInfo,
			Run: func(ctx context.Context, call hardware.Call) (any, error) {
				result, err := m.runStep(ctx, s, call)
				if err != nil {
					return nil, err
				}
				return result, nil
			},
		})
	}
	return steps
}

// runStep runs a step.
func (m *Manager) runStep(ctx context.Context, s step, call hardware.Call) (json.RawMessage, error) {
	object, err := withoutSecrets(call.Node)
	if err != nil {
		return nil, err
	}
	c := &conversation{
		limits: m.limits, log: m.log.With("step", s.Step), timeout: s.timeout(), abortable: *s.Abortable,
		request: request{
			Method: methodRun, Protocol: m.Protocol, Kind: s.Kind, Step: s.Step, Args: call.Args, Node: object,
			Ports: call.Ports,
		},
	}
	if m.board != nil { // the log has its own lines about the progress
		c.tracker = m.board.Track(slog.New(slog.DiscardHandler), "hardware manager", m.Name())
		defer c.tracker.End()
	}
	result, err := c.run(ctx, m.start)
	if err != nil {
		return nil, fmt.Errorf("hardware manager %s: %w", m.Name(), err)
	}
	return result, nil
}

// withoutSecrets returns the node without what a manager does not need to know: the token, and the credentials of the
// BMC.
func withoutSecrets(n *node.Node) (json.RawMessage, error) {
	if n == nil {
		return nil, nil
	}
	raw := n.Raw()
	delete(raw, "driver_info")
	if info, ok := raw["driver_internal_info"].(map[string]any); ok {
		info = maps.Clone(info)
		delete(info, "agent_secret_token")
		raw["driver_internal_info"] = info
	}
	return json.Marshal(raw)
}
