package kmod

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
)

// kernel stands for init_module(2): it notes what it is given. An image is the name of its module.
type kernel struct {
	mu     sync.Mutex
	loaded []string
	params map[string]string
	fail   map[string]error
	hook   func(name string)
	files  []string // the modules that were loaded before a file, its path and its parameters
}

func (k *kernel) insertFile(path, params string) error {
	k.files = append(append(k.files, k.loaded...), path, params)
	return nil
}

func (k *kernel) insert(image []byte, params string) error {
	name := string(image)
	if k.hook != nil {
		k.hook(name)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.fail[name]; err != nil {
		return err
	}
	k.loaded = append(k.loaded, name)
	if params != "" {
		k.params[name] = params
	}
	return nil
}

// tree makes a dir of modules and returns a loader of it.
func tree(t *testing.T, k *kernel, cmdline string, modules ...*Module) *Loader {
	t.Helper()
	dir := t.TempDir()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), encoder.EncodeAll(data, nil), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range modules {
		m.Size = int64(len(m.Name))
		write(m.Name+Suffix, []byte(m.Name))
	}
	var text bytes.Buffer
	if err := Write(&text, modules); err != nil {
		t.Fatal(err)
	}
	write(IndexFile, text.Bytes())
	k.params = map[string]string{}
	l, err := Open(Options{
		Dir: dir, Params: ParseParams(cmdline), Log: slog.New(slog.DiscardHandler), kernel: k,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLoadOrder(t *testing.T) {
	k := &kernel{}
	l := tree(t, k, "",
		&Module{
			Name: "vfat", Depends: []string{"fat"}, Pre: []string{"nls", "absent"}, Post: []string{"after"},
			Aliases: []string{"fs-vfat"},
		},
		&Module{Name: "fat", Depends: []string{"builtin_one"}}, &Module{Name: "nls"}, &Module{Name: "after"},
		&Module{Name: "other"},
	)
	if err := l.Load(context.Background(), "fs-vfat"); err != nil {
		t.Fatal(err)
	}
	if err := l.Load(context.Background(), "vfat"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"nls", "fat", "vfat", "after"}, k.loaded); diff != "" {
		t.Error(diff)
	}
	if err := l.Load(context.Background(), "fs-nothing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unknown name: got %v, want %v", err, os.ErrNotExist)
	}
}

func TestLoadFailures(t *testing.T) {
	k := &kernel{fail: map[string]error{"broken": unix.EINVAL, "there": unix.EEXIST}}
	l := tree(t, k, "modprobe.blacklist=bad,worse",
		&Module{Name: "needs_broken", Depends: []string{"broken"}}, &Module{Name: "broken"},
		&Module{Name: "needs_there", Depends: []string{"there"}}, &Module{Name: "there"},
		&Module{Name: "bad"}, &Module{Name: "needs_bad", Depends: []string{"bad"}},
		&Module{Name: "left", Pre: []string{"right"}}, &Module{Name: "right", Depends: []string{"left"}},
	)
	for name, wrong := range map[string]bool{
		"needs_broken": true, "needs_there": false, "bad": true, "needs_bad": true, "left": false,
	} {
		if err := l.Load(context.Background(), name); (err != nil) != wrong {
			t.Errorf("%s: got %v, want an error: %v", name, err, wrong)
		}
	}
	slices.Sort(k.loaded)
	if diff := cmp.Diff([]string{"left", "needs_there", "right"}, k.loaded); diff != "" {
		t.Error(diff)
	}
}

func TestParams(t *testing.T) {
	k := &kernel{}
	l := tree(t, k, `quiet e1000e.IntMode=1 usb-storage.quirks="a b" e1000e.debug BOOTIF=01-02 ip=1.2.3.4 root=a.b`,
		&Module{Name: "e1000e"}, &Module{Name: "usb_storage"})
	for _, name := range []string{"e1000e", "usb-storage"} {
		if err := l.Load(context.Background(), name); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"e1000e": "IntMode=1 debug", "usb_storage": `quirks="a b"`}
	if diff := cmp.Diff(want, k.params); diff != "" {
		t.Error(diff)
	}
}

func TestConcurrentLoadsInsertOnce(t *testing.T) {
	k := &kernel{}
	l := tree(t, k, "", &Module{Name: "a", Depends: []string{"c"}}, &Module{Name: "b", Depends: []string{"c"}},
		&Module{Name: "c"})
	var wg sync.WaitGroup
	for range 20 {
		for _, name := range []string{"a", "b"} {
			wg.Go(func() {
				if err := l.Load(context.Background(), name); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	slices.Sort(k.loaded)
	if diff := cmp.Diff([]string{"a", "b", "c"}, k.loaded); diff != "" {
		t.Error(diff)
	}
}

// machine makes a sysfs with devices of the given modaliases.
func machine(t *testing.T, aliases ...string) string {
	t.Helper()
	sys := t.TempDir()
	if err := os.Mkdir(filepath.Join(sys, "devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, alias := range aliases {
		dir := filepath.Join(sys, "devices", "pci0", strings.Repeat("d", i+1))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "modalias"), []byte(alias+"\n"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	return sys
}

func TestColdplugLoadsNetworkFirst(t *testing.T) {
	k := &kernel{}
	other := make(chan struct{})
	k.hook = func(name string) { // the driver of the network card takes its time: nobody waits for its end
		if name == "nic" {
			<-other
		}
		if name == "disk" {
			close(other)
		}
	}
	l := tree(t, k, "",
		&Module{Name: "disk", Dir: "drivers/scsi", Aliases: []string{"pci:disk*"}},
		&Module{Name: "nic", Dir: "drivers/net/ethernet", Aliases: []string{"pci:nic*"}},
		&Module{Name: "none", Dir: "drivers/net", Aliases: []string{"pci:none*"}},
	)
	c := NewColdplug(l, machine(t, "pci:disk1", "pci:nic1", "pci:nic2", "acpi:x"), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-c.Settled():
	case <-time.After(time.Minute):
		t.Fatal("not settled: the disk's driver waits for the network card's")
	}
	slices.Sort(k.loaded)
	if diff := cmp.Diff([]string{"disk", "nic"}, k.loaded); diff != "" {
		t.Error(diff)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// Virtio and Hyper-V show network adapters on buses of their own. They are found without listing all devices.
func TestColdplugListsBusesOfNetworkAdapters(t *testing.T) {
	for _, bus := range []string{"pci", "virtio", "vmbus"} {
		k := &kernel{}
		l := tree(t, k, "", &Module{Name: "nic", Dir: "drivers/net", Aliases: []string{bus + ":nic"}})
		sys := machine(t)
		dir := filepath.Join(sys, "bus", bus, "devices", "0")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "modalias"), []byte(bus+":nic\n"), 0o444); err != nil {
			t.Fatal(err)
		}
		c := NewColdplug(l, sys, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		<-c.Settled()
		if !slices.Equal(k.loaded, []string{"nic"}) {
			t.Errorf("%s: got %v, want nic", bus, k.loaded)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", bus, err, context.Canceled)
		}
	}
}

// A storage adapter's driver waits for the driver of a network adapter that was found before, for at most networkLead.
func TestColdplugLoadsEarlierNetworkFirst(t *testing.T) {
	for _, took := range []time.Duration{networkLead / 5, 2 * networkLead} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var mu sync.Mutex
			at := map[string]time.Duration{}
			k := &kernel{hook: func(name string) {
				mu.Lock()
				at[name] = time.Since(start)
				mu.Unlock()
				if name == "library" {
					time.Sleep(took)
				}
			}}
			l := tree(t, k, "",
				&Module{Name: "disk", Dir: "drivers/scsi", Aliases: []string{"pci:disk"}},
				&Module{Name: "library", Dir: "net/core"},
				&Module{Name: "nic", Dir: "drivers/net", Depends: []string{"library"}, Aliases: []string{"virtio:nic"}},
			)
			c := NewColdplug(l, t.TempDir(), slog.New(slog.DiscardHandler))
			c.ask(t.Context(), []string{"virtio:nic"})
			c.ask(t.Context(), []string{"pci:disk"})
			time.Sleep(10 * networkLead)
			synctest.Wait()
			want := map[string]time.Duration{"library": 0, "nic": took, "disk": min(took, networkLead)}
			if diff := cmp.Diff(want, at); diff != "" {
				t.Errorf("network adapter's driver took %v: %s", took, diff)
			}
		})
	}
}

// Each dependency of a network adapter's driver that was loaded is progress, for which other modules wait. A driver
// that is still not loaded after maxNetworkLead is not waited for.
func TestColdplugWaitsForDependenciesOfNetwork(t *testing.T) {
	const step = networkLead * 4 / 5
	for libraries, want := range map[int]time.Duration{2: 2 * step, 3: 3 * step, 4: maxNetworkLead} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			loaded := make(chan time.Duration, 1)
			k := &kernel{hook: func(name string) {
				if name == "disk" {
					loaded <- time.Since(start)
				} else {
					time.Sleep(step)
				}
			}}
			nic := &Module{Name: "nic", Dir: "drivers/net", Aliases: []string{"virtio:nic"}}
			modules := []*Module{{Name: "disk", Dir: "drivers/scsi", Aliases: []string{"pci:disk"}}, nic}
			for i := range libraries - 1 {
				name := "library" + strconv.Itoa(i)
				modules = append(modules, &Module{Name: name, Dir: "net/core"})
				nic.Depends = append(nic.Depends, name)
			}
			c := NewColdplug(tree(t, k, "", modules...), t.TempDir(), slog.New(slog.DiscardHandler))
			c.ask(t.Context(), []string{"virtio:nic", "pci:disk"})
			if got := <-loaded; got != want {
				t.Errorf("%d modules: got the disk's module after %v, want it after %v", libraries, got, want)
			}
			time.Sleep(time.Minute) // all timers end
			synctest.Wait()
		})
	}
}

// Modules of other devices wait while the agent calls Postpone, until it calls Resume, and never for long.
func TestColdplugPostpones(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name      string
		network   string          // alias
		postponed []time.Duration // calls of Postpone
		resumed   time.Duration   // call of Resume; 0 = none
		want      time.Duration   // the disk's module
	}{
		{name: "never", network: "virtio:nic"},
		{
			name: "until resumed", network: "virtio:nic", postponed: []time.Duration{0},
			resumed: 300 * ms, want: 300 * ms,
		},
		{name: "without progress", network: "virtio:nic", postponed: []time.Duration{0}, want: networkLead},
		{name: "progress", network: "virtio:nic", postponed: []time.Duration{0, 700 * ms}, want: 700*ms + networkLead},
		{
			name: "at most", network: "virtio:nic", want: maxNetworkLead,
			postponed: []time.Duration{0, 900 * ms, 1800 * ms, 2700 * ms},
		},
		{
			name: "after progress and resumed", network: "virtio:nic", postponed: []time.Duration{0, 900 * ms},
			resumed: 1500 * ms, want: 1500 * ms,
		},
		{name: "no network adapter", network: "virtio:other", postponed: []time.Duration{0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			loaded := make(chan time.Duration, 1)
			k := &kernel{hook: func(name string) {
				if name == "disk" {
					loaded <- time.Since(start)
				}
			}}
			l := tree(t, k, "",
				&Module{Name: "disk", Dir: "drivers/scsi", Aliases: []string{"pci:disk"}},
				&Module{Name: "nic", Dir: "drivers/net", Aliases: []string{"virtio:nic"}},
			)
			plug := NewColdplug(l, t.TempDir(), slog.New(slog.DiscardHandler))
			for _, at := range c.postponed {
				if at == 0 {
					plug.Postpone()
				} else {
					time.AfterFunc(at, plug.Postpone)
				}
			}
			if c.resumed != 0 {
				time.AfterFunc(c.resumed, plug.Resume)
			}
			plug.ask(t.Context(), []string{c.network, "pci:disk"})
			if got := <-loaded; got != c.want {
				t.Errorf("%s: got the disk's module after %v, want it after %v", c.name, got, c.want)
			}
			time.Sleep(time.Minute) // all timers end
			synctest.Wait()
		})
	}
}

// A device that appears later does not wait any more, whether Postpone is called or not.
func TestColdplugPostponesAtTheStartOnly(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			loaded := make(chan time.Time, 1)
			k := &kernel{hook: func(name string) {
				if name == "disk" {
					loaded <- time.Now()
				}
			}}
			l := tree(t, k, "",
				&Module{Name: "disk", Dir: "drivers/scsi", Aliases: []string{"pci:disk"}},
				&Module{Name: "nic", Dir: "drivers/net", Aliases: []string{"virtio:nic"}},
			)
			c := NewColdplug(l, t.TempDir(), slog.New(slog.DiscardHandler))
			c.ask(t.Context(), []string{"virtio:nic"})
			c.Postpone()
			if resumed {
				c.Resume()
			} else {
				time.Sleep(maxNetworkLead)
			}
			c.Postpone()
			start := time.Now()
			c.ask(t.Context(), []string{"pci:disk"})
			if got := (<-loaded).Sub(start); got != 0 {
				t.Errorf("resumed %v: got the disk's module after %v, want it at once", resumed, got)
			}
			synctest.Wait()
		})
	}
}

