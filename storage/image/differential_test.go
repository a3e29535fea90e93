package image

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
)

// TestDifferential makes images with qemu-img and qemu-io, with options, sizes, content and changes drawn from a seed.
// It compares the disks with the output of `qemu-img convert`, for a server with ranges and for one without, which
// serves the file once.
func TestDifferential(t *testing.T) { differential(t, 0, 80) }

// TestDifferentialMore makes images of more seeds.
func TestDifferentialMore(t *testing.T) { differential(t, 80, 220) }

// differential makes an image of each seed, writes it in each way, and compares the disk with what qemu-img makes of
// the image.
func differential(t *testing.T, from, to uint64) {
	t.Helper()
	testenv.Programs(t, "qemu-img", "qemu-io")
	for seed := from; seed < to; seed++ {
		recipe := newRecipe(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			image, want := recipe.make(t)
			for _, way := range ways {
				way.try(t, recipe.String(), image, want)
			}
		})
	}
}

// recipe describes how an image is made.
type recipe struct {
	seed     uint64
	size     int      // of the disk, bytes
	create   []string // options of qemu-img convert
	changes  []string // commands of qemu-io
	snapshot bool     // before the changes
}

func (r recipe) String() string {
	return fmt.Sprintf("seed %d, %d bytes, %q, snapshot %v, %q", r.seed, r.size, r.create, r.snapshot, r.changes)
}

// newRecipe draws a recipe. It avoids combinations that the format does not allow.
func newRecipe(seed uint64) recipe {
	r := rand.New(rand.NewPCG(seed, 11))
	one := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	chance := func(percent int) bool { return r.IntN(100) < percent }

	bits := 9 + r.IntN(13)
	v3 := chance(75)
	packed := chance(40)
	options := []string{
		fmt.Sprintf("cluster_size=%d", 1<<bits), "compat=" + map[bool]string{true: "1.1", false: "0.10"}[v3],
	}
	extended := v3 && bits >= 14 && chance(50)
	if v3 && (packed || chance(10)) {
		options = append(options, "compression_type="+one("zlib", "zstd"))
	}
	if extended {
		options = append(options, "extended_l2=on")
	}
	if !packed {
		options = append(options, "preallocation="+one("off", "off", "metadata", "falloc", "full"))
	}
	small := false // refcounts too small for snapshots and shared clusters
	if v3 && chance(40) {
		refcounts := one("1", "2", "8", "16", "32", "64")
		small = refcounts == "1" || packed && refcounts == "2"
		if !packed || !small { // many compressed clusters share one of the file
			options = append(options, "refcount_bits="+refcounts)
		} else {
			small = false
		}
	}
	if v3 && chance(20) {
		options = append(options, "lazy_refcounts=on")
	}
	size := 1 + r.IntN(3*mib)
	if chance(70) {
		size = (size + 511) &^ 511
	}
	if chance(10) {
		size = 1 << (9 + r.IntN(13))
	}
	c := recipe{seed: seed, size: size, create: []string{"-o", strings.Join(options, ","), "-S", one("0", "4k", "64k")}}
	if packed {
		c.create = append(c.create, "-c")
	}
	if chance(30) {
		c.create = append(c.create, "-W", "-m", "8")
	}
	c.snapshot = !small && chance(25)
	for range r.IntN(7) {
		if change := drawChange(r, size, 1<<bits, v3); change != "" {
			c.changes = append(c.changes, change)
		}
	}
	return c
}

// drawChange draws a command of qemu-io for an image with a disk of size bytes.
func drawChange(r *rand.Rand, size, cluster int, v3 bool) string {
	sectors := size / 512
	if sectors == 0 {
		return ""
	}
	from := r.IntN(sectors)
	n := 1 + r.IntN(min(sectors-from, 2000))
	switch r.IntN(5) {
	case 0:
		return fmt.Sprintf("write -P %d %d %d", 1+r.IntN(255), from*512, n*512)
	case 1:
		if v3 {
			return fmt.Sprintf("write -z %d %d", from*512, n*512)
		}
		return fmt.Sprintf("write -P 0 %d %d", from*512, n*512)
	case 2:
		if v3 {
			return fmt.Sprintf("write -z -u %d %d", from*512, n*512)
		}
		fallthrough
	case 3:
		return fmt.Sprintf("discard %d %d", from*512, n*512)
	}
	if clusters := size / cluster; clusters > 0 {
		return fmt.Sprintf("write -c -P %d %d %d", r.IntN(256), r.IntN(clusters)*cluster, cluster)
	}
	return ""
}

// make returns the image and the raw disk that qemu-img makes of it.
func (c recipe) make(t *testing.T) (image, want []byte) {
	t.Helper()
	dir := imagetest.MemoryDir(t)
	guest, qcow, raw := filepath.Join(dir, "guest"), filepath.Join(dir, "image"), filepath.Join(dir, "want")
	if err := os.WriteFile(guest, imagetest.DiskContent(c.seed, c.size, 1+c.size/8), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, c.create...)
	testenv.Run(t, "qemu-img", append(args, guest, qcow)...)
	if c.snapshot {
		testenv.Run(t, "qemu-img", "snapshot", "-c", "before", qcow)
	}
	if len(c.changes) > 0 {
		args := []string{"-f", "qcow2"}
		for _, change := range c.changes {
			args = append(args, "-c", change)
		}
		// It refuses to write compressed clusters over others. The image is unchanged then.
		out, err := exec.CommandContext(t.Context(), "qemu-io", append(args, qcow)...).CombinedOutput()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatalf("qemu-io: %v\n%s", err, out)
		}
	}
	testenv.Run(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", qcow, raw)
	return testenv.Content(t, qcow), testenv.Content(t, raw)
}
