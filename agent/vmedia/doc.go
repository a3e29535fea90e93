// Package vmedia reads configuration from virtual media of a BMC: the parameters of the conductor's floppy, the agent's
// configuration files on the boot ISO, and the static network data of the config drive.
//
// Names and rules are the same as in ironic-python-agent's images. Media are read only on whole optical drives, and on
// whole USB disks below 4 GiB that are removable or write-protected (see storage/removable). Parameters and
// configuration files are read only if the kernel's command line contains boot_method=vmedia. Nothing is mounted, and
// the size of everything read is limited. A damaged or invalid medium causes a warning with its name, and the machine
// continues with its other configuration.
//
// # A damaged medium is a warning
//
// ironic-python-agent ends when the floppy lacks its file or the boot ISO cannot be copied, and is restarted forever. A
// BMC with a damaged medium then blocks a node whose command line names Ironic. So a warning names the medium, its
// configuration is used completely or not at all, and the media are read again only if no other source names Ironic.
package vmedia
