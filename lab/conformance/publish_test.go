//go:build linux

package conformance

import (
	"time"

	"ironroot/lab/imageserver"
)

// publishSlow publishes the images that keep a command busy.
func publishSlow(m *machine) {
	m.images.Bytes(slowImage, make([]byte, 4096))
	m.images.Fault(slowImage, imageserver.Fault{Delay: 2 * time.Second})
	m.images.Bytes(stalledImage, make([]byte, mib))
	m.images.Fault(stalledImage, imageserver.Fault{Stall: 4096})
}
