// Package iscsitarget exports a block device as an iSCSI target, by the kernel's target (LIO). The device is unit 1.
//
// The kernel is configured through configfs (Documentation/target/scripts.rst; drivers/target): a back end iblock,
// which opens the device exclusively, and a portal group with one portal, without CHAP, which accepts every initiator
// name. Rules of the kernel's routing restrict who can connect: see restrict. The modules are target_core_mod,
// target_core_iblock and iscsi_target_mod.
//
// A target that no initiator is logged in to for a while is removed.
//
// Limits: one target at a time; iSCSI over TCP; no CHAP.
//
// # The export is for one address
//
// Conductors that use iscsi.start_iscsi_target know no secret, so the export is without CHAP, and LIO restricts
// initiators by their names only, which any initiator can choose. So the address is checked before there is a
// connection. Two rules of the kernel's routing apply to TCP packets that are sent from the portal's port: packets to
// the client that sent the command use the main table, all others are dropped. A connection request of another address
// is not answered, because the kernel looks for the route of its answer first. The rules exist before the portal does,
// and until it is removed. The portal has only the address that the command was sent to. Rejected alternatives:
//
//   - Sessions are checked after the login, and ended: an initiator can write before the check.
//   - A program in front of the portal that accepts connections: the target names its portal in the answer to a
//     discovery, so a second address is needed that is the same for the initiator, in a network namespace; all data
//     would pass through the program.
//   - A packet filter needs modules and a rule language that the ramdisk has no other use for.
//   - Access control lists of LIO name initiators, not addresses.
//
// The protection is as strong as an address: whoever can receive the packets of the conductor's address on the
// provisioning network can connect. Programs on the node itself can connect, too, and have the disk anyway.
//
// LIO is configured through configfs, without rtslib or targetcli. The device is opened exclusively while it is
// exported, so that no step writes to it at the same time. After the removal it is flushed, and the kernel's cache of
// it is dropped: the initiator's writes do not pass through that cache. A target that is not removed completely stays
// restricted, and the next attempt continues. An initiator that is still logged in when the boot loader is to be
// installed is an error, although the target is removed by then: it is unknown whether it has written everything.
// ignore_bootloader_failure does not apply.
package iscsitarget
