package partition

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// Only the end of the partition changes: in both copies of the table, as sgdisk confirms.
func TestGrow(t *testing.T) {
	for _, sector := range []int64{512, 4096} {
		device := gptImage(t, 32*mib)
		if sector != 512 {
			testenv.Programs(t, "sfdisk")
			device = testenv.Loop(t, testenv.SparseFile(t, 32*mib), int(sector))
			testenv.GPT(t, device, "1: start=256, size=8MiB, type="+TypeESP, `3: start=2304, size=4MiB, name="root"`)
		}
		before := read(t, device)
		grown, err := Grow(t.Context(), device, 3, 20*mib+sector-1)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, device)
		want := before.Partitions
		want[1].Size = 20 * mib
		after := read(t, device)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("sectors of %d bytes: -want +got:\n%s", sector, diff)
		}
		if diff := cmp.Diff(want[1], grown); diff != "" {
			t.Errorf("-want +returned:\n%s", diff)
		}
		// To the last usable sector, and no further.
		most := after.DiskSize - sector - 16<<10 - want[1].Start
		if _, err := Grow(t.Context(), device, 3, most); err != nil {
			t.Error(err)
		}
		verify(t, device)
		if _, err := Grow(t.Context(), device, 3, most+sector); err == nil {
			t.Error("the partition grew into the backup of the table")
		}
		verify(t, device)
	}
}

// The backup of a table that was made for a smaller disk is moved first.
func TestGrowMisplacedBackup(t *testing.T) {
	image := gptImage(t, 32*mib)
	grow(t, image, 64*mib)
	if _, err := Grow(t.Context(), image, 3, 50*mib); err != nil {
		t.Fatal(err)
	}
	verify(t, image)
	if table := read(t, image); table.BackupMisplaced || table.Partitions[1].Size != 50*mib {
		t.Errorf("got %+v", table)
	}
}

// An impossible growth changes nothing, nor does one of a disk without a GPT, which is another error.
func TestGrowFails(t *testing.T) {
	mbr := mbrImage(t, 32*mib, "label: dos\n1: start=2048, size=4MiB\n")
	for name, tt := range map[string]struct {
		image  string
		number int
		size   int64
		cannot bool
		want   string
	}{
		"into the next partition": {gptImage(t, 32*mib), 1, 8*mib + 512, true, "space not free"},
		"smaller":                 {gptImage(t, 32*mib), 3, 4*mib - 512, true, "got size 4193792 bytes"},
		"negative":                {gptImage(t, 32*mib), 3, -1 << 62, true, "got size "},
		"beyond the disk":         {gptImage(t, 32*mib), 3, 1<<63 - 1, true, "got size "},
		"free entry":              {gptImage(t, 32*mib), 2, 8 * mib, true, "no such partition"},
		"no entry":                {gptImage(t, 32*mib), 129, 8 * mib, true, "no such partition"},
		"no space for the backup": {cutImage(t), 3, 8 * mib, true, "leaves no space in 8388608 bytes"},
		"MBR":                     {mbr, 1, 8 * mib, false, "GPT"},
	} {
		before, err := os.ReadFile(tt.image)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Grow(t.Context(), tt.image, tt.number, tt.size); err == nil ||
			errors.Is(err, ErrCannotGrow) != tt.cannot || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), tt.image) {
			t.Errorf("%s: got %v, want %q with the disk (%v: %v)", name, err, tt.want, ErrCannotGrow, tt.cannot)
		}
		if after, err := os.ReadFile(tt.image); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: the image changed (%v)", name, err)
		}
	}
}

// cutImage returns an image whose GPT has a partition that ends beyond the image, and whose backup is missing.
func cutImage(t *testing.T) string {
	t.Helper()
	image := gptImage(t, 32*mib)
	if err := os.Truncate(image, 8*mib); err != nil {
		t.Fatal(err)
	}
	return image
}

// A disk that is lost, or fails to read or write, is another error than a partition that cannot grow.
func TestGrowDiskFails(t *testing.T) {
	for name, flag := range map[string]int{"read": os.O_WRONLY, "write": os.O_RDONLY} {
		d, err := open(t.Context(), gptImage(t, 32*mib), flag)
		if err != nil {
			t.Fatal(err)
		}
		defer d.file.Close()
		if _, err := d.grow(3, 20*mib); !errors.Is(err, syscall.EBADF) || errors.Is(err, ErrCannotGrow) {
			t.Errorf("%s: got %v, want %v without %v", name, err, syscall.EBADF, ErrCannotGrow)
		}
	}
	_, err := Grow(t.Context(), t.TempDir()+"/absent", 3, 20*mib)
	if !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrCannotGrow) {
		t.Errorf("no disk: got %v, want %v without %v", err, os.ErrNotExist, ErrCannotGrow)
	}
}
