// Package target exports a block device as an iSCSI target, by the kernel's target (LIO). The device is unit 1.
//
// The kernel is configured through configfs (Documentation/target/scripts.rst; drivers/target): a back end iblock,
// which opens the device exclusively, and a portal group with one portal, without CHAP, which accepts every initiator
// name. Rules of the kernel's routing restrict who can connect: see restrict. The modules are target_core_mod,
// target_core_iblock and iscsi_target_mod.
//
// A target that no initiator is logged in to for a while is removed.
//
// Limits: one target at a time; iSCSI over TCP; no CHAP.
package target
