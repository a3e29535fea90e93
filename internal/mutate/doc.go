//go:build linux

// Command mutate measures which changes tests detect: it changes one statement of a package at a time and runs the
// package's own tests. A changed program is a mutant. It is killed if a test fails, and survives if all pass.
//
//	go run ./internal/mutate -n 50 ./storage/erase ./agent/...
//
// Every mutant of a package is compiled into one test binary (mutant schemata): the environment variable MUTANT
// selects the one that is active, also in the processes that tests start from the binary with an environment of their
// own, unless they have another root directory. A first run of every test records its duration and the mutants that it
// reaches. A mutant is run with those tests only, the quick ones first. A mutant that no test reaches survives. The
// option -skip omits tests by a regular expression.
//
// A mutant is hung, and counts as killed, if its tests take more than five times as long as without it, and more than
// the option -timeout. The tests then run once more without the mutant. If they take more than half of the limit, the
// machine is busy, and the limit is doubled. If that happens above ten minutes, the package counts as not measured.
//
// The mutations are:
//
//	remove   a call, assignment, increment, send, defer, go, break, continue or return without a value is removed
//	negate   the condition of an if or of a case without a tag, or the result of a function that returns one bool
//	nil      an error that a function returns is replaced by nil
//
// Definitions (:=) are kept, so that the package compiles. Calls of a logger are counted separately, because most tests
// do not check log lines.
//
// A package that imports package testing outside of its test files is part of the tests of other packages and is not
// measured. A package without tests is measured: its mutants survive.
//
// Two lists account for survivors; each line is NAME => REASON. Listed mutants still count as survivors.
//
//	equivalent.txt   the mutant behaves like the program in every case
//	untestable.txt   the mutant differs only after a system call has failed that no test can make fail
//
// A mutant is untestable only if no file, device, resource limit or parameter of the code makes the call fail. It is
// an error if a mutant is in both lists, or if a listed mutant is killed or does not exist. Every survivor of the
// packages that the option -accounted names must be listed. The command fails if a smaller share of the mutants is
// killed than the option -least demands, 85 % by default.
//
// Mutants can damage the machine. Each test binary therefore runs in new namespaces, on an overlay of the machine's
// files whose changes stay in memory. It cannot access the machine's disks, network and firmware variables, and lacks
// the capabilities to stop the machine, to set its clock, to load modules and to access I/O ports. This needs root.
package main
