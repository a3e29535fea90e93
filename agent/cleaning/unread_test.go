package cleaning

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/raid"
)

// A protected name protects nothing while a disk cannot be read, whether or not the list names the disk: it could hold
// the array. The error names the disk. Other disks are erased.
func TestEraseProtectedNameAndUnreadDisk(t *testing.T) {
	broken := block.Device{Name: "broken", Path: "/dev/broken", Type: "disk", Size: diskSize, Serials: []string{"B1"}}
	for _, list := range []string{`{"volume_name": "root"}`, `{"volume_name": "root"}, {"serial": "B1"}`} {
		foreign := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
		plain := raidtest.MemberDisk(t, testenv.RAID{Name: "other", Level: 1})
		before := content(t, foreign)
		n := nodeWith(t, `"properties": {"skip_block_devices": [`+list+`]}`)
		_, err := onThisMachine(t, foreign, plain, broken).EraseMetadata(t.Context(), n)
		erased, failed, _ := strings.Cut(errorText(err), "; not erased: ")
		want := foreign.Path + ` is a member of raid1 array "root", but its name cannot be checked: /dev/broken`
		if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(failed, want) ||
			!strings.Contains(erased, plain.Path) {
			t.Errorf("%s: got %v, want %q", list, err, want)
		}
		if !bytes.Equal(content(t, foreign), before) {
			t.Errorf("%s: %s was written to", list, foreign.Path)
		}
	}
}

// The same holds for a disk that the list of disks lacks, because it cannot be described.
func TestEraseProtectedNameAndUnreadableList(t *testing.T) {
	foreign := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
	m := onThisMachine(t)
	broken := fmt.Errorf("%w: sdx", block.ErrUnreadable)
	m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
		return []block.Device{foreign}, broken
	})
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	_, err := m.EraseDevices(t.Context(), n)
	want := foreign.Path + ` is a member of raid1 array "root", but its name cannot be checked: ` + broken.Error()
	if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(errorText(err), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if !bytes.Contains(content(t, foreign), []byte("tenant!")) {
		t.Errorf("%s was erased", foreign.Path)
	}
}

// An error lists at most maxUnread disks and the number of the others.
func TestCheckReadOfManyDisks(t *testing.T) {
	var r namedArrays
	for i := range maxUnread {
		r.unread = append(r.unread, fmt.Errorf("disk %d", i))
	}
	if err := r.checkRead(block.Device{}, raid.Member{}); err == nil || !strings.HasSuffix(err.Error(), "; disk 15") {
		t.Errorf("got %v, want all disks", err)
	}
	r.unread = append(r.unread, errors.New("disk 16"), errors.New("disk 17"))
	if err := r.checkRead(block.Device{}, raid.Member{}); err == nil ||
		!strings.HasSuffix(err.Error(), "; disk 15; and 2 more") {
		t.Errorf("got %v, want the number of those that are not listed", err)
	}
}

// A member of a protected array that did not exist when the disks were compared is an error.
func TestEraseNewMember(t *testing.T) {
	disk := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	run, err := onThisMachine(t, disk).startDiskRun(t.Context(), n, "disk not erased", fullErase)
	if err != nil {
		t.Fatal(err)
	}
	if untouched, err := run.protectedMembers(t.Context(), disk); err != nil || len(untouched) != 1 {
		t.Errorf("got %v and %v, want one kept member", untouched, err)
	}
	run.arrays.members = nil
	untouched, err := run.protectedMembers(t.Context(), disk)
	if err == nil || !strings.Contains(err.Error(), "was not read") {
		t.Errorf("got %v and %v, want an error", untouched, err)
	}
}

// Disks are read concurrently: one that hangs does not delay the others.
func TestReadMembersConcurrently(t *testing.T) {
	m := newMachine(t)
	fake(m).limits = func(block.Device) timelimit.Limits {
		return timelimit.Limits{NoProgress: time.Hour, Grace: time.Hour}
	}
	var disks []block.Device
	for _, name := range []string{"first", "second"} {
		pipe := filepath.Join(t.TempDir(), name) // its reader waits for a writer
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		raidtest.ListDisks(t, m.o.System, "2048", strings.ReplaceAll(pipe, "/", "!"))
		disks = append(disks, block.Device{Name: name, Path: pipe})
	}
	run := startErase(t, m)
	group := goroutine.NewGroup()
	group.Go(func() error {
		run.readMembers(t.Context(), disks)
		return nil
	})
	for _, i := range []int{1, 0} { // the last one first
		f, err := os.OpenFile(disks[i].Path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // nothing is written
	}
	_ = group.Wait() // it returns no error
	for _, err := range run.arrays.unread {
		if !errors.Is(err, unix.ENOTTY) {
			t.Errorf("got %v, want %v", err, unix.ENOTTY)
		}
	}
	if len(run.arrays.unread) != 2 {
		t.Errorf("got %v, want two disks that cannot be read", run.arrays.unread)
	}
}

// Entries of skip_block_devices that match nothing are logged. Those that match disks, arrays or disks that the kernel
// cannot use are not.
func TestEraseWarnsOfUnmatchedEntries(t *testing.T) {
	disk := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
	m := newMachine(t, disk)
	raidtest.ListDisks(t, m.o.System, "0", "vdz")
	raidtest.ListDisks(t, m.o.System, "49152", disk.Name)
	var log strings.Builder
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}, {"volume_name": "wrong"},
		{"name": "`+disk.Path+`"}, {"name": "/dev/vdz"}, {"name": "/dev/sdx"}]}`)
	if _, err := m.EraseMetadata(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "an entry of skip_block_devices") {
			_, text, _ := strings.Cut(line, "msg=")
			got = append(got, text)
		}
	}
	if len(got) != 2 || !strings.HasPrefix(got[0], `"no disk matches`) || !strings.Contains(got[0], "/dev/sdx") ||
		!strings.HasPrefix(got[1], `"no RAID array matches`) || !strings.Contains(got[1], "volume_name=wrong") {
		t.Errorf("got warnings %q, want those of /dev/sdx and wrong", got)
	}
}
