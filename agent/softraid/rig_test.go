package softraid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

const (
	mib      = raidtest.MiB
	gib      = raidtest.GiB
	diskSize = raidtest.DiskSize
)

// rig makes machines for the nodes of calls.
type rig struct {
	o    Options
	list func(context.Context) ([]block.Device, error)
}

// newManager returns the rig of a machine without devices, but with disks.
func newManager(t *testing.T, disks ...block.Device) *rig {
	t.Helper()
	return &rig{Options{
		System: sysfs.Root{Path: t.TempDir()}, Log: slog.New(slog.DiscardHandler),
		Limits: func(block.Device) timelimit.Limits { return timelimit.Disk },
	}, func(context.Context) ([]block.Device, error) { return disks, nil }}
}

func onThisMachine(t *testing.T, disks ...block.Device) *rig {
	t.Helper()
	m := newManager(t, disks...)
	m.o.System, m.o.Guard = sysfs.Root{}, true
	// For a minute: another process, such as udev, can have a new disk open.
	m.o.Wait = erase.Wait{Interval: 20 * time.Millisecond, Retries: 3000}
	return m
}

// impatient limits the wait for disks to a second. The test itself keeps one in use.
func impatient(m *rig) *rig {
	m.o.Wait.Retries = 50
	return m
}

// List implements [Disks].
func (m *rig) List(ctx context.Context) ([]block.Device, error) { return m.list(ctx) }

// Local implements [Disks].
func (m *rig) Local(disks []block.Device) (local, remote []block.Device, err error) {
	return disks, nil, nil
}

// on returns the machine for a node.
func (m *rig) on(n *node.Node) *Arrays {
	o := m.o
	o.Node, o.Disks, o.Scheme = n, m, partition.MBR
	if n != nil && strings.Contains(fmt.Sprint(n.Raw()), "disk_label:gpt") {
		o.Scheme = partition.GPT
	}
	return New(o)
}

// call is a call of a step.
type call struct {
	Node *node.Node
	Args map[string]json.RawMessage
}

const (
	raidConfig     = "raid_config"
	deleteExisting = "delete_existing"
)

func (m *rig) createConfiguration(ctx context.Context, c call) (any, error) {
	return m.on(c.Node).Create(ctx)
}

func (m *rig) applyConfiguration(ctx context.Context, c call) (any, error) {
	var config map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(c.Args[raidConfig])))
	decoder.UseNumber()
	if err := decoder.Decode(&config); err != nil {
		return nil, err
	}
	remove := string(c.Args[deleteExisting])
	return m.on(c.Node).Apply(ctx, config, remove == "" || remove == "true")
}

func (m *rig) deleteConfiguration(ctx context.Context, c call) (any, error) {
	return nil, m.on(c.Node).Delete(ctx)
}

func typeOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Type
	}
	return ""
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func nodeWith(t *testing.T, fields string) *node.Node {
	t.Helper()
	return nodeFrom(t, `{"uuid": "u", `+fields+`}`)
}

func content(t *testing.T, d block.Device) []byte {
	t.Helper()
	return testenv.Content(t, d.Path)
}
