//go:build linux && long

package ironic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/pause"
	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
	"ironroot/watch"
)

// slowAddress is the address at which the test serves an image slowly.
const slowAddress = address + ":8082"

// TestRealIronicProgress erases two disks and deploys an image of 2 GiB from a slow server. Meanwhile the node in
// Ironic shows a percentage that only grows and is within 5 points of what was on the disks at the time of the
// heartbeat, and at the end the result, which `ironroot watch` shows, too. Without names of nodes, it lists the node
// and its percentages while Ironic changes it. The disks are sparse files, so their blocks on the host tell how much of
// them was written. Between the two steps, the test makes holes of the zeros that the erase has written.
//
// Parity: T12 (real Ironic)
func TestRealIronicProgress(t *testing.T) {
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 60*time.Minute)
	system, err := osimage.Build(ctx, osimage.Options{Progress: t.Output()})
	step(t, "image", err)
	const imageSize = 2 << 30
	image := noisy(t, system.Raw, imageSize)
	i := start(t, Options{
		KernelParams: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ipa-progress-interval=5",
		Config: "[deploy]\nfast_track = true\ndisk_erasure_concurrency = 2\n" +
			"shred_random_overwrite_iterations = 0\nshred_final_overwrite_with_zeros = true\n",
	})
	// A point of the percentage takes two seconds, so that a late answer of a busy machine is no large difference.
	const first, second, diskRate, imageRate = 9 << 28, 3 << 28, 8 << 20, 7 << 20
	n, err := i.Enroll(ctx, NodeOptions{
		Kernel: kernel, Ramdisk: ramdisk, Memory: memory,
		Disks: []qemu.Disk{
			{Size: first, Serial: "DISK0", NoDiscard: true, BytesPerSecond: diskRate},
			{Size: second, Serial: "DISK1", NoDiscard: true, BytesPerSecond: diskRate},
		},
	})
	step(t, "enroll", err)
	step(t, "manage", n.Manage(ctx))
	step(t, "root device", n.Set(ctx, "/properties/root_device", map[string]any{"serial": "DISK0"}))
	source := n.watchSource(t, ctx)

	dir := i.path("vm/" + n.Name)
	disks := []string{filepath.Join(dir, "disk0.raw"), filepath.Join(dir, "disk1.raw")}
	erased := n.watchProgress(ctx, source, "erase_devices", func() float64 {
		return float64(allocated(t, disks)) / (first + second)
	})
	step(t, "erase", n.Clean(ctx, Step{Interface: "deploy", Step: "erase_devices"}))
	erased.check(t, "clean wait", "manageable", `^erase_devices: done, 2 disks erased in `)
	for _, disk := range disks {
		punch(t, disk)
	}

	step(t, "provide", n.Provide(ctx))
	published := publish(t, i, image, "large.raw") // for its checksum
	published.URL, published.Format = serveSlowly(t, i, image, imageRate), "raw"
	written := n.watchProgress(ctx, source, "write_image", func() float64 {
		return float64(allocated(t, disks[:1])) / imageSize
	})
	step(t, "deploy", n.Deploy(ctx, published, nil))
	written.check(t, "wait call-back", "active",
		`^write_image: done, image of 2\.0 GiB written to /dev/vd[ab] in \S+ \(\S+ [KMG]iB/s\)$`)
}

// noisy returns a copy of the raw image of a system in which noise replaces the file systems behind the EFI system
// partition, and follows its end up to a size. The partition table and its backup stay. Zeros are no measure of what
// was written.
func noisy(t *testing.T, system string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "large.raw")
	testenv.Run(t, "cp", "--reflink=auto", system, path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	step(t, "open image", err)
	defer f.Close()
	info, err := f.Stat()
	step(t, "size of image", err)
	const begin, table = 36 << 20, 1 << 20 // begin is the end of the EFI system partition
	noise := rand.NewChaCha8([32]byte{12})
	for _, part := range [][2]int64{{begin, info.Size() - table}, {info.Size(), size}} {
		_, err := io.CopyN(io.NewOffsetWriter(f, part[0]), noise, part[1]-part[0])
		step(t, "fill image", err)
	}
	return path
}

