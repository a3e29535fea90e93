// Package bench compares the ramdisk with the usual alternatives, each pair in one run of `make bench`. It contains
// benchmarks only, which assert no durations.
package bench
