package kmod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// Suffixes of stored modules' file names.
const (
	Suffix   = ".ko.zst" // unpacked by this package
	SuffixXZ = ".ko.xz"  // unpacked by the kernel
)

// IndexFile is the name of the index in the directory of the modules.
const IndexFile = "index.zst"

// Dir returns the directory of the modules of a kernel release.
func Dir(release string) string { return "/lib/modules/" + release }

// Options are the options of a Loader.
type Options struct {
	Dir    string // directory of the index and the modules
	Params Params
	Log    *slog.Logger
	// Firmware is the directory of the firmware; "" = FirmwareDir.
	Firmware string

	kernel inserter // nil: the machine's
}

// inserter loads modules into the kernel.
type inserter interface {
	// insert loads an unpacked module.
	insert(image []byte, params string) error
	// insertFile loads a module compressed with xz.
	insertFile(path, params string) error
}

// hostKernel loads modules by init_module(2), and by finit_module(2) with MODULE_INIT_COMPRESSED_FILE.
type hostKernel struct{}

// Loader loads modules, each once, with their dependencies. It is safe for concurrent use.
type Loader struct {
	o       Options
	index   *Index
	decoder *zstd.Decoder
	mu      sync.Mutex
	loads   map[string]*load
}

// load is a module's only load.
type load struct {
	done chan struct{} // closed when err is set
	err  error
}

// companions are modules that nothing requests, but that another module needs to be useful.
var companions = map[string][]string{
	"ipmi_si":   {"ipmi_devintf"},
	"ipmi_ssif": {"ipmi_devintf"},
	"sd_mod":    {"sg"},
}

// defaults are module parameters that precede the kernel command line's.
var defaults = map[string]string{
	"bonding": "max_bonds=0", // else a bond comes with it that nobody asked for
	// Else an erase leaves what a tenant hid in a host protected area, and cannot ask each drive whether it is locked.
	"libata": "ignore_hpa=1 allow_tpm=1",
}

// Open reads the index in a directory of modules. Without an index, the loader has no modules.
func Open(o Options) (*Loader, error) {
	if o.Firmware == "" {
		o.Firmware = FirmwareDir
	}
	if o.kernel == nil {
		o.kernel = hostKernel{}
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxModuleSize))
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	l := &Loader{o: o, decoder: decoder, loads: map[string]*load{}, index: NewIndex(nil)}
	if l.index, err = l.readIndex(IndexFile); err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	return l, nil
}

