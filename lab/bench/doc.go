// Package bench measures the ramdisk against what a user would use instead, each pair in one run: `make bench`. It holds
// benchmarks only; nothing asserts a time.
package bench
