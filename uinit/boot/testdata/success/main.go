// Command success is a ramdisk whose work is done at once.
package main

import (
	"context"

	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(_ context.Context, m *boot.Machine) error {
		<-m.Settled
		m.Log.Info("the work is done")
		return nil
	})
}
