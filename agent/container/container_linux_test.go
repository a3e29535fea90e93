package container

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
	"ironroot/internal/confine"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/image/fetch"
	"ironroot/storage/sysfs"
)

// TestMain runs the processes of containers.
func TestMain(m *testing.M) {
	Child()
	os.Exit(runTests(m))
}

// runTests runs the tests. If this program is not static, another one runs the processes of containers.
func runTests(m *testing.M) int {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	defer self.Close()
	if slices.ContainsFunc(self.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		dir, err := os.MkdirTemp("", "child")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // only of a test
		program = filepath.Join(dir, "child")
		build := exec.Command("go", "build", "-o", program, "./testdata/child")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v: %s", err, out))
		}
	}
	return m.Run()
}

// store is a registry in memory.
type store struct {
	t      *testing.T
	server *httptest.Server
	files  http.Handler
	serve  http.HandlerFunc // if set, it serves instead
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{t: t, files: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.serve != nil {
			s.serve(w, r)
			return
		}
		s.files.ServeHTTP(w, r)
	}))
	t.Cleanup(s.server.Close)
	return s
}

func (s *store) host() string { return strings.TrimPrefix(s.server.URL, "https://") }

func (s *store) options() fetch.Options { return fetch.Options{Client: s.server.Client()} }

func (s *store) put(method, path, media string, data []byte) {
	s.t.Helper()
	r := httptest.NewRequest(method, path, bytes.NewReader(data))
	r.Header.Set("Content-Type", media)
	w := httptest.NewRecorder()
	s.files.ServeHTTP(w, r)
	if w.Code/100 != 2 {
		s.t.Fatalf("%s %s: got %d %s", method, path, w.Code, w.Body)
	}
}

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// push uploads a file and returns its descriptor.
func (s *store) push(media string, data []byte) map[string]any {
	s.t.Helper()
	digest := digestOf(data)
	s.put(http.MethodPost, "/v2/os/image/blobs/uploads/?digest="+digest, "application/octet-stream", data)
	return map[string]any{"mediaType": media, "digest": digest, "size": len(data)}
}

const (
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
)

// image describes an image that image() uploads. Layers are archives of tar.
type testImage struct {
	layers       [][]byte
	large        *packedLayer // a further layer, if not nil
	config       map[string]any
	architecture string
	change       func(manifest map[string]any)
}

