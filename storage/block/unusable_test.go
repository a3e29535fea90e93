package block

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/sysfs"
)

// unusable returns the paths of the unusable disks with a reason.
func unusable(disks []UnusableDisk, reason error) []string {
	var paths []string
	for _, d := range disks {
		if d.Reason == reason { //nolint:errorlint // as it is
			paths = append(paths, d.Path)
		}
	}
	return paths
}

func TestUnusableNamespaces(t *testing.T) {
	s := sysfs.Root{Path: t.TempDir()}
	if got, err := UnusableDisks(t.Context(), s); len(got) != 0 || err != nil {
		t.Errorf("no block devices: got %v and %v, want none", got, err)
	}
	putFiles(t, s, map[string]map[string]string{
		"nvme0n1":   {"size": "2048\n", "hidden": "0\n"},
		"nvme0n2":   {"size": "0\n", "hidden": "0\n"},
		"nvme0n3":   {"size": "2048\n", "hidden": "1\n"},
		"nvme0c1n1": {"size": "2048\n", "hidden": "1\n"},
		"sda":       {"size": "0\n"},
	})
	found, err := UnusableDisks(t.Context(), s)
	if err != nil || len(found) != 3 {
		t.Fatalf("got %+v and %v, want 3 disks", found, err)
	}
	if diff := cmp.Diff([]string{"/dev/nvme0n2", "/dev/nvme0n3"}, unusable(found, ErrUnusableNamespace)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// putFiles writes sysfs attributes of block devices.
func putFiles(t *testing.T, s sysfs.Root, devices map[string]map[string]string) {
	t.Helper()
	for name, files := range devices {
		for file, text := range files {
			putSys(t, s, map[string]string{
				filepath.Join("block", name, file): text, filepath.Join("class/block", name, file): text,
			})
		}
	}
}

// A namespace that cannot be described is an error; the others are listed.
func TestUnusableNamespacesUnreadable(t *testing.T) {
	s := sysfs.Root{Path: t.TempDir()}
	putFiles(t, s, map[string]map[string]string{
		"nvme0n1": {"size": "many\n"}, "nvme0n2": {"size": "0\n"}, "loop0": {"size": "many\n"},
	})
	found, err := UnusableDisks(t.Context(), s)
	if len(found) != 1 || found[0].Path != "/dev/nvme0n2" {
		t.Errorf("got %+v, want /dev/nvme0n2", found)
	}
	if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "nvme0n1") ||
		strings.Contains(err.Error(), "loop0") {
		t.Errorf("got %v, want %v of nvme0n1 alone", err, ErrUnreadable)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found, err = UnusableDisks(ctx, s)
	if len(found) > 0 || !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreadable) {
		t.Errorf("cancelled: got %+v and %v, want %v alone", found, err, context.Canceled)
	}
}

func TestIsNVMeNamespace(t *testing.T) {
	for name, want := range map[string]bool{
		"nvme0n1": true, "nvme10n12": true, "nvme0n1p1": false, "nvme0c1n1": false, "nvme0": false,
		"xnvme0n1": false, "sda": false,
	} {
		if got := IsNVMeNamespace(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
