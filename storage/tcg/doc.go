// Package tcg reads whether a self-encrypting drive is locked: it sends Level 0 Discovery of the TCG Storage
// Architecture Core Specification 2.01 and decodes the reply. It neither unlocks drives nor opens sessions.
//
// Level 0 Discovery is a security command without parameters that any drive with a TPer answers in every state. The
// transports are SECURITY PROTOCOL IN of SCSI, TRUSTED RECEIVE of ATA, and Security Receive of NVMe.
//
// # A locked drive fails the erase
//
// A drive with TCG Opal, Enterprise, Pyrite or another of these classes can be locked by a former owner. The data that
// a locked range returns, and whether it rejects or ignores writes, differ between drives, so that an overwrite with
// read-back proves nothing. Each erase step therefore asks such drives for their state before it reads or writes them.
// A locked drive is an error that names the class, also with agent_continue_if_secure_erase_failed. ironic-python-agent
// does not ask.
//
//   - No discovery, or locking not enabled: erased as any other drive.
//   - Locking enabled, nothing locked: erased as any other drive; the evidence has the state.
//   - Locking enabled, a range locked: error before the first write.
//   - Locking enabled, shadow MBR shown in place of the first blocks: error before the first write.
//   - The drive should answer and does not, or returns garbage: the evidence says that the state is not known, and
//     writes are proved: the last pass of an overwrite is random data even with agent_erase_devices_zeroize, and
//     samples are compared before the drive erases itself.
//
// The operator chooses what to do: unlock the drive with the owner's credentials, or revert it with the PSID that is
// printed on its label, which erases it. The agent has neither, and an option for the PSID was rejected: it would have
// to be read from every label. A drive that is erased while locking is enabled keeps its owner, and may lock itself
// when it is switched off: the evidence says that locking is enabled.
//
// The command is sent even if agent_enable_ata_secure_erase or agent_enable_nvme_secure_erase is off, because it
// changes nothing and the overwrite needs the answer; then only erase_devices asks. Linux translates SECURITY PROTOCOL
// IN for SATA drives. It rejects TRUSTED RECEIVE, which is needed for a drive whose logs do not describe the feature,
// unless libata has the parameter allow_tpm=1, with which the ramdisk loads it. A kernel with libata built in needs
// libata.allow_tpm=1 as a kernel parameter.
//
// Some drives are not known to lack the feature, and are erased as any other: USB disks and multipath maps, which are
// not asked, and the members below an array that stays. Samples of a zoned drive that its host manages are not
// compared. For these, an overwrite with zeros does not prove that the drive was not locked. No drive with this feature
// was at hand, and QEMU has none. Tests parse replies that were written down from the tables of the TCG, and run the
// erase against models of drives that are locked.
package tcg
