//go:build linux

package boot

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// watchRandom logs that the kernel's random source is not ready: TLS waits for it, which looks like a hang.
func (b *boot) watchRandom() {
	one := make([]byte, 1)
	if _, err := unix.Getrandom(one, unix.GRND_NONBLOCK); !errors.Is(err, unix.EAGAIN) {
		return
	}
	b.log.Warn("random source of the kernel not ready: encryption waits for it; " +
		"give the machine a CPU with RDRAND, a TPM or virtio-rng")
	start := time.Now()
	for {
		_, err := unix.Getrandom(one, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		b.log.Info("random source ready", "duration", time.Since(start).Round(time.Millisecond), "err", err)
		return
	}
}