// allocated returns the bytes of files that have blocks. A disk has no file before its machine is first started.
func allocated(t *testing.T, files []string) (bytes int64) {
	for _, name := range files {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Error(err)
			return 0
		}
		bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	return bytes
}

// punch frees the blocks of a file of zeros.
func punch(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	step(t, "open disk", err)
	defer f.Close()
	info, err := f.Stat()
	step(t, "size of disk", err)
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	step(t, "punch "+name, unix.Fallocate(int(f.Fd()), mode, 0, info.Size()))
	if left := allocated(t, []string{name}); left > info.Size()/100 {
		t.Fatalf("%s: got %d bytes with blocks, want none", name, left)
	}
}

// paced is a response that is written to the node at a rate.
type paced struct {
	http.ResponseWriter
	request *http.Request
	began   time.Time
	rate    int64 // bytes per second
	sent    int64
}

// Write implements [io.Writer].
func (p *paced) Write(data []byte) (int, error) {
	n, err := p.ResponseWriter.Write(data)
	p.sent += int64(n)
	wait := time.Until(p.began.Add(time.Duration(float64(p.sent) / float64(p.rate) * float64(time.Second))))
	if pauseErr := pause.For(p.request.Context(), wait); err == nil {
		err = pauseErr
	}
	return n, err
}

// serveSlowly serves a file, slowly to machines and quickly to Ironic.
func serveSlowly(t *testing.T, i *Ironic, file string, rate int64) (url string) {
	t.Helper()
	i.serveHTTP(t, slowAddress, &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodGet && !strings.HasPrefix(req.RemoteAddr, address+":") {
				w = &paced{ResponseWriter: w, request: req, began: time.Now(), rate: rate}
			}
			http.ServeFile(w, req, file)
		})})
	return "http://" + slowAddress + "/large.raw"
}