// image uploads an image with compressed layers, and returns its name.
func (s *store) image(i testImage) string {
	s.t.Helper()
	var diffs []string
	var layers []any
	for n, l := range i.layers {
		diffs = append(diffs, digestOf(l))
		media, data := layerType+"+gzip", pack(s.t, "gzip", l)
		if n%2 == 1 {
			const first = "\x50\x2a\x4d\x18\x04\x00\x00\x00size" // a frame to skip, as of pzstd
			media, data = layerType+"+zstd", append([]byte(first), pack(s.t, "zstd", l)...)
		}
		layers = append(layers, s.push(media, data))
	}
	if i.large != nil {
		diffs, layers = append(diffs, i.large.diffID), append(layers, s.push(layerType+"+zstd", i.large.data))
	}
	if i.architecture == "" {
		i.architecture = runtime.GOARCH
	}
	config, err := json.Marshal(map[string]any{
		"architecture": i.architecture, "os": "linux", "config": i.config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": s.push(configType, config), "layers": layers,
	}
	if i.change != nil {
		i.change(manifest)
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		s.t.Fatal(err)
	}
	s.put(http.MethodPut, "/v2/os/image/manifests/1", manifestType, text)
	return s.host() + "/os/image:1"
}

// pack compresses data by a program.
func pack(t testing.TB, program string, data []byte) []byte {
	t.Helper()
	testenv.Programs(t, program)
	file := filepath.Join(t.TempDir(), "layer")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return []byte(testenv.Run(t, program, "-c", file))
}

// packedLayer is a compressed layer with the file "large".
type packedLayer struct {
	data   []byte
	diffID string // digest of its archive
	size   int64  // of the file
}

const largeMarker = "MARKER-OF-THE-LARGE-FILE"

// largeLayers contains the layers that largeLayer has made: making one takes seconds.
var largeLayers = struct {
	sync.Mutex
	bySize map[int64]*packedLayer
}{bySize: map[int64]*packedLayer{}}

// largeLayer returns a layer whose file is filled with a marker, so that the layer is small.
func largeLayer(t testing.TB, size int64) *packedLayer {
	t.Helper()
	largeLayers.Lock()
	defer largeLayers.Unlock()
	if layer := largeLayers.bySize[size]; layer != nil {
		return layer
	}
	testenv.Programs(t, "tar", "zstd", "sha256sum")
	dir := t.TempDir()
	out := testenv.Run(t, "sh", "-ec", `cd "$1"; yes "$2" | head -c "$3" >large; tar -cf archive large; rm large
		zstd -q archive -o packed; sha256sum archive; rm archive`, "sh", dir, largeMarker, strconv.FormatInt(size, 10))
	packed, err := os.ReadFile(filepath.Join(dir, "packed"))
	if err != nil {
		t.Fatal(err)
	}
	layer := &packedLayer{data: packed, diffID: "sha256:" + strings.Fields(out)[0], size: size}
	largeLayers.bySize[size] = layer
	return layer
}

// archive returns the archive of a directory, made by Debian's tar.
func archive(t testing.TB, dir string, options ...string) []byte {
	t.Helper()
	testenv.Programs(t, "tar")
	return []byte(testenv.Run(t, "tar", append(options, "--numeric-owner", "-C", dir, "-cf", "-", ".")...))
}

// probeLayer is a layer with the probe as /usr/bin/probe.
func probeLayer(t testing.TB) []byte {
	t.Helper()
	testenv.Root(t)
	dir := t.TempDir()
	for _, name := range []string{"usr/bin", "etc", "mnt"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", filepath.Join(dir, "usr/bin/probe"), "./testdata/probe")
	if err := unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	passwd := "root:x:0:0::/root:/bin/sh\nuser:x:1234:1235::/:/bin/sh\n"
	if err := os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	return archive(t, dir)
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// prepared returns the probe's image, unpacked in memory.
func prepared(t *testing.T, config map[string]any) *Bundle {
	t.Helper()
	return preparedFrom(t, config, probeLayer(t))
}

// preparedFrom returns an image with one layer, unpacked in memory.
func preparedFrom(t *testing.T, config map[string]any, layer []byte) *Bundle {
	t.Helper()
	s := newStore(t)
	name := s.image(testImage{layers: [][]byte{layer}, config: config})
	image, err := Resolve(t.Context(), s.options(), "docker://"+name, "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Prepare(t.Context(), image, Options{Log: logger(t), KeepImage: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// run runs the probe and returns its output.
func run(t *testing.T, b *Bundle, s Spec) (string, error) {
	t.Helper()
	var lines []string
	s.Output = lineFunc(func(line string) { lines = append(lines, line) })
	err := b.Run(t.Context(), s)
	return strings.Join(lines, "\n"), err
}

// The container has what bootc requires of its environment.
func TestRunEnvironment(t *testing.T) {
	b := prepared(t, map[string]any{
		"Entrypoint": []string{"probe"}, "Cmd": []string{"one"}, "Env": []string{"IMAGE=yes", "PATH=/usr/bin"},
		"WorkingDir": "/work/dir", "User": "user",
	})
	for _, privileged := range []bool{false, true} {
		got, err := run(t, b, Spec{
			User: map[bool]string{false: "", true: "root:0"}[privileged], // "" is the image's
			Env:  []string{"VARIABLE=value"}, Layout: "/layout", Privileged: privileged,
			Files: map[string]File{"/etc/key": {Content: []byte("a key"), Mode: 0o644}},
		})
		if err != nil {
			t.Fatalf("privileged %v: %v\n%s", privileged, err, got)
		}
		user := map[bool]string{false: "1234 1235", true: "0 0"}[privileged]
		want := strings.Join([]string{
			"pid 1 false", "owner of pid 1 0", "tmp is tmpfs true", "/tmp has at most 65536 files",
			"/run has at most 65536 files", "/dev/shm has at most 65536 files", "dev is that of pid 1 true",
			"mounts of pid 1 true ipc true", "containerenv true",
			"arguments [one] variable value image yes dir /work/dir", "user " + user,
			"layout [/layout/blobs /layout/index.json /layout/oci-layout]", "key a key", "host 12",
		}, "\n")
		if !privileged { // another user than root cannot look into process 1
			got = strings.Replace(got, "dev is that of pid 1 false", "dev is that of pid 1 true", 1)
			got = strings.Replace(got, "mounts of pid 1 false ipc false", "mounts of pid 1 true ipc true", 1)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("privileged %v (-want +got):\n%s", privileged, diff)
		}
	}
}

func TestRunFails(t *testing.T) {
	b := prepared(t, nil)
	var exit *ExitError
	if _, err := run(t, b, Spec{Args: []string{"probe", "fail"}}); !errors.As(err, &exit) || exit.Code != 3 ||
		exit.Output != "on fire" {
		t.Errorf("got %v, want exit status 3 and the output", err)
	}
	if _, err := run(t, b, Spec{Args: []string{"probe", "killed"}}); !errors.As(err, &exit) || exit.Code != -1 ||
		exit.Status != "signal: killed" {
		t.Errorf("got %v, want the signal", err)
	}
	for _, name := range []string{"missing", "/missing", "/etc/passwd"} {
		if _, err := run(t, b, Spec{Args: []string{name}}); !errors.Is(err, ErrNotFound) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want %v", name, err, ErrNotFound)
		}
	}
	if _, err := run(t, b, Spec{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("no command: got %v, want %v", err, ErrNotFound)
	}
	got, err := run(t, b, Spec{Args: []string{"probe", "flood"}})
	if lines := strings.Split(got, "\n"); err != nil || len(lines) != 1000 || len(lines[0]) != maxLine {
		t.Errorf("flood: got %d lines, the first with %d bytes (%v), want 1000 with %d", len(lines), len(lines[0]), err,
			maxLine)
	}
}

// A command that is cancelled leaves neither a process nor a mount.
func TestRunCancelled(t *testing.T) {
	b := prepared(t, nil)
	for _, privileged := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		given := errors.New("given up")
		err := b.Run(ctx, Spec{
			Args: []string{"probe", "hang"}, Privileged: privileged, Output: lineFunc(func(string) { cancel(given) }),
		})
		if !errors.Is(err, given) {
			t.Errorf("privileged %v: got %v, want %v", privileged, err, given)
		}
	}
	if err := unix.Unmount(b.scratch.dir, 0); err != nil {
		t.Errorf("the scratch space is in use: %v", err)
	}
	b.scratch.mounted = false
}

// neverEnds makes processes outlive their kill, as those do that wait for a dead disk. They end when the function that
// it returns is called, and must end before the test.
func neverEnds(t *testing.T) (end func()) {
	t.Helper()
	var ends []func() error
	t.Cleanup(func() { awaitProcess = awaitEnd })
	awaitProcess = func(ctx context.Context, wait, kill func() error) error {
		<-ctx.Done()
		ends = append(ends, kill, wait)
		return confine.ErrStillRunning
	}
	return func() {
		for _, f := range ends {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
	}
}

// claims returns the descriptors by which this process has claimed a disk.
func claims(t *testing.T, disk string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		fd, err := strconv.Atoi(e.Name())
		if target != disk || err != nil {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY {
			found = append(found, fd)
		}
	}
	return found
}

// checkClaimed checks that a disk cannot be used, and ends its claim.
func checkClaimed(t *testing.T, disk string) {
	t.Helper()
	if f, err := os.OpenFile(disk, os.O_RDWR|unix.O_EXCL, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("%s: got %v and %v, want %v", disk, f, err, unix.EBUSY)
	}
	found := claims(t, disk)
	if len(found) != 1 {
		t.Errorf("%s: got %d claims, want 1", disk, len(found))
	}
	for _, fd := range found {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
}

// checkReserved checks that an image is not removed, and that the error names its scratch space.
func checkReserved(t *testing.T, b *Bundle, place string) {
	t.Helper()
	err := b.Close(t.Context())
	if want := fmt.Sprintf("scratch space (%s, %d bytes) stays reserved", place, b.scratch.size); err == nil ||
		!errors.Is(err, confine.ErrStillRunning) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q and %v", err, want, confine.ErrStillRunning)
	}
	if _, err := os.Stat(filepath.Join(b.scratch.dir, rootDir)); err != nil || !b.scratch.mounted {
		t.Errorf("the scratch space is not mounted (%v)", err)
	}
}

// A container that the kernel does not end is left behind, and what it uses is neither removed nor used again.
func TestRunLeavesBehind(t *testing.T) {
	for _, tt := range []struct{ privileged, mounted bool }{{false, false}, {true, false}, {true, true}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			disk := testenv.Loop(t, testenv.SparseFile(t, 16<<20), 512)
			b := prepared(t, nil)
			defer b.inUse.Store(false) // the container has ended
			end := neverEnds(t)
			flags := os.O_RDWR
			if tt.mounted {
				flags |= unix.O_EXCL
			}
			holder, err := os.OpenFile(disk, flags, 0)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			given := errors.New("given up")
			err = b.Run(ctx, Spec{
				Args: []string{"probe", "hang"}, Privileged: tt.privileged, Disks: []string{disk},
				Output: lineFunc(func(string) { cancel(given) }),
			})
			const want = "given up: container killed, but still running"
			if !errors.Is(err, given) || !errors.Is(err, confine.ErrStillRunning) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			checkReserved(t, b, "memory")
			if !tt.mounted {
				checkClaimed(t, disk)
			}
			if err := holder.Close(); err != nil {
				t.Error(err)
			}
			end()
			if tt.mounted {
				checkClaimed(t, disk)
			}
		})
	}
}

// A container whose program has ended is left behind like one that was killed, if the kernel does not end another one
// of its processes. The error contains the result of the program.
func TestRunEndsButIsLeftBehind(t *testing.T) {
	for command, want := range map[string]string{
		"environment": "the program ended with success, but a process of the ended container killed, but still running",
		"fail": "probe of the image: exit status 3: on fire; a process of the ended container killed, but still " +
			"running",
		"missing": "program not found in the image: missing; a process of the ended container killed, but still " +
			"running",
	} {
		b := prepared(t, nil)
		end := neverEnds(t)
		args := []string{"probe", command}
		if command == "missing" {
			args = []string{command}
		}
		err := b.Run(testenv.Context(t, time.Minute), Spec{Args: args})
		var exit *ExitError
		if !errors.Is(err, confine.ErrStillRunning) || !strings.HasSuffix(err.Error(), want) ||
			errors.As(err, &exit) != (command == "fail") || errors.Is(err, ErrNotFound) != (command == "missing") {
			t.Errorf("%s: got %v, want %q", command, err, want)
		}
		checkReserved(t, b, "memory")
		end()
		b.inUse.Store(false)
	}
}

// The kernel keeps a container until all of its processes have been reaped. One of them is a child of the test, which
// does not reap it.
func TestRunKeptByKernel(t *testing.T) {
	b := prepared(t, nil)
	reaped := make(chan error, 1)
	t.Cleanup(func() { awaitProcess = awaitEnd })
	awaitProcess = func(ctx context.Context, wait, kill func() error) error {
		return confine.Await(ctx, time.Millisecond, func() error {
			err := wait()
			reaped <- err
			return err
		}, kill)
	}
	var process *exec.Cmd
	dir := t.TempDir()
	err := b.Run(testenv.Context(t, time.Minute), Spec{
		Args: []string{"probe", "wait", "/test/end"}, Mounts: []Mount{{Source: dir, Target: "/test", ReadOnly: true}},
		Output: lineFunc(func(string) {
			process = joinContainer(t)
			if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}),
	})
	const want = "the program ended with success, but a process of the ended container killed, but still running"
	if !errors.Is(err, confine.ErrStillRunning) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	checkReserved(t, b, "memory")
	if process == nil {
		t.Fatal("no process has joined the container")
	}
	if err := process.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("process of the container: got %v, want it killed", err)
	}
	if err := <-reaped; err != nil {
		t.Error(err)
	}
	b.inUse.Store(false)
}

// joinContainer starts a process in the only container that runs.
func joinContainer(t *testing.T) *exec.Cmd {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/pid")
	stats, globErr := filepath.Glob("/proc/[0-9]*/stat")
	if err := errors.Join(err, globErr); err != nil {
		t.Error(err)
		return nil
	}
	for _, stat := range stats {
		text, _ := os.ReadFile(stat) // it may have ended
		_, fields, _ := strings.Cut(string(text), ") ")
		name := filepath.Join(filepath.Dir(stat), "ns/pid")
		if parts := strings.Fields(fields); len(parts) < 2 || parts[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if other, err := os.Readlink(name); err != nil || other == own {
			continue
		}
		process, started := exec.Command("sleep", "infinity"), make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the function
			namespace, err := os.Open(name)
			if err == nil {
				err = errors.Join(unix.Setns(int(namespace.Fd()), unix.CLONE_NEWPID), namespace.Close())
			}
			if err == nil {
				err = process.Start()
			}
			started <- err
		}()
		if err := <-started; err != nil {
			t.Error(err)
			return nil
		}
		return process
	}
	t.Error("no container runs")
	return nil
}

// A mounter that the kernel does not end is left behind. The program is killed, and what both use is not removed.
func TestMounterLeftBehind(t *testing.T) {
	b := prepared(t, nil)
	defer b.inUse.Store(false) // both have ended
	t.Cleanup(func() { awaitProcess = awaitEnd })
	var calls atomic.Int32
	awaitProcess = func(ctx context.Context, wait, kill func() error) error {
		err := awaitEnd(ctx, wait, kill)
		if calls.Add(1) == 1 { // the container's call returns last
			err = errors.Join(err, confine.ErrStillRunning)
		}
		return err
	}
	_, err := run(t, b, Spec{Args: []string{"probe", "mountandhang"}, Privileged: true})
	if !errors.Is(err, confine.ErrStillRunning) || !strings.Contains(err.Error(), "mounter of the container") {
		t.Errorf("got %v, want %v about the mounter", err, confine.ErrStillRunning)
	}
	checkReserved(t, b, "memory")
}

// A program that runs for too long is ended.
func TestRunMaxDuration(t *testing.T) {
	b := prepared(t, nil)
	for _, privileged := range []bool{false, true} {
		_, err := run(t, b, Spec{
			Args: []string{"probe", "hang"}, Privileged: privileged, MaxDuration: 100 * time.Millisecond,
		})
		if !errors.Is(err, ErrMaxDuration) || !strings.Contains(err.Error(), "100ms") {
			t.Errorf("privileged %v: got %v, want %v", privileged, err, ErrMaxDuration)
		}
	}
}

// A privileged container mounts the file systems of disks, and none that shows the machine.
func TestMounts(t *testing.T) {
	b := prepared(t, nil)
	got, err := run(t, b, Spec{Args: []string{"probe", "mount"}, Privileged: true})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"tmpfs <nil>", "write <nil>", "remount <nil>",
		"read-only open /mnt/a/other: read-only file system", "unmount <nil>",
		"proc <nil>", "proc shows this process <nil>",
		"sysctl open /mnt/a/sys/kernel/core_pattern: read-only file system",
		"magic proc <nil>", "sysctl by magic open /mnt/a/sys/kernel/core_pattern: read-only file system",
		"remount proc/sys operation not permitted", "unmount proc/sys invalid argument",
		"debugfs operation not permitted", "devtmpfs <nil>", "devtmpfs shows []", "cgroup operation not permitted",
		"unshare <nil>", "bind <nil>", "magic bind <nil>", "bind proc invalid argument",
		"sysctl by bind open /mnt/sys/kernel/core_pattern: no such file or directory",
		"unmount root invalid argument",
	}, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
	if got, err := run(t, b, Spec{Args: []string{"probe", "mount"}}); err != nil ||
		!strings.HasPrefix(got, "tmpfs operation not permitted\n") {
		t.Errorf("not privileged: got %s (%v), want no mount", got, err)
	}
}

// In a privileged container, setns(2) succeeds only for the mount namespace of process 1, and only if the caller is in
// it. Without privileges it always fails.
func TestJoin(t *testing.T) {
	b := prepared(t, nil)
	const joined = "mounts <nil>\nany kind <nil>\nmounts of a process <nil>\n"
	denied := func(names ...string) (text string) {
		for _, name := range names {
			text += name + " operation not permitted\n"
		}
		return text
	}
	others := denied("other kind", "processes", "all of a process", "file", "no file")
	for privileged, want := range map[bool]string{
		true: joined + others + "new mounts <nil>\n" + denied("mounts from others"),
		false: denied("mounts", "any kind", "mounts of a process") + others +
			denied("new mounts", "mounts from others"),
	} {
		got, err := run(t, b, Spec{Args: []string{"probe", "join"}, Privileged: privileged})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimSpace(want), got); diff != "" {
			t.Errorf("privileged %t: differs (-want +got):\n%s", privileged, diff)
		}
	}
}

