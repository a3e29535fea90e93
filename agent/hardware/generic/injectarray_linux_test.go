package generic

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/hardware"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
)

// arrayNode makes a device whose path is one of an array, with the file system of an image, and returns its path. It is
// removed when the test ends.
func arrayNode(t *testing.T) string {
	t.Helper()
	testenv.Programs(t, "mkfs.ext4")
	tree, image := t.TempDir(), testenv.SparseFile(t, 10*mib)
	if err := os.Mkdir(filepath.Join(tree, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mkfs.ext4", "-q", "-d", tree, image)
	var stat unix.Stat_t
	if err := unix.Stat(testenv.Loop(t, image, 512), &stat); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/dev/md-test-%d", os.Getpid())
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(stat.Rdev)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

// injectedArgs are the arguments of the step for a file on a device.
func injectedArgs(device, content string) map[string]json.RawMessage {
	content = base64.StdEncoding.EncodeToString([]byte(content))
	return map[string]json.RawMessage{"files": fmt.Appendf(nil,
		`[{"path": "/etc/new", "partition": %q, "content": %q}]`, device, content)}
}

// A file on a named array is written while the arrays of raid_config run: they are assembled before and stopped after,
// also those that are not the root volume, and if the file cannot be written. Files on other devices assemble none.
func TestInjectFilesIntoArray(t *testing.T) {
	testenv.Root(t)
	path := arrayNode(t)
	both := []string{"assemble md0 root of 2", "assemble md1 md1 of 2", "stop root", "stop md1"}
	for name, tt := range map[string]struct {
		device  string
		prepare func(k *fakeArrays)
		kind    string
		want    []string
	}{
		"array":        {path, func(*fakeArrays) {}, "", both},
		"no partition": {"/dev/md0p7", func(*fakeArrays) {}, "DeviceNotFound", both},
		"not assembled": {
			path, func(k *fakeArrays) { k.assembleErr = errors.New("broken") }, "DeviceNotFound", nil,
		},
		"not stopped": {path, func(k *fakeArrays) { k.stopErr = errors.New("busy") }, "CommandExecutionError", both},
		"disk":        {"/dev/sdx", func(*fakeArrays) {}, "DeviceNotFound", nil},
	} {
		disks, fields := volumeDisks(t, "true", "")
		m, kernel := onThisMachine(t, disks...), &fakeArrays{}
		kernel.attach(t, m, disks)
		tt.prepare(kernel)
		// The device of the array is there while it runs.
		m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
			if len(kernel.calls) == 0 {
				return disks, nil
			}
			return slices.Concat(disks, []block.Device{{Name: filepath.Base(path), Path: path, Type: "raid1"}}), nil
		})
		call := hardware.Call{Node: nodeWith(t, fields), Args: injectedArgs(tt.device, name)}
		_, err := m.injectFiles(t.Context(), call)
		if typeOf(err) != tt.kind {
			t.Errorf("%s: got %v, want type %q", name, err, tt.kind)
		}
		if diff := cmp.Diff(tt.want, kernel.calls); diff != "" {
			t.Errorf("%s: calls differ (-want +got):\n%s", name, diff)
		}
		if tt.kind == "" {
			if got := testenv.Run(t, "debugfs", "-R", "cat /etc/new", path); !strings.HasSuffix(got, name) {
				t.Errorf("%s: got content %q, want %q", name, got, name)
			}
		}
	}
	// Without arrays, nothing is assembled.
	m := onThisMachine(t)
	kernel := &fakeArrays{}
	m.kernel = kernel
	for _, n := range []string{`"properties": {}`, `"raid_config": {}`} {
		_, err := m.injectFiles(t.Context(), hardware.Call{Node: nodeWith(t, n), Args: injectedArgs(path, "")})
		if typeOf(err) != "DeviceNotFound" {
			t.Errorf("%s: got %v, want a DeviceNotFound", n, err)
		}
	}
	if len(kernel.calls) > 0 {
		t.Errorf("got calls %q, want none", kernel.calls)
	}
}
