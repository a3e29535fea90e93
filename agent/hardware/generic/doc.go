// Package generic implements the built-in hardware manager. It supports every machine that Linux runs on and uses only
// the kernel's interfaces. As the manager of that name in ironic-python-agent, it has steps that erase disks, create
// and delete software RAID arrays, remove boot entries, test hardware, write images, install bootable containers and
// inject files.
//
// # The version is ironic-python-agent's
//
// The manager has the class, the name, the steps and the version of ironic-python-agent's: 1.2. A test compares each
// step, its kinds, priorities, flags and arguments. So a node whose ramdisk is replaced by the other ramdisk in the
// middle of cleaning continues with the next step, and does not erase its disks twice. This holds if the other managers
// are the same, too. They may differ: ironic-python-agent has ContainerHardwareManager only if its image contains
// podman or docker, and IntelCnaHardwareManager on machines with some network cards of Intel, which does not exist
// here. Then the step is refused (package hardware). Steps that ironic-python-agent does not have belong to other
// managers, which have versions of their own.
//
// Former versions had a suffix with a number (1.2-ironroot.13), which was raised with each change of a step's effect.
// It is gone because the list is now equal, and a suffix made nodes repeat their erases when the ramdisk was switched.
// For an upgrade of the ramdisk in the middle of cleaning:
//
//   - From a version with a suffix, Ironic starts over once.
//   - A version of ironroot that changes the effect of a step reports the same version. The remaining steps of Ironic's
//     list run as the new ramdisk does them; the ones before are not repeated. To repeat them, abort cleaning and start
//     it again.
//   - The list of steps changes only when ironic-python-agent's does, together with the version: Ironic starts over.
//   - If a list changed without its version, Ironic would keep the former list until the next cleaning: a step that no
//     longer exists would fail with HardwareManagerMethodNotFound, and a new one would not run. The test prevents this.
//
// # The wait for disks counts from their drivers
//
// Steps and the inventory wait up to 30 s for the drivers of the devices present at boot, even if disk_wait_attempts
// permits less for the disks: Ironic can send a command before they are loaded. Without root device hints, the time
// limit for disks to appear begins when their drivers are loaded, and not with the first request for steps: a machine
// that has only small disks has used most of that time by then.
//
// Inspection and deployment continue when that time has passed, as in ironic-python-agent: they use the existing disks,
// and drivers that never finish must not block a machine. The erase steps must cover all disks: see package cleaning.
package generic
