// Package modules contains the groups of kernel modules for images, as text files, and selects modules of a kernel by
// them.
//
// # InfiniBand is a group of its own
//
// Its modules take 0.9 MiB of an image whose size is limited, and most machines have no such adapter. An image without
// them names the adapter and ib_ipoib in its log and on its screen. For that purpose the builder adds a second index of
// 10 KiB with the PCI IDs of all network drivers of the kernel that the image lacks.
package modules
