package initramfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/u-root/gobusybox/src/pkg/bb"
	"github.com/u-root/gobusybox/src/pkg/golang"
	"github.com/u-root/mkuimage/cpio"
	"golang.org/x/mod/modfile"

	"ironroot/internal/newfile"
	"ironroot/uinit/boot/layout"
	"ironroot/uinit/kmod"
)

// inlined are the packages in which the compiler inlines calls: the runtime, and the packages that process the bytes
// of an image, with the primitives of TLS and SSH, but not their protocols and certificates, and the hashes of
// passwords. In other packages, inlining makes the compressed program an eighth larger. u-root builds its commands
// without inlining as well.
var inlined = []string{
	"runtime", "internal/runtime/...", "sync/...", "math/...", "bytes", "io", "bufio",
	"crypto/internal/...", "crypto/aes", "crypto/cipher", "crypto/md5", "crypto/sha1", "crypto/sha256", "crypto/sha512",
	"crypto/subtle", "hash/...", "compress/...",
	"golang.org/x/crypto/chacha20/...", "golang.org/x/crypto/internal/...",
	"github.com/go-crypt/x/...", "github.com/klauspost/...", "github.com/ulikunitz/...", "ironroot/storage/image/...",
}

// fipsModule is the version of Go's cryptographic module in the agent: the newest one that Go lists as certified. With
// it, FIPS 140-3 mode is the default of a program, except with a directive //go:debug fips140=off.
const fipsModule = "v1.0.0"

// goBuild builds a static program and returns it. The package is in the module in b.Dir or, if work is the path of a
// go.work file, in that workspace.
func (b *builder) goBuild(ctx context.Context, pkg, work string, flags ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "ironroot-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover does no harm
	out := filepath.Join(dir, "program")
	// The program contains no data of this machine: no paths, time, revision or build ID.
	// No client and no server of the agent uses HTTP/2.
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-tags", "nethttpomithttp2", "-ldflags", "-s -w -buildid=",
		"-gcflags=all=-l",
	}
	for _, pattern := range inlined {
		args = append(args, "-gcflags="+pattern+"=") // the last pattern that matches applies
	}
	args = append(args, flags...)
	if _, err := b.goToolIn(ctx, work, append(args, "-o", out, pkg)...); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// goTool runs the go command for the module in b.Dir.
func (b *builder) goTool(ctx context.Context, args ...string) ([]byte, error) {
	return b.goToolIn(ctx, "off", args...)
}

