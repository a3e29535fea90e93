package multipath

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"ironroot/storage/block"
)

// unit is a logical unit and the disks that lead to it.
type unit struct {
	wwid     string
	existing *block.Device // the map of the unit, nil if there is none
	paths    []block.Device
}

// units returns the logical units whose map must be created or changed: those with more than one disk, and those with
// a map and a disk that does not belong to it yet. disks is a list from [block.Disks], which omits the paths that a
// map already has.
func units(disks []block.Device) []unit {
	byWWID := map[string]*unit{}
	for i, d := range disks {
		if !isPath(d) && d.Type != "mpath" {
			continue
		}
		u := byWWID[d.WWID]
		if u == nil {
			u = &unit{wwid: d.WWID}
			byWWID[d.WWID] = u
		}
		if d.Type == "mpath" {
			u.existing = &disks[i]
		} else {
			u.paths = append(u.paths, d)
		}
	}
	var found []unit
	for _, wwid := range slices.Sorted(maps.Keys(byWWID)) {
		if u := byWWID[wwid]; len(u.paths) > 1 || u.existing != nil && len(u.paths) > 0 {
			found = append(found, *u)
		}
	}
	return found
}

// isPath reports whether a disk can be one of several paths: a SCSI disk with a globally unique name on a bus that
// supports several paths. Copies of a USB stick or of a virtual SATA disk often have the same name.
func isPath(d block.Device) bool { return isCandidate(d) && d.WWID != "" }

func isCandidate(d block.Device) bool {
	switch d.Transport {
	case "usb", "sata", "ata":
		return false
	}
	return d.Type == "disk"
}

// suspect describes disks that may be paths to one logical unit.
type suspect struct {
	paths []string
	err   error
}

var (
	errUnnamed  = errors.New("same vendor, model, serial number and size, no unique designator")
	errSeparate = errors.New("same namespace, not joined by the kernel")
)

// suspects returns disks that may be paths to one logical unit although no unique name proves it. SCSI disks are
// suspected if they have the same vendor, model, serial number and size, and one of them has no unique designator;
// disks of one target are different logical units. NVMe namespaces are suspected if they have the same identifier,
// because the kernel joins those unless nvme_core.multipath is off.
func suspects(disks []block.Device) []suspect {
	type key struct {
		vendor, model, serial string
		size                  int64
	}
	groups := map[key][]block.Device{}
	for _, d := range disks {
		switch {
		case d.Transport == "nvme" && d.WWN != "":
			groups[key{serial: d.WWN}] = append(groups[key{serial: d.WWN}], d)
		case isCandidate(d) && d.HCTL != "" && d.Serial != "":
			k := key{d.Vendor, d.Model, d.Serial, d.Size}
			groups[k] = append(groups[k], d)
		}
	}
	var found []suspect
	for _, group := range groups {
		unnamed := slices.ContainsFunc(group, func(d block.Device) bool { return d.WWID == "" })
		targets := map[string]bool{}
		for _, d := range group {
			targets[cmp.Or(target(d), d.Name)] = true
		}
		if unnamed && len(group) > 1 && len(targets) > 1 {
			reason := errUnnamed
			if group[0].Transport == "nvme" {
				reason = errSeparate
			}
			found = append(found, suspect{unit{paths: group}.names(), reason})
		}
	}
	slices.SortFunc(found, func(a, b suspect) int { return slices.Compare(a.paths, b.paths) })
	return found
}

// hasTwoUnits reports whether two of the paths lead to units of one target, through the same host adapter, with
// different numbers (LUNs). A unit has only one number there, so that equal identifiers of the two are copies.
func (u unit) hasTwoUnits() bool {
	numbers := map[string]string{} // by target
	for _, d := range u.paths {
		at := target(d)
		if number, ok := numbers[at]; ok && at != "" && number != d.HCTL {
			return true
		}
		numbers[at] = d.HCTL
	}
	return false
}

// target returns the host, channel and target of a SCSI disk, "" for other disks.
func target(d block.Device) string {
	at := strings.LastIndex(d.HCTL, ":")
	return d.HCTL[:max(0, at)]
}

// alike reports whether disks with the same identifier can be the same disk: size, sectors, model and serial number
// must be equal. Some firmware assigns one identifier to all its disks.
func (u unit) alike() bool {
	first := u.paths[0]
	if u.existing != nil {
		first = *u.existing
	}
	return !slices.ContainsFunc(u.paths, func(d block.Device) bool {
		return d.Size != first.Size || d.LogicalSector != first.LogicalSector ||
			d.Serial != first.Serial || d.Model != first.Model
	})
}

func (u unit) names() []string {
	var names []string
	for _, d := range u.paths {
		names = append(names, d.Path)
	}
	return names
}
