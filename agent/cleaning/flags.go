package cleaning

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/internal/oslo"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/raid"
)

// eraseFlags are the settings of a step, from the node's driver_internal_info and the options.
type eraseFlags struct {
	step              string // that erases; "" for others
	concurrency       int
	iterations        int
	zeroize           bool
	nvme, ata         bool
	discard           bool
	continueOnFailure bool
	skipReadOnly      bool
	guard             bool
	wait              erase.Wait // option group disk_partitioner
}

// iterationsKey is the name of the number of random passes in driver_internal_info.
const iterationsKey = "agent_erase_devices_iterations"

// checkIterations returns an error unless the node's number of random passes is a number, or is not set: the default
// could be fewer passes than the operator requires.
func checkIterations(n *node.Node) error {
	if n == nil {
		return nil
	}
	value := n.DriverInternalInfo()[iterationsKey]
	if passes, ok := integer(value); value != nil && (!ok || passes < 0) {
		return fault.Cleaning("driver_internal_info: %s: got %q, want a number from 0",
			iterationsKey, fmt.Sprint(value))
	}
	return nil
}

func eraseFlagsOf(n *node.Node, c *config.Config) eraseFlags {
	internal, info := map[string]any{}, map[string]any{}
	if n != nil {
		internal, info = n.DriverInternalInfo(), n.DriverInfo()
	}
	return eraseFlags{
		concurrency: max(1, number(internal["disk_erasure_concurrency"], 1)),
		iterations:  max(0, number(internal[iterationsKey], 1)),
		zeroize:     truth(internal["agent_erase_devices_zeroize"], true),
		nvme:        truth(internal["agent_enable_nvme_secure_erase"], true),
		ata:         truth(internal["agent_enable_ata_secure_erase"], true),
		discard:     truth(internal["agent_enable_discard_erase"], c.EnableDiscardErase),
		continueOnFailure: truth(internal["agent_continue_if_secure_erase_failed"],
			truth(internal["agent_continue_if_ata_erase_failed"], false)), // the older name
		skipReadOnly: truth(internal["agent_erase_skip_read_only"], false),
		// Two ways to disable the guard are in use: the documented one in driver_info, and the one that the conductor
		// implements, in driver_internal_info, where false (sic) allows erasing the file systems.
		guard: c.GuardSpecialFilesystems && truth(internal["wipe_special_filesystems"], true) &&
			!truth(info["wipe_special_filesystems"], false),
	}
}

// Guards reports whether the steps of a node, which may be nil, refuse disks with shared file systems.
func Guards(n *node.Node, c *config.Config) bool {
	return eraseFlagsOf(n, c).guard
}

func (f eraseFlags) options() erase.Options {
	return erase.Options{
		Iterations: f.iterations, Zeroize: f.zeroize, NVMe: f.nvme, NVMeSanitize: f.nvme, ATA: f.ata, SCSI: f.ata,
		Discard: f.discard, ContinueOnFailure: f.continueOnFailure, Wait: f.wait,
	}
}

// erasesFully reports whether the step erases all data of a disk: erase_devices does of every disk, and
// erase_devices_express of NVMe disks. Otherwise the step erases only metadata.
func (f eraseFlags) erasesFully(d block.Device) bool {
	return f.step == fullErase || f.step == expressErase && d.Transport == "nvme" && f.nvme
}

// erasesMember is erasesFully for the disk of a member.
func (f eraseFlags) erasesMember(m raid.Member) bool { return f.erasesFully(m.Disk) }

// countsBytes reports whether the step writes whole disks, so that its progress counts bytes.
func (f eraseFlags) countsBytes() bool { return f.step == fullErase || f.step == "" }

// overwriteOptions returns the options for erasing an array that the step keeps, and the rest of its disks.
// erase_devices_express overwrites them once, with zeros.
func (f eraseFlags) overwriteOptions() erase.Options {
	options := f.options()
	if f.step == expressErase {
		options.Iterations, options.Zeroize = 0, true
	}
	return options
}

// secureErase reports whether a disk may be sent commands that erase it.
func (f eraseFlags) secureErase(d block.Device) bool {
	if block.IsNVMeNamespace(d.Name) {
		return f.nvme
	}
	return f.ata
}

// number converts a value of a node object to an integer. Values that are not numbers return missing.
func number(value any, missing int) int {
	if n, ok := integer(value); ok {
		return n
	}
	return missing
}

// integer converts a value of a node object, which operators also write as a string, to an integer.
func integer(value any) (n int, ok bool) {
	text := ""
	switch v := value.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = strings.TrimSpace(v)
	case float64:
		return int(v), true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// truth converts a value of a node object to a boolean, which operators also write as a string. Other values return
// missing.
func truth(value any, missing bool) bool {
	switch v := value.(type) {
	case bool:
		return v
	case string:
		if b, ok := oslo.ParseBool(v); ok {
			return b
		}
	case json.Number:
		return v.String() != "0"
	}
	return missing
}
