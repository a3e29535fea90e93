// Command success is a ramdisk whose work is done at once. It logs the settings that protect the kernel log.
package main

import (
	"context"
	"os"
	"strings"

	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(_ context.Context, m *boot.Machine) error {
		<-m.Settled
		var values []string
		for _, name := range []string{"dmesg_restrict", "kptr_restrict"} {
			value, err := os.ReadFile("/proc/sys/kernel/" + name)
			if err != nil {
				return err
			}
			values = append(values, name+"="+strings.TrimSpace(string(value)))
		}
		m.Log.Info("the work is done", "settings", values)
		return nil
	})
}
