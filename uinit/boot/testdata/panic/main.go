// Command panic is a ramdisk whose work panics: with the kernel parameter test.foreign=1 in a goroutine of its own, which
// nobody guards.
package main

import (
	"context"

	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		if m.Params["test.foreign"] == "1" {
			go explode()
			<-ctx.Done()
		}
		explode()
		return nil
	})
}

func explode() { panic("the work exploded") }
