package inspection

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"ironroot/agent/inventory"
)

// chosenScheduler matches the scheduler in use in a list such as "none [mq-deadline] kyber".
var chosenScheduler = regexp.MustCompile(`\[(.*?)\]`)

// diskFacts adds the facts about disks.
func (i *inspection) diskFacts(f *factList, disks []inventory.Disk) {
	f.add("disk", "logical", "count", strconv.Itoa(len(disks)))
	for _, d := range disks {
		name := strings.TrimPrefix(d.Name, "/dev/")
		file := func(parts ...string) string {
			return i.System.Sys(append([]string{"block", name}, parts...)...)
		}
		add := func(property, value string) { f.add("disk", name, property, value) }
		add("size", strconv.FormatInt(d.Size/1e9, 10)) // GB
		// The device of an NVMe disk is its controller. Vendor and revision are in the PCI function of the controller.
		add("vendor", cmp.Or(i.text(file("device/vendor")), i.text(file("device/device/vendor"))))
		add("model", i.text(file("device/model")))
		if revision := i.text(file("device/rev")); revision != "" {
			add("rev", revision)
		} else {
			add("revision", cmp.Or(i.text(file("device/revision")), i.text(file("device/device/revision"))))
		}
		for _, property := range []string{"optimal_io_size", "physical_block_size", "rotational", "nr_requests"} {
			add(property, i.text(file("queue", property)))
		}
		if m := chosenScheduler.FindStringSubmatch(i.text(file("queue/scheduler"))); m != nil {
			add("scheduler", m[1])
		}
		i.cacheFacts(f, name)
		if wwn := known(d.WWNWithExtension); strings.HasPrefix(wwn, "0x") {
			add("wwn-id", "wwn-"+wwn)
		} else if wwn != "" { // NVMe
			add("wwn-id", wwn)
		}
	}
}

// cacheFacts adds the modes of the cache of a SCSI or SATA disk: WCE and RCD (SBC-4, caching mode page), as the kernel
// describes them.
func (i *inspection) cacheFacts(f *factList, disk string) {
	files, err := filepath.Glob(i.System.Sys("block", disk, "device/scsi_disk/*/cache_type"))
	if err != nil || len(files) != 1 {
		return
	}
	write, readDisabled := "1", "0"
	switch kind := i.text(files[0]); {
	case kind == "write through":
		write = "0"
	case kind == "none":
		write, readDisabled = "0", "1"
	case strings.Contains(kind, "daft"): // "write back, no read (daft)"
		readDisabled = "1"
	}
	f.add("disk", disk, "Write Cache Enable", write)
	f.add("disk", disk, "Read Cache Disable", readDisabled)
}
