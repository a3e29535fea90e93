//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"ironroot/agent/config"
	"ironroot/internal/bounded"
	"ironroot/internal/password"
	"ironroot/uinit/account"
	"ironroot/uinit/boot/layout"
	"ironroot/uinit/login"
	"ironroot/uinit/sshd"
)

// operators returns the hash of the password and the public keys with which an operator may log in as root: of the
// parameters rootpwd and sshkey of the kernel command line, and of the image below root. An invalid value allows
// nothing and is an error without its text.
func operators(params config.Params, root string) (hash password.Hash, keys []account.Key, err error) {
	var failed []error
	if text := params["rootpwd"]; text != "" {
		if hash, err = password.Parse(text); err != nil {
			failed = append(failed, fmt.Errorf("kernel parameter rootpwd: %w", err))
		}
	}
	if text := params["sshkey"]; text != "" {
		key, err := account.ParseKey(text)
		if err != nil {
			failed = append(failed, fmt.Errorf("kernel parameter sshkey: %w", err))
		} else {
			keys = append(keys, key)
		}
	}
	embedded, err := embeddedKeys(filepath.Join(root, layout.KeysFile))
	if err != nil {
		failed = append(failed, err)
	}
	return hash, append(keys, embedded...), errors.Join(failed...)
}

// embeddedKeys returns the keys of a file, none if it does not exist.
func embeddedKeys(name string) ([]account.Key, error) {
	text, err := bounded.ReadFile(name, account.MaxKeysFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	keys, err := account.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return keys, nil
}

// logins are the SSH server and the prompts that are running.
type logins struct {
	mu    sync.Mutex
	ended bool
	stops []func() error
}

// start calls f, unless the logins were ended. f returns a function that stops what it has started.
func (l *logins) start(f func() (stop func() error, err error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	stop, err := f()
	if err == nil {
		l.stops = append(l.stops, stop)
	}
	return err
}

// end ends all logins forever.
func (l *logins) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var failed []error
	for _, stop := range l.stops {
		failed = append(failed, stop())
	}
	l.ended, l.stops = true, nil
	return errors.Join(failed...)
}

// EndLogins implements [agent.Logins].
func (b *boot) EndLogins() {
	if err := b.logins.end(); err != nil {
		b.log.Error("logins not ended", "err", err)
	}
}

// allowOperators lets operators log in, if the kernel command line or the image allows it: by SSH, and with a password
// also on the consoles. settled is closed when the drivers of consoles are loaded.
func (b *boot) allowOperators(ctx context.Context, settled <-chan struct{}) {
	hash, keys, err := operators(b.params, "/")
	if err != nil {
		b.log.Error("operators cannot log in", "err", err)
	}
	if hash.IsZero() && len(keys) == 0 {
		return
	}
	shell, err := findShell("/")
	if err != nil {
		b.log.Error("operators cannot log in", "err", err)
		return
	}
	accounts := account.List{account.Root(hash, keys, shell)}
	if err := b.serveSSH(ctx, accounts); err != nil {
		b.log.Error("operators cannot log in by SSH", "err", err)
	}
	if !accounts.HasPasswords() {
		return
	}
	if err := b.prompt(ctx, accounts, settled); err != nil {
		b.log.Error("operators cannot log in on the consoles", "err", err)
	}
}

// serveSSH starts the SSH server, and shows its host keys.
func (b *boot) serveSSH(ctx context.Context, accounts account.List) error {
	return b.logins.start(func() (func() error, error) {
		server, err := sshd.Start(ctx, sshd.Options{Accounts: accounts, Log: b.log})
		if err != nil {
			return nil, err
		}
		b.hostKeys.Store(new(server.Fingerprints()))
		b.board.Load().HostKeys(server.Fingerprints())
		return server.Stop, nil
	})
}

// prompt shows login prompts on all consoles, except one with a shell, once the drivers of consoles are loaded.
func (b *boot) prompt(ctx context.Context, accounts account.List, settled <-chan struct{}) error {
	select {
	case <-settled:
	case <-ctx.Done():
		return nil
	}
	b.console.Retry()
	b.console.Plain() // the screen and a prompt would write over each other
	terminals := b.console.Paths()
	if shell := b.shellTerminal(); shell != "" {
		terminals = slices.DeleteFunc(terminals, func(path string) bool { return path == shell })
	}
	if len(terminals) == 0 {
		return nil
	}
	return b.logins.start(func() (func() error, error) {
		prompts, err := login.Start(ctx, login.Options{Terminals: terminals, Accounts: accounts, Log: b.log})
		if err != nil {
			return nil, err
		}
		return prompts.Stop, nil
	})
}