// watchSource returns Ironic as `ironroot watch` sees it.
func (n *Node) watchSource(t *testing.T, ctx context.Context) watch.Source {
	t.Helper()
	target, err := url.Parse(apiURL)
	step(t, "URL", err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = n.ironic.http.Transport
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	source, err := watch.Connect(ctx, watch.Access{URL: server.URL})
	step(t, "connect", err)
	return source
}

// stored is the data that Ironic has stored of the latest heartbeat.
type stored struct {
	Message   string `json:"agent_status_message"` // "" for none
	Heartbeat string `json:"agent_last_heartbeat"` // ISO 8601, UTC, without a zone
}

// stored returns what Ironic has stored of the latest heartbeat.
func (n *Node) stored(ctx context.Context) (stored, error) {
	var node struct {
		Internal stored `json:"driver_internal_info"`
	}
	err := n.ironic.call(ctx, http.MethodGet, "/v1/nodes/"+n.UUID+"?fields=driver_internal_info", nil, &node)
	return node.Internal, err
}

// progressLine is a line that Ironic has stored, with the time of its heartbeat.
type progressLine struct {
	text string
	at   time.Time
}

// sample is the part of the work that was done at a time, 0 to 1.
type sample struct {
	at   time.Time
	done float64
}

// progressWatch collects the lines of a step in the background.
type progressWatch struct {
	node    *Node
	source  watch.Source
	step    string
	stop    context.CancelFunc
	ended   chan struct{}
	lines   []progressLine
	samples []sample
	err     error
	watched bytes.Buffer  // of `ironroot watch NODE`, at the end
	listed  bytes.Buffer  // of `ironroot watch`
	listing chan struct{} // closed when it has ended
}

// watchProgress collects the lines of a step until check is called.
func (n *Node) watchProgress(
	ctx context.Context, source watch.Source, name string, done func() float64,
) *progressWatch {
	ctx, stop := context.WithCancel(ctx)
	w := &progressWatch{
		node: n, source: source, step: name, stop: stop, ended: make(chan struct{}), listing: make(chan struct{}),
	}
	go func() {
		defer close(w.listing)
		if err := w.show(ctx, nil, &w.listed); !errors.Is(err, context.Canceled) {
			_, _ = fmt.Fprintln(&w.listed, err)
		}
	}()
	go func() {
		defer close(w.ended)
		if err := w.collect(ctx, done); !errors.Is(err, context.Canceled) {
			w.err = err
		}
	}()
	return w
}

// show runs `ironroot watch` for the nodes.
func (w *progressWatch) show(ctx context.Context, nodes []string, out io.Writer) error {
	display := watch.NewLines(out)
	return watch.Run(ctx, watch.Options{Source: w.source, Display: display, Names: nodes, Interval: time.Second})
}

// collect samples what is done and reads the lines, until ctx ends.
func (w *progressWatch) collect(ctx context.Context, done func() float64) error {
	for {
		now, err := w.node.stored(ctx)
		if err != nil {
			return err
		}
		w.samples = append(w.samples, sample{time.Now(), done()})
		last := len(w.lines) - 1
		if strings.HasPrefix(now.Message, w.step+": ") && (last < 0 || w.lines[last].text != now.Message) {
			at, err := time.Parse("2006-01-02T15:04:05", now.Heartbeat)
			if err != nil {
				return err
			}
			w.lines = append(w.lines, progressLine{now.Message, at})
		}
		if err := pause.For(ctx, 250*time.Millisecond); err != nil { // Ironic sends no notification of changes
			return err
		}
	}
}

// around returns the latest sample before a time and the earliest after it.
func (w *progressWatch) around(at time.Time) (before, after float64) {
	before, after = 0, 1
	for _, s := range w.samples {
		if s.at.After(at) {
			return before, s.done
		}
		before = s.done
	}
	return before, after
}

var leading = regexp.MustCompile(`^[a-z_]+: (\d+)%`)

// check ends the collection and checks the lines: the percentages have grown and were right, and the last line is the
// result, also in `ironroot watch`. While the step runs, the node is in the state during, and finally in another one.
func (w *progressWatch) check(t *testing.T, during, state, result string) {
	t.Helper()
	w.stop()
	<-w.ended
	<-w.listing
	step(t, "progress of "+w.step, w.err)
	previous, percentages := 0, 0
	for _, line := range w.lines {
		before, after := w.around(line.at)
		t.Logf("%.1f to %.1f %%: %s", before*100, after*100, line.text)
		m := leading.FindStringSubmatch(line.text)
		if m == nil {
			continue
		}
		percent, err := strconv.Atoi(m[1])
		step(t, "percentage", err)
		if percent < previous {
			t.Errorf("got %q after %d %%", line.text, previous)
		}
		if float64(percent) < before*100-5 || float64(percent) > after*100+5 {
			t.Errorf("got %q, want %.1f to %.1f %%", line.text, before*100, after*100)
		}
		previous = percent
		percentages++
	}
	if percentages < 10 {
		t.Errorf("got %d percentages, want at least 10", percentages)
	}
	last, err := w.node.stored(t.Context())
	step(t, "result of "+w.step, err)
	if !regexp.MustCompile(result).MatchString(last.Message) {
		t.Errorf("got the result %q, want %s", last.Message, result)
	}
	w.checkWatch(t, state, last.Message)
	w.checkList(t, during, state)
}

// checkWatch checks that `ironroot watch` shows the result of a node that rests.
func (w *progressWatch) checkWatch(t *testing.T, state, result string) {
	t.Helper()
	step(t, "ironroot watch", w.show(t.Context(), []string{w.node.Name}, &w.watched))
	if want := " " + w.node.Name + ": " + state + ", " + result + "\n"; !strings.HasSuffix(w.watched.String(), want) {
		t.Errorf("got %q, want %q from ironroot watch", &w.watched, want)
	}
}

// checkList checks that `ironroot watch` without names has shown at least five percentages of the step in a state, and
// did not show the node once it rested.
func (w *progressWatch) checkList(t *testing.T, during, rests string) {
	t.Helper()
	prefix := " " + w.node.Name + ": "
	percentages := regexp.MustCompile(regexp.QuoteMeta(prefix+during+", "+w.step) + `: \d+%`)
	if got := len(percentages.FindAllString(w.listed.String(), -1)); got < 5 {
		t.Errorf("got %d percentages of %s from the list of ironroot watch, want at least 5:\n%s",
			got, w.step, &w.listed)
	}
	if strings.Contains(w.listed.String(), prefix+rests) {
		t.Errorf("the list of ironroot watch shows a node that rests:\n%s", &w.listed)
	}
}
