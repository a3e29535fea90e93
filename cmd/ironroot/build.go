package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"ironroot/agent"
	"ironroot/initramfs/debian"
	"ironroot/release"
	"ironroot/release/bill"
	"ironroot/release/signature"
)

// archiveFlags are the flags of commands that fetch Debian packages.
type archiveFlags struct {
	Suite    string `default:"${suite}" help:"Debian release that packages are taken from (default: ${suite}, the current stable one)."`
	Mirror   string `default:"${mirror}" placeholder:"URL" help:"Debian archive: http, https or file (default: ${mirror})."`
	Security string `name:"security-mirror" placeholder:"URL" help:"Archive of security updates, or none (default: --mirror with debian-security in place of debian)."`
	Keyring  string `default:"${keyring}" placeholder:"FILE" help:"OpenPGP keys that sign the archive's indexes (default: ${keyring})."`
	Locked   bool   `help:"Fail if a package is not available in the version of the lock file, instead of taking the newest one."`
	Offline  bool   `help:"Take packages from the cache only."`
}

func (f archiveFlags) options() debian.Options {
	return debian.Options{
		Suite: f.Suite, Mirror: f.Mirror, Security: f.Security, Keyring: f.Keyring, Locked: f.Locked,
		Offline: f.Offline,
	}
}

// signFlags are the flags of commands that sign what they build.
type signFlags struct {
	SignKey      string `placeholder:"FILE" help:"Secret key of minisign that signs the results."`
	SignPassword string `placeholder:"FILE" help:"File whose first line is the password of --sign-key. Without it the terminal asks for the password."`
}

// signer returns a function that signs artefacts. It reads the key at once, so that a wrong password is noticed before
// a long build. Without a key the function does nothing.
func (f signFlags) signer() (func(artefacts ...string) error, error) {
	if f.SignKey == "" {
		if f.SignPassword != "" {
			return nil, errors.New("--sign-password without --sign-key")
		}
		return func(...string) error { return nil }, nil
	}
	signer, err := signature.LoadSigner(f.SignKey, f.password)
	if err != nil {
		return nil, err
	}
	return func(artefacts ...string) error { return release.Sign(signer, artefacts) }, nil
}

// buildAndSign builds an image, writes its bill of materials and its provenance, and signs it. SIGINT and SIGTERM end
// the context of the build.
func (f signFlags) buildAndSign(build func(ctx context.Context) (bill.Image, error)) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sign, err := f.signer()
	if err != nil {
		return err
	}
	source, err := findSource(ctx)
	if err != nil {
		return err
	}
	image, err := build(ctx)
	if err != nil {
		return err
	}
	if err := billOf(source).WriteImage(ctx, image); err != nil {
		return err
	}
	return sign(image.Path)
}

// password returns the password of the secret key.
func (f signFlags) password() (string, error) {
	if f.SignPassword != "" {
		return signature.ReadPassword(f.SignPassword)
	}
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("%w; --sign-password names a file with the password", err)
	}
	defer terminal.Close() //nolint:errcheck // nothing is buffered
	if _, err := fmt.Fprintf(terminal, "Password of %s: ", f.SignKey); err != nil {
		return "", err
	}
	password, err := term.ReadPassword(int(terminal.Fd()))
	_, _ = fmt.Fprintln(terminal) // the line break was not echoed
	return string(password), err
}

// findSource describes the source in the current directory.
func findSource(ctx context.Context) (release.Source, error) {
	source, err := release.FindSource(ctx, ".")
	if source.Err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "warning:", source.Err)
	}
	return source, err
}

// billOf returns what a build from a source says about itself.
func billOf(source release.Source) *bill.Build {
	return &bill.Build{
		Version: agent.Version, Commit: source.Commit, Modified: source.Modified, Created: source.Date,
	}
}
