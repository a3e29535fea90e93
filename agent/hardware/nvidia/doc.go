// Package nvidia implements the hardware manager of machines with network cards of NVIDIA (Mellanox). Its steps update
// the firmware and the settings of the cards with NVIDIA's tools, which are programs of a manager root.
//
// # Firmware is verified twice and never interrupted
//
// The steps are built in, because Ironic knows them by their names, but the tools of NVIDIA need a libc. So package
// external finds the tools in a manager root and runs them confined. The cards are found in sysfs instead of by lspci:
// the list of PCI devices is complete before the drivers are loaded, and the set of managers must not depend on whether
// a driver is loaded yet. Virtual functions have no firmware and are omitted.
//
// An image is written only after its checksum, and then the PSID and the version that mstflint reads from it, have
// matched. ironic-python-agent verifies the checksum last, when mstflint has parsed the file, and reads one image after
// the other, when cards have already been written to. The image is a sealed file in memory: the verified bytes are the
// written ones, and nothing but the agent can reach it by a name. mstflint cannot read from a pipe, because it reads
// the size first, so the file is its standard input, which it opens by the name /proc/self/fd/0.
//
// A tool that writes has no time limit and is not killed when the step is cancelled: a card with half of its firmware
// needs a technician. The success of the tool is not enough: the step queries the card, and fails unless it reports the
// new version or the new values. A pending reset that fails is an error before firmware is written, because the card
// has two places for images and would lose the one that runs. Before settings it is only logged, as in
// ironic-python-agent: they are checked against the firmware that runs.
package nvidia
