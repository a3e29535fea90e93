// Package hardware defines hardware managers and the set of managers that the agent uses: how they are loaded, how
// calls are dispatched to them, and how their steps are combined into one list.
//
// It follows the contract of ironic-python-agent: support levels, dispatch to the best manager that supports a call,
// steps of the kinds clean, deploy and service, and the version dictionary that the conductor sends with each step.
//
// # Versions
//
// With each step Ironic sends the names and versions that all managers had when it listed the steps. If the agent has
// others, it refuses the step (CLEAN_VERSION_MISMATCH), and Ironic lists the steps again: automated cleaning starts
// over, manual cleaning repeats the current step. If they are equal, the step runs. The description of a manager is
// therefore read once, at start, and so is its support level: custom managers are evaluated only when the drivers are
// loaded. Without custom managers nothing waits for that. Package generic has the reasons for the version of the
// built-in manager.
//
// # A custom manager that fails is ignored, but not its filter
//
// A manager that panics or hangs at the start must not keep the node from Ironic: the operator would see only a
// timeout. The agent works without it and logs its name. To fail all steps instead was rejected, because a manager for
// one kind of machine would then stop all others. But if the manager lists or filters disks, to ignore it could mean to
// erase a disk that it protects. So commands that list disks fail then, with its name. The same holds for an executable
// that cannot be described and for a manager root that cannot be mounted, because they could select disks: a missing
// module of Python must not destroy a disk. A kernel parameter that permits the disks nevertheless was rejected: the
// image is wrong, and a correct one is a build away. Custom managers in Go run in the agent's process: panics in
// goroutines that they start cannot be contained.
//
// All filters are asked about a disk, not only the best manager's as in ironic-python-agent. There a plug-in that
// inherits the filter of the generic manager, or has the level of the generic manager, hides the filter of another
// without a message. Lists of disks are not combined in this way: a list can lack disks for other reasons than their
// protection, and a disk that is missing would not be erased.
//
// # Custom managers do not replace erase steps unasked
//
// Ironic does not show the operator which manager ran a step. A manager that offers erase_devices for one kind of disk,
// and is then loaded on another machine, would release that machine's data to the next tenant. So the operator must
// name the manager in the configuration, not only add it to the image. A boolean option was rejected, because it would
// hold for managers that are added later. The names of built-in erase steps are protected in steps of all kinds. Hiding
// disks by a filter remains possible without an option, as in ironic-python-agent; the log names the managers that
// filter and each disk that they omit.
//
// # Protecting entries must be understood
//
// An entry of skip_block_devices that cannot be parsed fails the step: if it were ignored, the disk that it protects
// would be erased. An entry with a volume_name names a RAID array; ironic-python-agent keeps the array but can still
// choose one of its disks as the root disk. Here no disk with a member of such an array is chosen. Disks are read for
// this only if there is such an entry. An entry that matches nothing is not an error, because the list of a node can
// name a disk that was removed; the erase steps log a warning that names the entry.
//
// An entry can match nothing because the serial number or WWN of its disk could not be read: the attribute hung, or the
// driver returned an error. Such a disk fails the erase steps, and cannot become the root disk, if any entry compares
// values that are read from disks (serial number, WWN, model, vendor) and no other entry protects it. A disk that does
// not have the attribute is different. Virtio disks have no WWN, so that an entry with the WWN of a removed disk would
// stop the cleaning of every virtual machine; they are erased, and the warning names the entry. The error of the read
// distinguishes the two.
//
// An entry that names a path to a disk (name, hctl, by_path) protects the multipath map that the path is joined to:
// whether the operator saw /dev/sda or /dev/dm-0 depends on when the paths were joined. Root device hints do not follow
// paths: an image goes to the map.
package hardware
