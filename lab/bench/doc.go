// Package bench compares the ramdisk with the usual alternatives, each pair in one run of `make bench`. It contains
// benchmarks only. The benchmarks of erasing and software RAID fail beyond their limits; all others assert no
// durations.
package bench
