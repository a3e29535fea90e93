package erase

import (
	"fmt"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/erase/evidence"
)

// An overwrite says of which passes it consisted, and what the read-back of the last one shows: zeros can come from a
// device that ignores writes, random data cannot. If zeros were replaced by random data, it says so.
func TestOverwritten(t *testing.T) {
	const zeros = "all zeros, which a device that ignores writes can return, too"
	const random = "all as written, which proves that the device stores what is written"
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Zeroize: true}, "passes: 1, the last of zeros; read back: %d of %d bytes, " + zeros},
		{Options{Iterations: 2, Zeroize: true}, "passes: 3, the last of zeros; read back: %d of %d bytes, " + zeros},
		{Options{Iterations: 2}, "passes: 2, the last of random data; read back: %d of %d bytes, " + random},
		{
			Options{Iterations: 1, prove: true},
			"passes: 1, the last of random data; read back: %d of %d bytes, " + random,
		},
		{
			Options{Iterations: 1, Zeroize: true, prove: true},
			"passes: 2, the last of random data instead of zeros, because it is not known whether the drive is " +
				"locked; read back: %d of %d bytes, " + random,
		},
	} {
		path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
		ctx, trace := WithTrace(t.Context())
		if err := overwrite(ctx, path, c.o); err != nil {
			t.Fatal(err)
		}
		o := trace.Observed()
		o.ReadBack.Direct = true // a loop device need not have it
		want := fmt.Sprintf(c.want, o.ReadBack.Read, int64(ataSize))
		if got := o.Overwritten(); got != want {
			t.Errorf("%+v: got %q, want %q", c.o, got, want)
		}
	}
	// Without a read-back nothing is claimed; through the cache nothing is shown.
	o := Observed{Passes: []evidence.Pass{{Pattern: evidence.PatternRandom}}}
	if got := o.Overwritten(); got != "" {
		t.Errorf("not read back: got %q", got)
	}
	o.ReadBack = &evidence.ReadBack{Read: 1, Size: 2}
	const cached = "passes: 1, the last of random data; read back: 1 of 2 bytes, through the kernel's cache, which " +
		"does not show what the device stores"
	if got := o.Overwritten(); got != cached {
		t.Errorf("through the cache: got %q, want %q", got, cached)
	}
}
