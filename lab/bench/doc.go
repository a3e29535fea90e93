// Package bench compares the ramdisk with the usual alternatives, each pair in one run of `make bench`. It contains
// benchmarks only. That of software RAID fails beyond its limit; all others assert no durations.
package bench