// goToolIn runs the go command with a workspace, "off" for none.
func (b *builder) goToolIn(ctx context.Context, work string, args ...string) ([]byte, error) {
	env, err := b.goEnvironment()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = b.Dir, &stderr
	cmd.Env = append(append(os.Environ(), env...), "GOWORK="+work, "GOFIPS140="+fipsModule)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s %s: %w\n%s", args[0], args[len(args)-1], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// goEnvironment returns the settings of Go that programs depend on. They replace the settings of the user's
// environment, and select the tool chain that go.mod names.
func (b *builder) goEnvironment() ([]string, error) {
	env := []string{
		"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + b.Arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-buildvcs=false",
		"GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off", "GODEBUG=",
	}
	name := filepath.Join(b.Dir, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	module, err := modfile.ParseLax(name, text, nil)
	if err != nil {
		return nil, err
	}
	if module.Toolchain != nil {
		env = append(env, "GOTOOLCHAIN="+module.Toolchain.Name)
	}
	return env, nil
}

// environment guards the environment of the process.
var environment sync.Mutex

// withEnvironment calls f with environment variables set, for libraries that start programs with the environment of
// the process.
func withEnvironment(variables []string, f func() error) error {
	environment.Lock()
	defer environment.Unlock()
	for _, variable := range variables {
		key, value, _ := strings.Cut(variable, "=")
		before, found := os.LookupEnv(key)
		if err := os.Setenv(key, value); err != nil {
			return err
		}
		defer func() {
			if found {
				_ = os.Setenv(key, before) // the value was valid before
			} else {
				_ = os.Unsetenv(key)
			}
		}()
	}
	return f()
}

// lineEditor is the build tag for gosh's plain line editor. The default editor is five times as large and sends queries
// to the terminal whose answers a serial line can lose.
const lineEditor = "goshliner"

// shell returns u-root's shell and commands as one program, a delta of the agent, and a link for each command. /init
// unpacks the program when a command is started. The program is cached, because building it takes up to a minute. The
// key contains the commands, the versions of all their modules, and the version of the compiler.
func (b *builder) shell(ctx context.Context, agent []byte) (links, deltas []cpio.Record, err error) {
	commands, key, err := b.shellCommands(ctx)
	if err != nil {
		return nil, nil, err
	}
	cached := filepath.Join(b.CacheDir, "shell-"+b.Arch+"-"+key)
	program, err := os.ReadFile(cached)
	if err != nil {
		b.say("building u-root's shell with %d commands, once; this takes a minute", len(commands))
		if program, err = b.buildShell(ctx, commands); err != nil {
			return nil, nil, fmt.Errorf("u-root's shell: %w", err)
		}
		if err := newfile.Write(cached, program); err != nil {
			return nil, nil, err
		}
	}
	delta, err := kmod.PackDelta(agent, program, windowSize)
	if err != nil {
		return nil, nil, fmt.Errorf("compress u-root's shell: %w", err)
	}
	links = []cpio.Record{
		cpio.StaticFile(layout.ShellFile, "#!/"+layout.ShellUnpacker+"\n", 0o755),
		cpio.Symlink(layout.ShellUnpacker, "/init"),
	}
	for _, pkg := range commands {
		links = append(links, cpio.Symlink("bbin/"+filepath.Base(pkg), "bb"))
	}
	links = append(links, cpio.Symlink("bin/sh", "/bbin/gosh"))
	deltas = []cpio.Record{cpio.StaticFile(layout.ShellDelta, string(delta), 0o644)}
	b.countPacked("shell", len(links)+1, int64(len(program)), int64(len(delta)))
	if b.Bill == nil {
		return links, deltas, nil
	}
	versions, err := b.shellModules(ctx, commands, "-tags", lineEditor)
	if err != nil {
		return nil, nil, err
	}
	modules, err := b.programModules(ctx, program, versions)
	b.note(layout.ShellDelta, origin{modules: modules})
	return links, deltas, err
}

// shellCommands returns u-root's packages that tools.go imports, and the key of their program in the cache.
func (b *builder) shellCommands(ctx context.Context) ([]string, string, error) {
	out, err := b.goTool(ctx, "list", "-e", "-tags", "tools", "-f", `{{join .Imports "\n"}}`, "ironroot")
	if err != nil {
		return nil, "", err
	}
	var commands []string
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "github.com/u-root/u-root/cmds/") {
			commands = append(commands, name)
		}
	}
	if len(commands) == 0 {
		return nil, "", fmt.Errorf("tools.go in %s names no command of u-root", b.Dir)
	}
	sort.Strings(commands)
	// The key contains all modules, so that the image is the same with and without a cache.
	versions, err := b.shellModules(ctx, commands)
	if err != nil {
		return nil, "", err
	}
	compiler, err := b.goTool(ctx, "env", "GOVERSION")
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(commands, "\n") + strings.Join(versions, "\n") +
		string(compiler) + lineEditor))
	return commands, hex.EncodeToString(sum[:8]), nil
}

// shellModules returns the modules of u-root's commands, each as PATH VERSION, in order.
func (b *builder) shellModules(ctx context.Context, commands []string, flags ...string) ([]string, error) {
	args := append([]string{"list", "-deps"}, flags...)
	args = append(args,
		"-f", "{{with .Module}}{{.Path}} {{.Version}}{{with .Replace}} {{.Path}} {{.Version}}{{end}}{{end}}")
	out, err := b.goTool(ctx, append(args, commands...)...)
	if err != nil {
		return nil, err
	}
	versions := strings.Split(string(out), "\n")
	sort.Strings(versions)
	return slices.Compact(versions), nil
}

func (b *builder) buildShell(ctx context.Context, commands []string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "ironroot-shell-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover does no harm
	root, err := b.goTool(ctx, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	variables, err := b.goEnvironment()
	if err != nil {
		return nil, err
	}
	env := golang.Default(golang.DisableCGO(), golang.WithGOOS("linux"), golang.WithGOARCH(b.Arch),
		golang.WithWorkingDir(b.Dir), golang.WithBuildTag(lineEditor),
		golang.WithGOROOT(strings.TrimSpace(string(root))))
	out := filepath.Join(dir, "bb")
	err = withEnvironment(variables, func() error {
		return bb.BuildBusybox(quiet{}, &bb.Opts{
			Env:          env,
			GenSrcDir:    filepath.Join(dir, "source"),
			CommandPaths: commands,
			BinaryPath:   out,
			GoBuildOpts:  &golang.BuildOpts{},
		})
	})
	if err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// quiet discards the log of the busybox builder, which also returns an error.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
