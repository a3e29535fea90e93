package devmapper

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestRequestLiesAsTheKernelSees(t *testing.T) {
	// sizeof(struct dm_ioctl) and sizeof(struct dm_target_spec) of linux/dm-ioctl.h.
	if got := binary.Size(unix.DmTargetSpec{}); got != 40 || unix.SizeofDmIoctl != 312 {
		t.Errorf("got a target of %d bytes and a header of %d, want 40 and 312", got, unix.SizeofDmIoctl)
	}
}

func TestTables(t *testing.T) {
	for name, tt := range map[string]struct {
		targets []Target
		err     string
	}{
		"none": {},
		"two": {targets: []Target{
			{Kind: "linear", Size: 1 << 20, Parameters: "8:0 2048"},
			{Kind: "multipath", Start: 1 << 20, Size: 6 << 40, Parameters: "0 0 1 1 service-time 0 1 1 8:0 1"},
		}},
		"no parameters":     {targets: []Target{{Kind: "error", Size: 512}}},
		"half a sector":     {targets: []Target{{Kind: "linear", Size: 700}}, err: "of 700 bytes"},
		"empty":             {targets: []Target{{Kind: "linear"}}, err: "of 0 bytes"},
		"kind that is long": {targets: []Target{{Kind: "sixteen-bytes-xx", Size: 512}}, err: "too long"},
		"more than there is": {
			targets: []Target{{Kind: "linear", Size: 512, Parameters: strings.Repeat("8:0 ", 4<<10)}}, err: "too long",
		},
		"fits to the last of": {
			targets: []Target{{Kind: "linear", Size: 512, Parameters: strings.Repeat("x", 16<<10-40-1)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r request
			err := encodeTargets(r.data[:], tt.targets)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			answer(r.data[:], len(tt.targets))
			got, err := decodeTargets(r.data[:], len(tt.targets))
			if diff := cmp.Diff(tt.targets, got); err != nil || diff != "" {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		})
	}
}

// answer converts an encoded table to the kernel's form, in which offsets count from the start of the table.
func answer(data []byte, count int) {
	at := 0
	for range count {
		next := at + int(binary.NativeEndian.Uint32(data[at+20:]))
		binary.NativeEndian.PutUint32(data[at+20:], uint32(next))
		at = next
	}
}

func TestBrokenTables(t *testing.T) {
	const spec = 40
	for name, tt := range map[string]struct {
		size, next, count int
	}{
		"nothing":           {0, 0, 1},
		"cut off":           {spec - 1, 0, 1},
		"second is outside": {2*spec - 1, spec, 2},
		"no way on":         {2 * spec, 0, 2},
	} {
		data := make([]byte, tt.size)
		if tt.size > spec {
			binary.NativeEndian.PutUint32(data[20:], uint32(tt.next))
		}
		if got, err := decodeTargets(data, tt.count); err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
		}
	}
}

// FuzzDecodeTargets checks that no reply causes an endless loop, a panic or an access outside the data.
func FuzzDecodeTargets(f *testing.F) {
	var r request
	targets := []Target{{Kind: "linear", Size: 512, Parameters: "8:0 2048"}, {Kind: "error", Start: 512, Size: 512}}
	if err := encodeTargets(r.data[:], targets); err != nil {
		f.Fatal(err)
	}
	answer(r.data[:], len(targets))
	f.Add(r.data[:256], 2)
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, data []byte, count int) {
		got, err := decodeTargets(data, count%64)
		if err == nil && len(got) != max(0, count%64) {
			t.Errorf("got %d targets of %d", len(got), count%64)
		}
	})
}
