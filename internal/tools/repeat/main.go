//go:build linux

// Command repeat runs tests again and again on a busy machine, to find those that do not pass every time. The file
// tests.txt lists them with the number of runs that must pass in a row. One busy loop for each processor runs
// meanwhile. A test that fails must pass ten times in a row afterwards. After three failures it is not run again.
//
// The state is in a file, which is written after each run: when the command is started again, it continues. A
// table of all results is next to it, and the output of each run that failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("stopped, continues when it is started again: %w", err)
		}
		fmt.Fprintln(os.Stderr, "repeat:", err)
		os.Exit(1)
	}
}

// run runs the tests that have not passed often enough yet. It returns an error if one does not pass.
func run(ctx context.Context, arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("repeat", flag.ContinueOnError)
	path := flags.String("list", "internal/tools/repeat/tests.txt", "file that lists the tests")
	dir := flags.String("dir", "build/repeat", "directory of the state, the report and the logs")
	only := flags.String("run", "", "regular expression of the tests to run, such as '^./netboot/' or 'TestFlood$'")
	fresh := flags.Bool("fresh", false, "forget the earlier runs of these tests")
	timeout := flags.Duration("timeout", 80*time.Minute, "time limit of a run; TestRecordIPA needs 6h")
	idle := flags.Bool("idle", false, "run no busy loops")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	entries, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", *path, err)
	}
	if err := os.MkdirAll(filepath.Join(*dir, "logs"), 0o755); err != nil {
		return err
	}
	s, err := load(*dir)
	if err != nil {
		return err
	}
	r := runner{
		state: s, dir: *dir, out: out, timeout: *timeout, wanted: wanted, fresh: *fresh, idle: *idle,
		commit: currentCommit(ctx),
	}
	return r.all(ctx, entries)
}
