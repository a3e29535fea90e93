// Package debootstrap installs packages of Debian into directories and builds ramdisks from them, with mmdebstrap.
package debootstrap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Sid is Debian's release that never becomes stable. Its packages change daily.
const Sid = "sid"

// Install installs packages of a release of Debian into a directory, without documentation. options are further
// arguments of mmdebstrap.
func Install(
	ctx context.Context, progress io.Writer, suite, dir string, packages []string, options ...string,
) error {
	args := append([]string{
		"--variant=minbase", `--aptopt=APT::Install-Recommends "false"`,
		"--dpkgopt=force-unsafe-io", // a directory that is not complete is not used
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--include=" + strings.Join(packages, ","),
	}, options...)
	if suite == Sid {
		// An expired index of sid is accepted, because mirrors can be older than it allows. Its signature is verified.
		args = append(args, `--aptopt=Acquire::Check-Valid-Until "false"`)
	}
	args = append(args, suite, dir)
	if mirror := mirror(ctx); mirror != "" {
		args = append(args, mirror)
	}
	return Run(ctx, progress, "mmdebstrap", args...)
}

// mirror returns the package mirror of this machine if it runs Debian, or "" for mmdebstrap's default.
func mirror(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)",
		"Created-By: Packages").Output()
	if err != nil {
		return "" // apt-get is missing or fails
	}
	for line := range strings.Lines(string(out)) {
		if uri, ok := strings.CutPrefix(strings.TrimSpace(line), "Debian|Debian|"); ok {
			return uri
		}
	}
	return ""
}

// Run runs a program. Its output is written to progress, and the error contains the end of it.
func Run(ctx context.Context, progress io.Writer, name string, args ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout = io.MultiWriter(progress, &output)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, output.Bytes()[max(0, output.Len()-2000):])
	}
	return nil
}
