// Command fail is a ramdisk whose work fails twice and works the third time.
package main

import (
	"context"
	"fmt"
	"time"

	"ironroot/uinit/boot"
)

func main() {
	tries := 0
	boot.Run(func(_ context.Context, m *boot.Machine) error {
		tries++
		if tries < 3 {
			return fmt.Errorf("try %d went wrong", tries)
		}
		m.Log.Info("try 3 went well")
		return nil
	}, boot.Options{RestartDelay: time.Second})
}