// readIndex reads an index in the directory of the modules. A missing index is empty.
func (l *Loader) readIndex(name string) (*Index, error) {
	if l.decoder == nil {
		return NewIndex(nil), nil
	}
	packed, err := os.ReadFile(filepath.Join(l.o.Dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return NewIndex(nil), nil
	}
	if err != nil {
		return nil, err
	}
	text, err := l.decoder.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	index, err := Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return index, nil
}

// None returns a loader without modules.
func None(log *slog.Logger) *Loader {
	return &Loader{o: Options{Log: log}, index: NewIndex(nil), loads: map[string]*load{}}
}

// Load loads the modules that match a name or an alias. An unknown name is an error.
func (l *Loader) Load(ctx context.Context, alias string) error {
	found := l.index.Match(alias)
	if len(found) == 0 {
		return fmt.Errorf("module %s: %w", alias, os.ErrNotExist)
	}
	var errs []error
	for _, m := range found {
		errs = append(errs, l.LoadModule(ctx, m))
	}
	return errors.Join(errs...)
}

// LoadModule loads a module after its dependencies, and then its companions. Later calls wait for the first call and
// return its result.
func (l *Loader) LoadModule(ctx context.Context, m *Module) error {
	if err := l.insert(ctx, m, nil); err != nil {
		return err
	}
	for _, name := range slices.Concat(m.Post, companions[m.Name]) {
		if next := l.index.Module(name); next != nil {
			if err := l.insert(ctx, next, nil); err != nil {
				l.o.Log.Debug("module not loaded", "module", name, "err", err)
			}
		}
	}
	return nil
}

// insert loads a module after its dependencies. path contains the modules that wait for it, to detect cycles.
func (l *Loader) insert(ctx context.Context, m *Module, path []string) error {
	if slices.Contains(path, m.Name) {
		return nil
	}
	path = append(slices.Clone(path), m.Name)
	for _, name := range m.Pre {
		if before := l.index.Module(name); before != nil {
			if err := l.insert(ctx, before, path); err != nil {
				l.o.Log.Debug("module not loaded", "module", name, "err", err)
			}
		}
	}
	for _, name := range m.Depends {
		// A dependency that is not in the index is built into the kernel; otherwise the kernel names the missing
		// symbol.
		if before := l.index.Module(name); before != nil {
			if err := l.insert(ctx, before, path); err != nil {
				return fmt.Errorf("module %s needs %w", m.Name, err)
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	one, first := l.load(m.Name)
	if first {
		one.err = goroutine.Catch(func() error { return l.insertOne(m) })
		close(one.done)
	}
	<-one.done
	return one.err
}

// load returns the load of a module, and whether this is the first call for it.
func (l *Loader) load(name string) (one *load, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one = l.loads[name]
	if one == nil {
		one, first = &load{done: make(chan struct{})}, true
		l.loads[name] = one
	}
	return one, first
}

func (l *Loader) insertOne(m *Module) error {
	if l.o.Params.Blocked(m.Name) {
		return fmt.Errorf("module %s: blocked by a kernel parameter", m.Name)
	}
	start := time.Now()
	insert, err := l.prepare(m)
	if err != nil {
		return fmt.Errorf("module %s: %w", m.Name, err)
	}
	for _, d := range m.Deltas {
		if err := l.restore(d); err != nil { // the driver can do without, or reports it
			l.o.Log.Warn("firmware not restored", "module", m.Name, "err", err)
		}
	}
	unpacked := time.Now()
	err = insert(l.o.Params.Of(m.Name))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("module %s: %w", m.Name, err)
	}
	l.o.Log.Debug("module loaded", "module", m.Name, "unpack", unpacked.Sub(start).Round(time.Millisecond),
		"insert", time.Since(unpacked).Round(time.Millisecond))
	return nil
}

// prepare returns a function that loads the stored module into the kernel.
func (l *Loader) prepare(m *Module) (func(params string) error, error) {
	file := filepath.Join(l.o.Dir, m.Name+SuffixXZ)
	if _, err := os.Stat(file); err == nil {
		return func(params string) error { return l.o.kernel.insertFile(file, params) }, nil
	}
	packed, err := os.ReadFile(filepath.Join(l.o.Dir, m.Name+Suffix))
	if err != nil {
		return nil, err
	}
	image, err := l.decoder.DecodeAll(packed, make([]byte, 0, m.Size))
	if err != nil {
		return nil, err
	}
	return func(params string) error { return l.o.kernel.insert(image, params) }, nil
}

// Params are the kernel parameters of modules, as modprobe reads them: MODULE.NAME=VALUE and
// modprobe.blacklist=MODULE,MODULE.
type Params struct {
	options map[string][]string
	blocked map[string]bool
}

// KernelWords splits a kernel command line into the words that the kernel reads: those before "--". Words that follow
// are for init. A value in double quotes can contain spaces.
func KernelWords(cmdline string) []string {
	words := splitQuoted(cmdline)
	if end := slices.Index(words, "--"); end >= 0 {
		return words[:end]
	}
	return words
}

// ParseParams parses them from the words that the kernel reads.
func ParseParams(cmdline string) Params {
	p := Params{options: map[string][]string{}, blocked: map[string]bool{}}
	for _, word := range KernelWords(cmdline) {
		key, value, _ := strings.Cut(word, "=")
		if key == "modprobe.blacklist" || key == "module_blacklist" {
			for name := range strings.SplitSeq(value, ",") {
				p.blocked[Normalize(name)] = true
			}
			continue
		}
		module, option, found := strings.Cut(word, ".")
		if found && module != "" && strings.Contains(key, ".") {
			module = Normalize(module)
			p.options[module] = append(p.options[module], option)
		}
	}
	return p
}

// Of returns the parameters of a module in the form of init_module(2).
func (p Params) Of(name string) string {
	return strings.TrimSpace(defaults[name] + " " + strings.Join(p.options[name], " "))
}

// Blocked reports whether a module must not be loaded.
func (p Params) Blocked(name string) bool { return p.blocked[name] }

func splitQuoted(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t' || r == '\n')
	})
}
