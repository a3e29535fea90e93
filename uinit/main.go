//go:build linux

// Command uinit is /init of the ramdisk: PID 1, and the agent in the same process.
//
//go:debug fips140=off
package main

import "ironroot/uinit/boot"

func main() { boot.Main(boot.Agent()) }