// In a privileged container, only a program with CAP_SYS_ADMIN mounts file systems, as mount(2) says.
func TestMountsNeedCapability(t *testing.T) {
	b := prepared(t, nil)
	for user, want := range map[string]string{"": "user <nil>", "user": "user operation not permitted"} {
		got, err := run(t, b, Spec{Args: []string{"probe", "mountasuser"}, User: user, Privileged: true})
		if err != nil || got != want {
			t.Errorf("user %q: got %q (%v), want %q", user, got, err, want)
		}
	}
}

// A mount that is optional may lack the file system or what it shows. Everything else is an error.
func TestMountOptional(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("sysfs", dir, "sysfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	missing := filepath.Join(t.TempDir(), "missing")
	for name, tt := range map[string]struct {
		kind, at string
		flags    uintptr
		absent   []unix.Errno
		want     error
	}{
		"no such file system":       {"ironroot-none", dir, 0, nil, nil},
		"no directory, and allowed": {"sysfs", missing, 0, []unix.Errno{unix.ENOENT}, nil},
		"no directory":              {"sysfs", missing, 0, nil, unix.ENOENT},
		"already mounted":           {"sysfs", dir, unix.MS_RDONLY, []unix.Errno{unix.ENOENT}, unix.EBUSY},
		"not a directory":           {"sysfs", "/proc/self/status", 0, []unix.Errno{unix.ENOENT}, unix.ENOTDIR},
	} {
		if err := mountOptional(tt.kind, tt.at, tt.flags, tt.absent...); !errors.Is(err, tt.want) ||
			err != nil && !strings.Contains(err.Error(), tt.at) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

// A container sees nothing of the ramdisk.
func TestIsolation(t *testing.T) {
	b := prepared(t, nil)
	disk := testenv.Loop(t, testenv.SparseFile(t, 64<<20), 512)
	got, err := run(t, b, Spec{Args: []string{"probe", "see"}, Privileged: true, Disks: []string{disk}})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"/proc/cmdline 1 <nil>", "/proc/kmsg 0 <nil>", "/proc/keys 0 <nil>", "processes 2",
		"mknod mem operation not permitted", "mknod null operation not permitted",
		"device of the image open /device: permission denied",
		"root of pid 1 [dev device etc mnt proc run sys tmp usr]", "environment of pid 1 0",
		"program of pid 1 open /proc/1/exe: text file busy", "its mode chmod /proc/1/exe: read-only file system",
		"its attributes read-only file system", "its mount invalid argument",
		"fd full " + filepath.Base(disk) + " mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero ",
	}, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
}

// The partitions of a disk appear while the program runs.
func TestPartitionsAppear(t *testing.T) {
	b := prepared(t, nil)
	disk := testenv.Loop(t, testenv.SparseFile(t, 64<<20), 512)
	started, result := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		result <- b.Run(ctx, Spec{
			Args: []string{"probe", "wait", disk, disk + "p1"}, Disks: []string{disk}, Privileged: true,
			Output: lineFunc(func(string) { close(started) }),
		})
	}()
	select {
	case <-started:
	case err := <-result:
		t.Fatalf("got %v before the program has started", err)
	}
	if err := block.AddPartition(disk, 1, 1<<20, 8<<20); err != nil { // not every kernel reads tables of loop devices
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// A failure of what works for the container ends it.
func TestRunEndsAfterFailure(t *testing.T) {
	b := prepared(t, nil)
	disk := testenv.Loop(t, testenv.SparseFile(t, 64<<20), 512)
	b.system = machineWithMemory(t, 1<<30)
	block := filepath.Join(b.system.Path, "sys/class/block", filepath.Base(disk))
	if err := os.Remove(filepath.Join(b.system.Path, "sys")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(block, 0o755); err != nil {
		t.Fatal(err)
	}
	number, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(disk), "dev"))
	if err == nil {
		err = os.WriteFile(filepath.Join(block, "dev"), number, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = b.Run(t.Context(), Spec{
		Args: []string{"probe", "hang"}, Privileged: true, Disks: []string{disk},
		Output: lineFunc(func(string) {
			if err := os.RemoveAll(block); err != nil {
				t.Error(err)
			}
			testenv.Run(t, "sh", "-c", "echo change >/sys/class/block/"+filepath.Base(disk)+"/uevent")
		}),
	})
	if err == nil || !strings.Contains(err.Error(), disk) {
		t.Errorf("got %v, want an error with %s", err, disk)
	}
}

// serveWith replaces the content of layers.
func (s *store) serveWith(change func(data []byte) []byte) {
	s.serve = func(w http.ResponseWriter, r *http.Request) {
		recorded := httptest.NewRecorder()
		s.files.ServeHTTP(recorded, r)
		data := recorded.Body.Bytes()
		if strings.Contains(r.URL.Path, "/blobs/") && !bytes.HasPrefix(data, []byte("{")) {
			data = change(data)
		}
		for name, values := range recorded.Header() {
			if name != "Content-Length" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(data) // the client may disconnect
		w.(http.Flusher).Flush()
	}
}

// random returns bytes that do not compress.
func random(n int) []byte {
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(data) //nolint:errcheck // never fails
	return data
}

// small is a layer with one file.
func small(t *testing.T, name, content string) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return archive(t, dir)
}

// Images that are not what they announce are refused, and nothing is left.
func TestPrepareRefuses(t *testing.T) {
	testenv.Root(t)
	one, two := small(t, "one", "1"), small(t, "two", "2")
	good := testImage{layers: [][]byte{one, two}}
	for name, tt := range map[string]struct {
		image  testImage
		change func([]byte) []byte
		want   string
	}{
		"changed": {good, func(d []byte) []byte { d[len(d)/2] ^= 1; return d }, "got the digest"},
		"more":    {good, func(d []byte) []byte { return append(d, 0) }, "announces"},
		"less":    {good, func(d []byte) []byte { return d[:len(d)-1] }, "want"},
		"digest of the archive": {testImage{layers: [][]byte{one}, change: func(m map[string]any) {
			m["layers"].([]any)[0].(map[string]any)["digest"] = m["config"].(map[string]any)["digest"]
			m["layers"].([]any)[0].(map[string]any)["size"] = m["config"].(map[string]any)["size"]
		}}, nil, "read archive"},
		"other architecture": {testImage{layers: [][]byte{one}, architecture: "s390x"}, nil, "s390x"},
		"unknown layer": {testImage{layers: [][]byte{one}, change: func(m map[string]any) {
			m["layers"].([]any)[0].(map[string]any)["mediaType"] = "text/plain"
		}}, nil, "unknown type"},
		"no layers": {testImage{layers: [][]byte{one}, change: func(m map[string]any) {
			m["layers"] = []any{}
		}}, nil, "0 layers"},
		"one layer too many": {testImage{layers: [][]byte{one}, change: func(m map[string]any) {
			m["layers"] = append(m["layers"].([]any), m["layers"].([]any)[0])
		}}, nil, "describes 1 layers, the manifest 2"},
		"too large": {testImage{layers: [][]byte{one}, change: func(m map[string]any) {
			m["layers"].([]any)[0].(map[string]any)["size"] = 1 << 39
		}}, nil, ErrNoSpace.Error()},
		"absurdly large": {testImage{layers: [][]byte{one}, change: func(m map[string]any) {
			m["layers"].([]any)[0].(map[string]any)["size"] = 1 << 41
		}}, nil, "want 0 to"},
		"configuration": {testImage{layers: [][]byte{one}, change: func(m map[string]any) {
			m["config"].(map[string]any)["size"] = 1 << 30
		}}, nil, "the configuration has"},
		"artifact": {testImage{layers: [][]byte{one}, change: func(m map[string]any) {
			m["config"].(map[string]any)["mediaType"] = "application/vnd.oci.empty.v1+json"
		}}, nil, "not a container image"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			reference := s.image(tt.image)
			if tt.change != nil {
				s.serveWith(tt.change)
			}
			t.Setenv("TMPDIR", t.TempDir())
			image, err := Resolve(t.Context(), s.options(), reference, "")
			if err == nil {
				var b *Bundle
				if b, err = Prepare(t.Context(), image, Options{KeepImage: true}); err == nil {
					_ = b.Close(context.Background())
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "/os/image:1") {
				t.Errorf("got %v, want an error with the image and %q", err, tt.want)
			}
			if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// The image is selected by architecture and pinned by digest; credentials come from the pull secret.
func TestResolve(t *testing.T) {
	testenv.Root(t)
	s := newStore(t)
	layers := [][]byte{small(t, "one", "1")}
	var manifests []any
	digests := map[string]string{}
	for _, architecture := range []string{"s390x", runtime.GOARCH} {
		s.image(testImage{layers: layers, architecture: architecture})
		w := httptest.NewRecorder()
		s.files.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/os/image/manifests/1", nil))
		digests[architecture] = digestOf(w.Body.Bytes())
		s.put(http.MethodPut, "/v2/os/image/manifests/"+digests[architecture], manifestType, w.Body.Bytes())
		manifests = append(manifests, map[string]any{
			"mediaType": manifestType, "digest": digests[architecture], "size": w.Body.Len(),
			"platform": map[string]any{"os": "linux", "architecture": architecture},
		})
	}
	const indexType = "application/vnd.oci.image.index.v1+json"
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests})
	if err != nil {
		t.Fatal(err)
	}
	s.put(http.MethodPut, "/v2/os/image/manifests/both", indexType, index)
	const credentials = "dXNlcjpwYXNzd29yZA==" // user:password
	s.serve = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Basic "+credentials {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.files.ServeHTTP(w, r)
	}
	for _, secret := range []string{credentials, base64.StdEncoding.EncodeToString([]byte(credentials))} {
		for _, version := range []string{":both", "@" + digests[runtime.GOARCH], ":both@" + digests[runtime.GOARCH]} {
			for _, prefix := range []string{"", "docker://", "oci://"} {
				var hidden redacted
				o := s.options()
				o.Secrets = &hidden
				name := s.host() + "/os/image" + version
				image, err := Resolve(t.Context(), o, prefix+name, secret)
				if err != nil {
					t.Errorf("%s: %v", prefix+name, err)
					continue
				}
				if image.Digest != digests[runtime.GOARCH] || image.Name != name || len(hidden) < 2 {
					t.Errorf("got %s %s, %d secrets, want %s %s", image.Name, image.Digest, len(hidden), name,
						digests[runtime.GOARCH])
				}
			}
		}
	}
	if _, err := Resolve(t.Context(), s.options(), s.host()+"/os/image:both", ""); err == nil ||
		!strings.Contains(err.Error(), "401") {
		t.Errorf("no secret: got %v, want status 401", err)
	}
	wrong := s.host() + "/os/image@" + digestOf([]byte("other"))
	if _, err := Resolve(t.Context(), s.options(), wrong, credentials); err == nil ||
		!strings.Contains(err.Error(), "404") {
		t.Errorf("other digest: got %v, want status 404", err)
	}
	for _, reference := range []string{
		"", "image", "library/image", "http://host.example/image", "host.example", "user:pw@host.example/image",
		"containers-storage:host.example/image", "host.example/image@sha256:1234", "host.example/../image",
		"host.example/Image", "oci://docker://host.example/image",
	} {
		if _, err := Resolve(t.Context(), s.options(), reference, ""); !errors.Is(err, ErrReference) {
			t.Errorf("%q: got %v, want %v", reference, err, ErrReference)
		}
	}
	for _, secret := range []string{"x", "dXNlcg==", "OnBhc3N3b3Jk", "%%%", "dXNlcjo="} {
		_, err := Resolve(t.Context(), s.options(), s.host()+"/os/image:both", secret)
		if !errors.Is(err, ErrReference) || strings.Contains(err.Error(), secret) && len(secret) > 1 {
			t.Errorf("secret %q: got %v, want %v without the secret", secret, err, ErrReference)
		}
	}
}

// Scratch space on a disk is at its end, and zeros after every end.
func TestDiskScratch(t *testing.T) {
	testenv.Root(t)
	const size = 3 << 30
	file := testenv.SparseFile(t, size)
	disk := testenv.Loop(t, file, 512)
	planted := bytes.Repeat([]byte("planted!"), 1<<17)
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{0, size - 1<<20} {
		if _, err := f.WriteAt(planted, at); err != nil {
			t.Fatal(err)
		}
	}
	s := newStore(t)
	reference := s.image(testImage{layers: [][]byte{probeLayer(t), small(t, "marker", "MARKER-OF-THE-IMAGE")}})
	image, err := Resolve(t.Context(), s.options(), reference, "")
	if err != nil {
		t.Fatal(err)
	}
	root := machineWithMemory(t, 300<<20)
	if _, err := Prepare(t.Context(), image, Options{System: root}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("memory only: got %v, want %v", err, ErrNoSpace)
	}
	b, err := Prepare(t.Context(), image, Options{System: root, Disk: disk, KeepImage: true, Log: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	start := size - b.Reserved()
	if b.Reserved() <= 1<<20 || b.Reserved() > 1<<30 {
		t.Errorf("got %d reserved bytes", b.Reserved())
	}
	if got, err := run(t, b, Spec{Args: []string{"probe", "fail"}, Disks: []string{disk}}); err == nil ||
		got != "on fire" {
		t.Errorf("got %s (%v), want the failure of the program", got, err)
	}
	unix.Sync()
	command := fmt.Sprintf("tail -c +%d %s | grep -ac MARKER-OF-THE-IMAGE || true", start, disk)
	if text := testenv.Run(t, "sh", "-c", command); strings.TrimSpace(text) == "0" {
		t.Error("the image is not on the disk")
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkTail(t, disk, start, size, planted)

	// Cancelled while it is filled.
	ctx, cancel := context.WithCancelCause(t.Context())
	given := errors.New("given up")
	_, err = Prepare(ctx, image, Options{
		System: root, Disk: disk, Progress: progressFunc(func(string, int64, int64) { cancel(given) }),
	})
	if !errors.Is(err, given) {
		t.Errorf("got %v, want %v", err, given)
	}
	checkTail(t, disk, start, size, planted)

	// A disk that is too small, and one in use, are not written.
	little := testenv.Loop(t, testenv.SparseFile(t, 1<<30), 512)
	if _, err := Prepare(t.Context(), image, Options{System: root, Disk: little}); !errors.Is(err, ErrNoSpace) ||
		!strings.Contains(err.Error(), little) {
		t.Errorf("small disk: got %v, want %v", err, ErrNoSpace)
	}
	holder, err := os.OpenFile(disk, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := Prepare(t.Context(), image, Options{System: root, Disk: disk}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("disk in use: got %v, want %v", err, unix.EBUSY)
	}
	checkTail(t, disk, start, size, planted)
}

// If memory runs full, the image is downloaded again to a disk, and if that is full, once more with more space.
func TestScratchRunsFull(t *testing.T) {
	testenv.Root(t)
	large := largeLayer(t, 240<<20)
	thin, dense := small(t, "one", "1"), small(t, "one", string(random(1<<20)))
	for name, tt := range map[string]struct {
		disk           int64  // MiB
		first          []byte // layer, which the estimate is made of
		downloads      int
		problem, cause string // in the error
	}{
		"estimated":                    {disk: 3 << 10, first: thin, downloads: 2},
		"first layer compressed worse": {disk: 3 << 10, first: dense, downloads: 3},
		"disk has not more than memory": {
			disk: 1200, first: thin, downloads: 1,
			problem: "it has 1258291200 bytes, want ", cause: "(memory, 74565632 bytes)",
		},
		"disk runs full": {
			disk: 1350, first: thin, downloads: 2,
			problem: "it has 1415577600 bytes, want ", cause: "(end of ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			size := tt.disk << 20
			disk := testenv.Loop(t, testenv.SparseFile(t, size), 512)
			planted := bytes.Repeat([]byte("planted!"), 1<<17)
			fillMiB(t, disk, 0, planted)
			fillMiB(t, disk, size-1<<20, planted)
			s := newStore(t)
			reference := s.image(testImage{layers: [][]byte{tt.first}, large: large})
			image, err := Resolve(t.Context(), s.options(), reference, "")
			if err != nil {
				t.Fatal(err)
			}
			var downloads atomic.Int32
			s.serve = func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, image.remote.Layers[1].Digest.String()) {
					downloads.Add(1)
				}
				s.files.ServeHTTP(w, r)
			}
			b, err := Prepare(t.Context(), image, Options{
				System: machineWithMemory(t, memoryMargin+80<<20), Disk: disk, KeepImage: true, Log: logger(t),
			})
			if got := int(downloads.Load()); got != tt.downloads {
				t.Errorf("got %d downloads, want %d", got, tt.downloads)
			}
			if tt.problem == "" {
				checkLarge(t, b, err, large.size)
			} else if !errors.Is(err, ErrNoSpace) || !errors.Is(err, unix.ENOSPC) ||
				!strings.Contains(err.Error(), disk+": "+tt.problem) || !strings.Contains(err.Error(), tt.cause) {
				t.Errorf("got %v, want %v with %q and %q", err, ErrNoSpace, tt.problem, tt.cause)
			}
			checkTail(t, disk, size-600<<20, size, planted) // more than was reserved
			if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "ironroot-*")); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// A small layer that unpacks to more than there is space is an error, and leaves nothing. The next image is prepared as
// if it had not been there. TestScratchRunsFull has one that needs more than the disk can spare.
func TestPrepareBomb(t *testing.T) {
	testenv.Root(t)
	t.Setenv("TMPDIR", t.TempDir())
	former := diskAttempts
	defer func() { diskAttempts = former }()
	diskAttempts = 1
	const size = 3 << 30
	disk := testenv.Loop(t, testenv.SparseFile(t, size), 512)
	planted := bytes.Repeat([]byte("planted!"), 1<<17)
	fillMiB(t, disk, 0, planted)
	fillMiB(t, disk, size-1<<20, planted)
	s := newStore(t)
	one, large := small(t, "one", "1"), largeLayer(t, 160<<20)
	for name, tt := range map[string]struct {
		memory int64 // MiB
		disk   string
		want   string
	}{
		"memory": {80, "", "(memory, 74565632 bytes)"},
		"disk": {
			1, disk, "gave up after 1 attempts on " + disk + ": not enough space in the scratch space (end of " + disk,
		},
	} {
		image, err := Resolve(t.Context(), s.options(), s.image(testImage{layers: [][]byte{one}, large: large}), "")
		if err != nil {
			t.Fatal(err)
		}
		if packed := image.remote.Size(); packed > 1<<20 {
			t.Errorf("%s: the image has %d bytes, want less than a MiB", name, packed)
		}
		system := machineWithMemory(t, memoryMargin+tt.memory<<20)
		_, err = Prepare(t.Context(), image, Options{System: system, Disk: tt.disk, Log: logger(t)})
		if !errors.Is(err, ErrNoSpace) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %v with %q", name, err, ErrNoSpace, tt.want)
		}
		var f *fault.Error
		if !errors.As(Fault("docker://registry/bomb", err), &f) || f.Type != "ImageDownloadError" {
			t.Errorf("%s: got %v, want an ImageDownloadError", name, f)
		}
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "ironroot-*")); len(left) > 0 {
			t.Errorf("%s: %v are left", name, left)
		}
	}
	checkTail(t, disk, size-300<<20, size, planted) // more than was reserved
	image, err := Resolve(t.Context(), s.options(), s.image(testImage{layers: [][]byte{one}}), "")
	if err != nil {
		t.Fatal(err)
	}
	system := machineWithMemory(t, memoryMargin+80<<20)
	b, err := Prepare(t.Context(), image, Options{System: system, Disk: disk, Log: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if b.Reserved() != 0 {
		t.Errorf("got %d reserved bytes, want the next image in memory", b.Reserved())
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// checkLarge checks that a large image is complete at the end of a disk, and removes it.
func checkLarge(t *testing.T, b *Bundle, err error, size int64) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if b.Reserved() < size || b.Reserved() > 600<<20 {
		t.Errorf("got %d reserved bytes, want %d to %d", b.Reserved(), size, 600<<20)
	}
	name := filepath.Join(b.scratch.dir, rootDir, "large")
	if info, err := os.Stat(name); err != nil || info.Size() != size {
		t.Errorf("got %v (%v), want a file of %d bytes", info, err, size)
	}
	want := []byte(strings.Repeat(largeMarker+"\n", 1<<20/len(largeMarker)))[:1<<20]
	checkMiB(t, name, 0, want)
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNextDemand(t *testing.T) {
	for name, tt := range map[string]struct {
		full fullError
		want int64
		next demand
	}{
		"the rest unpacks alike": {fullError{used: 1000, arrived: 50, total: 100}, 800, demand{1001, 2500}},
		"all has arrived":        {fullError{used: 1000, arrived: 100, total: 100}, 800, demand{1001, 2000}},
		"most is missing":        {fullError{used: 1000, arrived: 1, total: 100}, 800, demand{1001, 4000}},
		"nothing has arrived":    {fullError{used: 0, arrived: 0, total: 1 << 50}, 800, demand{801, 1600}},
		"memory of others":       {fullError{used: 10, arrived: 5, total: 100}, 800, demand{801, 1600}},
		"largest":                {fullError{used: 1 << 50, arrived: 1, total: 1 << 50}, 1, demand{1<<50 + 1, 4 << 50}},
	} {
		if got := tt.full.next(tt.want); got != tt.next {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.next)
		}
	}
}

// The tail of a disk has what is wanted, or what the disk can spare: the root file system gets as much.
func TestTail(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, tt := range []struct {
		size  int64
		d     demand
		files int64 // for which there is space
	}{
		{20 * gib, demand{gib, gib}, gib},
		{20 * gib, demand{gib + 1, 4 * gib}, 4 * gib},
		{20 * gib, demand{gib + 1, 1 << 52}, (19*gib - 66*mib) / 17 * 8},
		{4 * gib, demand{gib + 1, 1 << 52}, (3*gib - 66*mib) / 17 * 8},
		{3 * gib, demand{gib + 1, 1 << 52}, 0},
	} {
		start, length, err := tail("/dev/sda", tt.size, tt.d)
		if tt.files == 0 {
			if !errors.Is(err, ErrNoSpace) {
				t.Errorf("%+v: got %d bytes (%v), want %v", tt, length, err, ErrNoSpace)
			}
			continue
		}
		most := tt.files + tt.files/8 + diskOverhead + 2*mib
		if err != nil || length < most-2*mib || length > most || start%mib != 0 || start+length != tt.size-mib ||
			start < tt.files+gib-mib {
			t.Errorf("%+v: got %d bytes from byte %d on (%v), want about %d", tt, length, start, err, most)
		}
	}
}

// Scratch space on a disk that a process still uses is neither zeroed nor detached, and the disk is not used again.
func TestScratchInUse(t *testing.T) {
	testenv.Root(t)
	const size = 2 << 30
	disk := testenv.Loop(t, testenv.SparseFile(t, size), 512)
	s, err := diskScratch(t.Context(), sysfs.Root{}, disk, demand{})
	if err != nil {
		t.Fatal(err)
	}
	b := &Bundle{image: &Image{Name: "registry.example/image"}, scratch: s}
	file, content := filepath.Join(s.dir, rootDir), bytes.Repeat([]byte("planted!"), 1<<17)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	b.inUse.Store(true)
	checkReserved(t, b, "end of "+disk)
	checkMiB(t, file, 0, content)
	if status, err := unix.IoctlLoopGetStatus64(int(s.loop.Fd())); err != nil || status.Offset != uint64(s.start) {
		t.Errorf("got loop device %+v (%v), want it attached from byte %d", status, err, s.start)
	}
	r := &runner{bundle: b, log: logger(t), spec: Spec{Disks: []string{disk}}}
	for range 2 { // claimed once
		r.claim()
	}
	if _, err := diskScratch(t.Context(), sysfs.Root{}, disk, demand{}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("next scratch space: got %v, want %v", err, unix.EBUSY)
	}
	checkClaimed(t, disk)
	b.inUse.Store(false)
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkMiB(t, disk, s.start, make([]byte, 1<<20))
}

// The number of files in memory is limited, too: the kernel's memory for them does not count as content.
func TestScratchFiles(t *testing.T) {
	testenv.Root(t)
	s, err := memoryScratch(machineWithMemory(t, memoryMargin+9<<20), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.free(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	var stat unix.Statfs_t
	if err := unix.Statfs(s.dir, &stat); err != nil {
		t.Fatal(err)
	}
	if content := int64(stat.Blocks) * stat.Bsize; content != 8<<20 || stat.Files != 1<<10 {
		t.Errorf("got %d bytes and %d files, want %d and %d", content, stat.Files, 8<<20, 1<<10)
	}
	for n := range 2 << 10 {
		err = unix.Mkdir(filepath.Join(s.dir, strconv.Itoa(n)), 0o700)
		if err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v after 2048 directories, want %v", err, unix.ENOSPC)
	}
}

// The scratch space is zeroed on the disk on which it was made, even if the path now leads to another one.
func TestScratchPathReplaced(t *testing.T) {
	testenv.Root(t)
	const size = 2 << 30
	disk, other := testenv.Loop(t, testenv.SparseFile(t, size), 512), testenv.Loop(t, testenv.SparseFile(t, size), 512)
	link := filepath.Join(t.TempDir(), "disk")
	if err := os.Symlink(disk, link); err != nil {
		t.Fatal(err)
	}
	planted := bytes.Repeat([]byte("planted!"), 1<<17)
	for _, path := range []string{disk, other} {
		fillMiB(t, path, 0, planted)
		fillMiB(t, path, size-1<<20, planted)
	}
	s, err := diskScratch(t.Context(), sysfs.Root{}, link, demand{})
	if err != nil {
		t.Fatal(err)
	}
	fillMiB(t, other, s.start, planted)
	fillMiB(t, other, size-2<<20, planted)
	if err := errors.Join(os.Remove(link), os.Symlink(other, link)); err != nil {
		t.Fatal(err)
	}
	if err := s.free(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkTail(t, disk, s.start, size, planted)
	for _, at := range []int64{s.start, size - 2<<20} {
		checkMiB(t, other, at, planted)
	}
}

// A partition in the scratch space is an error, even if the kernel has not read the table yet. The space is zeroed.
func TestScratchOverlap(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "sgdisk")
	const size = 2 << 30
	disk := testenv.Loop(t, testenv.SparseFile(t, size), 512)
	noPartitions := sysfs.Root{Path: t.TempDir()} // of a kernel that has not read the table
	s, err := diskScratch(t.Context(), noPartitions, disk, demand{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.GPT(t, disk, "3: start=2048")
	s.ran = true // as after a program that made the partition
	want := fmt.Sprintf("partition 3 of %s ends at byte", disk)
	if err := s.free(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) ||
		strings.Contains(err.Error(), "\n") { // of another error
		t.Errorf("got %v, want only %q", err, want)
	}
	checkMiB(t, disk, s.start, make([]byte, 1<<20))
}

// A partition of the disk's former content is no error until a program has run: neither after a failed download, nor
// before the next one in larger scratch space.
func TestScratchFormerPartitions(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "sgdisk")
	t.Setenv("TMPDIR", t.TempDir())
	const size = 3 << 30
	file := testenv.SparseFile(t, size)
	testenv.GPT(t, file, "3: start=2048")
	disk := testenv.Loop(t, file, 512)
	s := newStore(t)
	probe, large := probeLayer(t), largeLayer(t, 240<<20)
	prepare := func(ctx context.Context, large *packedLayer, progress Progress) (*Bundle, error) {
		image, err := Resolve(t.Context(), s.options(),
			s.image(testImage{layers: [][]byte{probe}, large: large}), "")
		if err != nil {
			t.Fatal(err)
		}
		return Prepare(ctx, image, Options{
			System: machineWithMemory(t, memoryMargin+1<<20), Disk: disk, Log: logger(t), Progress: progress,
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	given := errors.New("given up")
	_, err := prepare(ctx, large, progressFunc(func(string, int64, int64) { cancel(given) }))
	if !errors.Is(err, given) || strings.Contains(err.Error(), "partition") {
		t.Errorf("got %v, want %v and no partition", err, given)
	}
	b, err := prepare(t.Context(), large, nil) // the second attempt on the disk has enough space
	checkLarge(t, b, err, large.size)

	// After a program has run, the partition is the program's.
	if b, err = prepare(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, b, Spec{Args: []string{"probe", "fail"}, Disks: []string{disk}}); err == nil {
		t.Error("the program did not fail")
	}
	start, want := b.scratch.start, fmt.Sprintf("partition 3 of %s ends at byte", disk)
	if err := b.Close(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	checkMiB(t, disk, start, make([]byte, 1<<20))
}

// fillMiB writes a MiB to a disk.
func fillMiB(t *testing.T, disk string, at int64, content []byte) {
	t.Helper()
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, at); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// checkMiB reads a MiB of a disk.
func checkMiB(t *testing.T, disk string, at int64, want []byte) {
	t.Helper()
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, 1<<20)
	if _, err := f.ReadAt(got, at); err != nil {
		t.Error(err)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s at byte %d: got %q, want %q", disk, at+int64(i), got[i:min(i+64, len(got))],
				want[i:min(i+64, len(got))])
			return
		}
	}
}

// A mount that does not end is given up with the command.
func TestMounterCancelled(t *testing.T) {
	former := program
	defer func() { program = former }()
	program = filepath.Join(t.TempDir(), "mounter")
	started := filepath.Join(t.TempDir(), "started")
	testenv.Run(t, "mkfifo", started)
	script := "#!/bin/sh\necho >" + started + "\nread never <" + started + "\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	given := errors.New("given up")
	result := make(chan error, 1)
	go func() { result <- (&supervisor{runner: &runner{bundle: &Bundle{}}}).runMounter(ctx, mountCall{}, nil) }()
	if _, err := os.ReadFile(started); err != nil { // waits for the script
		t.Fatal(err)
	}
	cancel(given)
	if err := <-result; !errors.Is(err, given) {
		t.Errorf("got %v, want %v", err, given)
	}
}

// checkTail checks that the range from start on is zero, that the end of the disk behind it and the beginning are as
// planted, and that no loop device uses the disk.
func checkTail(t *testing.T, disk string, start, size int64, planted []byte) {
	t.Helper()
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, 1<<20)
	for at := start; at < size; at += 1 << 20 {
		if _, err := f.ReadAt(got, at); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, 1<<20)
		if at == size-1<<20 {
			want = planted
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("the MiB at byte %d differs", at)
		}
	}
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, planted) {
		t.Errorf("the beginning of the disk was changed (%v)", err)
	}
	backing, err := filepath.Glob("/sys/class/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range backing {
		text, _ := os.ReadFile(name) // it may be detached meanwhile
		if strings.TrimSpace(string(text)) == disk {
			t.Errorf("%s uses %s", name, disk)
		}
	}
}

// machineWithMemory is this machine with another amount of memory.
func machineWithMemory(t *testing.T, available int64) sysfs.Root {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sys", "dev"} {
		if err := os.Symlink("/"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("MemAvailable: %d kB\n", available>>10)
	if err := os.WriteFile(filepath.Join(dir, "proc/meminfo"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return sysfs.Root{Path: dir}
}

// redacted collects secrets.
type redacted []string

func (r *redacted) Redact(secret string) { *r = append(*r, secret) }

// lineFunc implements [Output].
type lineFunc func(line string)

func (f lineFunc) Line(line string) { f(line) }

// progressFunc implements [Progress].
type progressFunc func(phase string, done, total int64)

func (f progressFunc) SetPhase(phase string, _ int, done, total int64) { f(phase, done, total) }