// The bonding module makes no bond by itself, unless the command line wants one.
func TestDefaultParams(t *testing.T) {
	for cmdline, want := range map[string]string{
		"quiet": "max_bonds=0", "bonding.max_bonds=2": "max_bonds=0 max_bonds=2",
	} {
		if got := ParseParams(cmdline).Of("bonding"); got != want {
			t.Errorf("%q: got %q, want %q", cmdline, got, want)
		}
	}
	if got := ParseParams("bonding.a=1 -- bonding.b=2").Of("bonding"); strings.Contains(got, "b=2") {
		t.Errorf("behind --: got %q, want no parameter", got)
	}
	if got := ParseParams("virtio_net.napi_tx=0").Of("virtio_net"); got != "napi_tx=0" {
		t.Errorf("another module: got %q", got)
	}
}

// libata shows host protected areas of disks and passes TRUSTED RECEIVE, unless the command line says otherwise: of two
// values the kernel uses the last one.
func TestLibataDefaults(t *testing.T) {
	for cmdline, want := range map[string]string{
		"quiet":                               "ignore_hpa=1 allow_tpm=1",
		"libata.ignore_hpa=0":                 "ignore_hpa=1 allow_tpm=1 ignore_hpa=0",
		"libata.force=noncq libata.allow_tpm": "ignore_hpa=1 allow_tpm=1 force=noncq allow_tpm",
	} {
		k := &kernel{}
		l := tree(t, k, cmdline, &Module{Name: "ahci", Depends: []string{"libata"}}, &Module{Name: "libata"})
		if err := l.Load(t.Context(), "ahci"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"libata": want}, k.params); diff != "" {
			t.Errorf("%q: parameters (-want +got):\n%s", cmdline, diff)
		}
	}
}

