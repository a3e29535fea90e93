package status

import "strings"

// Adapter describes a network adapter that has no network interface because a kernel module is missing.
type Adapter struct {
	Address    string   // PCI address, "0000:3b:00.0"
	ID         string   // PCI vendor and device, "15b3:1017"
	Missing    []string // modules that it needs and this image lacks; nil if unknown
	Present    []string // modules of this image that do not bind to it
	InfiniBand bool
}

// Adapters sets the network adapters that have no network interface.
func (b *Board) Adapters(list []Adapter) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.commit()
	s.Adapters = list
}

// Text describes the adapter in one sentence.
func (a *Adapter) Text() string {
	kind := "network adapter "
	if a.InfiniBand {
		kind = "InfiniBand adapter "
	}
	text := kind + a.Address + " (PCI ID " + a.ID + ") "
	switch {
	case len(a.Missing) > 0:
		return text + "needs " + a.module() + strings.Join(a.Missing, ", ") + ", which this image lacks"
	case len(a.Present) > 0:
		return text + "is not served by its module " + strings.Join(a.Present, ", ")
	}
	return text + "has no driver in this kernel"
}

func (a *Adapter) module() string {
	if len(a.Missing) > 1 {
		return "modules "
	}
	return "module "
}

// advice returns what the operator can do to get a driver for the adapter.
func (a *Adapter) advice() string {
	switch {
	case a.InfiniBand && len(a.Missing) > 0:
		return a.Text() + ": build the image with --module-groups server,infiniband"
	case len(a.Missing) > 0:
		return a.Text() + ": add the module to a list in initramfs/modules and build the image again"
	case len(a.Present) > 0:
		return a.Text() + ": the kernel's messages say why, such as missing firmware"
	}
	return a.Text() + ": use a newer kernel, or a network adapter that it supports"
}
