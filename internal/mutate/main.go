//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if len(os.Args) > 5 && os.Args[1] == sandboxArgument {
		if err := sandbox(ctx, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
		return
	}
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// run measures packages and reports each as soon as it is done.
func run(ctx context.Context, arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	o := options{maxTimeout: maxTimeout}
	flags.IntVar(&o.samples, "n", 0,
		"number of mutants of each package to run, the same random ones every time; 0 runs all")
	flags.IntVar(&o.parallel, "j", runtime.NumCPU(), "number of mutants to run at a time")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Second,
		"least time after which the tests of a mutant count as hung")
	flags.StringVar(&o.skip, "skip", "", "regular expression of tests not to run, as of go test")
	verbose := flags.Bool("v", false, "print each mutant that was run to standard error")
	least := flags.Float64("least", 85, "share of the mutants that must be killed, in percent")
	accounted := flags.String("accounted", "", "packages, joined by commas, whose survivors must be listed")
	equivalent := flags.String("equivalent", "internal/mutate/equivalent.txt",
		"file that lists equivalent mutants with reasons")
	untestable := flags.String("untestable", "internal/mutate/untestable.txt",
		"file that lists untestable mutants with reasons")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *verbose {
		log := log.New(os.Stderr, "", log.Ltime)
		o.progress = func(m mutant, status string) { log.Printf("%s: %s", m.name(), status) }
	}
	report := report{out: out, accounted: strings.Split(*accounted, ","), complete: o.samples == 0}
	var err error
	if report.equivalent, err = readList(*equivalent); err != nil {
		return err
	}
	if report.untestable, err = readList(*untestable); err != nil {
		return err
	}
	if both := inBoth(report.equivalent, report.untestable); len(both) > 0 {
		return fmt.Errorf("%d mutants are listed both as equivalent and as untestable:\n%s",
			len(both), strings.Join(both, "\n"))
	}
	packages, err := listPackages(ctx, flags.Args())
	if err != nil {
		return err
	}
	for _, p := range packages {
		if p.helpsTests() {
			report.skip(p)
			continue
		}
		start := time.Now()
		r, err := runPackage(ctx, p, o)
		switch {
		case err == nil:
			report.add(r, time.Since(start))
		case ctx.Err() != nil:
			return err
		default:
			report.fail(p, err)
		}
	}
	return report.end(*least)
}