// If loading a module panics, all callers that wait for it get an error.
func TestLoadContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	k := &kernel{hook: func(name string) {
		if name == "broken" {
			panic("oops")
		}
	}}
	l := tree(t, k, "", &Module{Name: "broken"}, &Module{Name: "needs_broken", Depends: []string{"broken"}},
		&Module{Name: "good"})
	for _, name := range []string{"broken", "needs_broken", "broken"} {
		var caught *goroutine.PanicError
		if err := l.Load(t.Context(), name); !errors.As(err, &caught) {
			t.Errorf("%s: got %v, want the panic", name, err)
		}
	}
	if err := l.Load(t.Context(), "good"); err != nil {
		t.Error(err)
	}
}

// A module that is stored with xz is passed to the kernel as a file, after its dependencies.
func TestLoadFile(t *testing.T) {
	k := &kernel{}
	l := tree(t, k, "upper.debug=1", &Module{Name: "lower"}, &Module{Name: "upper", Depends: []string{"lower"}})
	file := filepath.Join(l.o.Dir, "upper"+SuffixXZ)
	if err := os.Rename(filepath.Join(l.o.Dir, "upper"+Suffix), file); err != nil {
		t.Fatal(err)
	}
	if err := l.Load(context.Background(), "upper"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"lower", file, "debug=1"}, k.files); diff != "" {
		t.Error(diff)
	}
}
