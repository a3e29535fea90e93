//go:build !amd64

package qemu

// tscKHz returns 0: the frequency of an emulated time-stamp counter is not known on this host.
func tscKHz() int64 { return 0 }
