package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// module is the path of this module.
const module = "ironroot"

// Source describes the source that a build was made from.
type Source struct {
	Commit   string    // of git, in hex; "" = unknown
	Modified bool      // there are changes since the commit
	Date     time.Time // of everything that is built from it
	Err      error     // why the commit of a git checkout is unknown
}

// FindSource describes the source in a directory. Its date is taken from the environment variable SOURCE_DATE_EPOCH
// (https://reproducible-builds.org/specs/source-date-epoch/), otherwise from the commit, otherwise 1970-01-01: a second
// build has the same date. A directory that is not the top of a git checkout of this module has no commit.
func FindSource(ctx context.Context, dir string) (Source, error) {
	s := Source{Date: time.Unix(0, 0).UTC()}
	if err := s.readCommit(ctx, dir); err != nil {
		s.Err = fmt.Errorf("commit of %s: %w", dir, err)
	}
	if epoch, ok := os.LookupEnv("SOURCE_DATE_EPOCH"); ok {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds < 0 {
			return s, fmt.Errorf("SOURCE_DATE_EPOCH: got %q, want seconds since 1970", epoch)
		}
		s.Date = time.Unix(seconds, 0).UTC()
	}
	return s, ctx.Err()
}

func (s *Source) readCommit(ctx context.Context, dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, ".git")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || modfile.ModulePath(text) != module {
		return nil //nolint:nilerr // the checkout of something else
	}
	commit, err := git(ctx, dir, "log", "-1", "--no-show-signature", "--format=%H %ct")
	if err != nil {
		return err
	}
	hash, seconds, _ := strings.Cut(strings.TrimSpace(commit), " ")
	date, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("git log printed %q, want hash and time", commit)
	}
	changes, err := git(ctx, dir, "status", "--porcelain")
	if err != nil {
		return err
	}
	s.Commit, s.Modified, s.Date = hash, changes != "", time.Unix(date, 0).UTC()
	return nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}
