//go:build !linux

package initramfs

import "ironroot/internal/pciids"

// allNames returns nothing: u-root's package with the names builds only for Linux. Images that are built on other
// systems give the ids of cards.
func allNames() map[pciids.ID]pciids.Names { return nil }
