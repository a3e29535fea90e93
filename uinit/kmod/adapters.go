package kmod

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// OthersFile is the name of a second index in the directory of the modules. It lists the drivers of network adapters
// that the ramdisk lacks, with their aliases of PCI devices.
const OthersFile = "others.zst"

// Adapter describes a network adapter on the PCI bus that has no network interface because a module is missing.
type Adapter struct {
	Address string   // "0000:3b:00.0"
	ID      string   // PCI vendor and device, "15b3:1017"
	Missing []string // required modules that the ramdisk lacks; nil if the kernel has none
	Present []string // modules of the ramdisk that match the adapter but did not bind to it
	// InfiniBand reports whether it is an InfiniBand adapter. Even with a driver it has network interfaces only with
	// ib_ipoib.
	InfiniBand bool
}

// PCI base classes and subclasses (PCI Code and ID Assignment Specification, 1.3 and 1.13) as sysfs shows them.
const (
	classNetwork    = "0x02"
	classInfiniBand = "0x0207"
	classIBSerial   = "0x0c06" // older InfiniBand adapters
)

// ipoib is the module that creates network interfaces for InfiniBand ports.
const ipoib = "ib_ipoib"

// IsOther reports whether the index OthersFile lists a module that is not in the ramdisk.
func IsOther(m *Module) bool {
	for _, directory := range []string{"drivers/net/", "drivers/infiniband/"} {
		if strings.HasPrefix(m.Dir+"/", directory) {
			return slices.ContainsFunc(m.Aliases, isPCI)
		}
	}
	return false
}

// Other returns the entry of a module for the index OthersFile.
func Other(m *Module) *Module {
	other := &Module{Name: m.Name, Size: m.Size, Dir: m.Dir}
	for _, alias := range m.Aliases {
		if isPCI(alias) {
			other.Aliases = append(other.Aliases, alias)
		}
	}
	return other
}

func isPCI(alias string) bool { return strings.HasPrefix(alias, "pci:") }

// Adapters returns the network adapters below sys, which is "/sys" on a machine, that have no driver, and InfiniBand
// adapters without the module that creates interfaces for their ports. They are sorted by address.
func (l *Loader) Adapters(sys string) ([]Adapter, error) {
	devices := filepath.Join(sys, "bus", "pci", "devices")
	entries, err := os.ReadDir(devices)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // no PCI bus
	}
	if err != nil {
		return nil, fmt.Errorf("network adapters: %w", err)
	}
	others, err := l.readIndex(OthersFile)
	if err != nil {
		return nil, fmt.Errorf("network adapters: %w", err)
	}
	var adapters []Adapter
	for _, entry := range entries {
		if a, lacks := l.adapter(filepath.Join(devices, entry.Name()), others); lacks {
			adapters = append(adapters, a)
		}
	}
	slices.SortFunc(adapters, func(a, b Adapter) int { return cmp.Compare(a.Address, b.Address) })
	return adapters, nil
}

// adapter describes a PCI device and reports whether it is a network adapter that lacks a module.
func (l *Loader) adapter(dir string, others *Index) (Adapter, bool) {
	text := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "" // the device was removed
		}
		return strings.TrimSpace(string(data))
	}
	class := text("class")
	a := Adapter{
		Address:    filepath.Base(dir),
		ID:         strings.TrimPrefix(text("vendor"), "0x") + ":" + strings.TrimPrefix(text("device"), "0x"),
		InfiniBand: strings.HasPrefix(class, classInfiniBand) || strings.HasPrefix(class, classIBSerial),
	}
	if !a.InfiniBand && !strings.HasPrefix(class, classNetwork) {
		return a, false
	}
	if _, err := os.Lstat(filepath.Join(dir, "driver")); err != nil {
		alias := text("modalias")
		a.Present = moduleNames(l.index.Match(alias))
		if a.Present == nil {
			a.Missing = moduleNames(others.Match(alias))
		}
	} else if !a.InfiniBand {
		return a, false
	}
	if a.InfiniBand && l.index.Module(ipoib) == nil {
		a.Missing = append(a.Missing, ipoib)
	} else if a.InfiniBand && a.Missing == nil && a.Present == nil {
		return a, false
	}
	return a, true
}

func moduleNames(modules []*Module) []string {
	var list []string
	for _, m := range modules {
		list = append(list, m.Name)
	}
	return list
}
