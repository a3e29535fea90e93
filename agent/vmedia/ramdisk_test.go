package vmedia

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/config"
	"ironroot/internal/timelimit"
	"ironroot/storage/nfit"
	"ironroot/storage/nfit/nfittest"
	"ironroot/storage/sysfs"
)

// The RAM disks of the firmware are overwritten, however the machine was booted. Persistent memory is not: it can be a
// disk of the user. A RAM disk that is not shown, or cannot be overwritten, is an error.
func TestRemoveRAMDisks(t *testing.T) {
	const size = 3<<20 + 512
	content := bytes.Repeat([]byte("planted "), size/8)
	disk := nfit.Range{Index: 1, Type: nfit.VirtualDisk, Base: 4 << 30, Size: size}
	persistent := nfit.Range{Index: 2, Type: nfittest.Persistent, Base: 8 << 30, Size: size}
	cd := nfit.Range{Index: 3, Type: nfit.VirtualCD, Base: 12 << 30, Size: size}
	for _, tt := range []struct {
		name   string
		ranges []nfit.Range
		change func(t *testing.T, root string)
		want   map[string]bool // whether a device is overwritten
		err    string
	}{
		{"no table", nil, func(t *testing.T, root string) {
			if err := errors.Join(os.Remove(filepath.Join(root, "sys", nfit.TableFile)),
				os.MkdirAll(filepath.Join(root, "sys/block"), 0o755)); err != nil {
				t.Fatal(err)
			}
		}, nil, ""},
		{
			"two",
			[]nfit.Range{disk, persistent, cd},
			nil,
			map[string]bool{"pmem1": true, "pmem2": false, "pmem3": true},
			"",
		},
		{"not shown", []nfit.Range{disk, cd}, func(t *testing.T, root string) {
			if err := os.Remove(filepath.Join(root, "sys/class/block/pmem3")); err != nil {
				t.Fatal(err)
			}
		}, map[string]bool{"pmem1": true, "pmem3": false}, "firmware describes 2 RAM disks, the kernel shows 1"},
		{"no device node", []nfit.Range{disk, cd}, func(t *testing.T, root string) {
			if err := os.Remove(filepath.Join(root, "dev/pmem1")); err != nil {
				t.Fatal(err)
			}
		}, map[string]bool{"pmem3": true}, "overwrite RAM disk /dev/pmem1: "},
		{"damaged table", []nfit.Range{disk}, func(t *testing.T, root string) {
			if err := os.WriteFile(filepath.Join(root, "sys", nfit.TableFile), []byte("NFIT"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, map[string]bool{"pmem1": false}, "parse NFIT: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			nfittest.Machine(t, root, tt.ranges...)
			device := func(name string) string { return filepath.Join(root, "dev", name) }
			write(t, device("null"), "")
			for _, r := range tt.ranges {
				write(t, device("pmem"+string('0'+rune(r.Index))), string(content))
			}
			if tt.change != nil {
				tt.change(t, root)
			}
			err := Remove(limited(t), sysfs.Root{Path: root}, config.Params{}, slog.New(slog.DiscardHandler))
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			for name, overwritten := range tt.want {
				want := content
				if overwritten {
					want = make([]byte, size)
				}
				if got, err := os.ReadFile(device(name)); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: got %d bytes that begin with %q, %v; want overwritten: %v", name, len(got),
						got[:min(8, len(got))], err, overwritten)
				}
			}
		})
	}
}

// The error of a RAM disk that is not zero names the first byte that differs, and where it is.
func TestCheckZeros(t *testing.T) {
	const size = 1<<20 + 512
	for name, tt := range map[string]struct {
		length, size int64
		change       map[int]byte
		want         string
	}{
		"zeros":             {size, size, nil, ""},
		"after the end":     {size, size - 512, map[int]byte{size - 1: 1}, ""},
		"first byte":        {size, size, map[int]byte{0: 'p', 1: 'l'}, "read back at byte 0: got 0x70, want 0x00"},
		"second piece":      {size, size, map[int]byte{1<<20 + 7: 1, size - 1: 2}, "1048583: got 0x01, want 0x00"},
		"last byte":         {size, size, map[int]byte{size - 1: 0xff}, "at byte 1049087: got 0xff, want 0x00"},
		"smaller than size": {size - 1, size, nil, "read back at byte 1049087: EOF"},
	} {
		data := make([]byte, tt.length)
		for at, b := range tt.change {
			data[at] = b
		}
		err := checkZeros(t.Context(), bytes.NewReader(data), tt.size)
		if (err != nil) != (tt.want != "") || err != nil && !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// slowDisk is a RAM disk whose calls take a time each.
type slowDisk struct {
	call    time.Duration
	written int64
}

func (d *slowDisk) WriteAt(p []byte, _ int64) (int, error) {
	time.Sleep(d.call)
	d.written += int64(len(p))
	return len(p), nil
}

func (d *slowDisk) ReadAt(p []byte, _ int64) (int, error) {
	time.Sleep(d.call)
	clear(p)
	return len(p), nil
}

func (d *slowDisk) DropBuffers() error {
	time.Sleep(d.call)
	return nil
}

// Overwriting a RAM disk reports progress, so that only one that does not respond exceeds a limit without progress.
func TestOverwriteProgress(t *testing.T) {
	const size = 20<<20 + 512
	limits := timelimit.Limits{NoProgress: 20 * time.Second, Grace: 15 * time.Second}
	for call, want := range map[time.Duration]string{9 * time.Second: "", 30 * time.Second: "no progress for 20s"} {
		synctest.Test(t, func(t *testing.T) {
			d := &slowDisk{call: call}
			_, err := timelimit.Do(t.Context(), limits, func(ctx context.Context) (any, error) {
				return nil, zero(ctx, d, size)
			})
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("calls of %v: got %v, want %q", call, err, want)
			}
			if want == "" && d.written != size {
				t.Errorf("got %d bytes written, want %d", d.written, size)
			}
		})
	}
}
