package generic

import (
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/internal/test/raidtest"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

const (
	mib = raidtest.MiB
	gib = raidtest.GiB
)

// onThisMachine returns a manager with disks of this machine.
func onThisMachine(t *testing.T, disks ...block.Device) *Manager {
	t.Helper()
	m := newManager(t, disks...)
	m.o.System = sysfs.Root{}
	m.o.Config.Update(func(c *config.Config) {
		c.GuardSpecialFilesystems = true
		// For a minute: another process, such as udev, can have a new disk open.
		c.DiskPartitioner.CheckDeviceInterval, c.DiskPartitioner.CheckDeviceMaxRetries = 20*time.Millisecond, 3000
	})
	return m
}

func nodeWith(t *testing.T, fields string) *node.Node {
	t.Helper()
	n, err := node.FromJSON([]byte(`{"uuid": "u", ` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// errorText returns the text of an error, "" for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
