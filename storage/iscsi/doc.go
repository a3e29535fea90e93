// Package iscsi attaches disks of iSCSI targets: it performs the login of RFC 7143 with CHAP in one or both directions,
// and hands the connection to the kernel's initiator (iscsi_tcp) by netlink (NETLINK_ISCSI, scsi/iscsi_if.h). When a
// connection breaks, it connects again, so that the kernel can repeat the commands in flight.
//
// Each session has one connection, error recovery level 0 and no digests. Only CHAP and no authentication are
// supported. Secrets are neither logged nor part of errors, and the kernel does not get them.
//
// # Why the login is done here
//
// ironic-python-agent runs iscsistart, which reads the iBFT, logs in, and ends: a connection that breaks later stays
// broken. Here the package stays, so that it connects again. Data passes through the kernel's initiator (iscsi_tcp) as
// with open-iscsi.
//
// u-root's iscsinl was rejected. It has no CHAP, by which storage systems distinguish initiators. It reads the kernel's
// messages only while it waits for an answer, and therefore misses a lost connection. It treats a message for another
// session as an error. Only its list of numbers could be used.
//
// The login is a parser of foreign bytes: PDUs, text and numbers are limited, a scripted target tests each answer, and
// a fuzz target tests the rest. MD5 is offered before SHA-256, because some targets use the number of SHA-256 for
// SHA-1. With mutual CHAP, a target that does not prove its secret is rejected. The kernel does not get the secrets,
// which would be readable in sysfs, and they are masked in the log.
//
// # Events
//
//   - Target not reachable at the start: retried forever; lists of disks wait for it at most a minute.
//   - Login rejected (wrong secret, unknown initiator): logged as an error, not retried.
//   - Login succeeded, but no disk within a minute: logged as an error; the session is kept.
//   - Connection lost, or no answer to a ping within 10 s: connected again every 2 s; commands wait up to 2 minutes.
//   - No connection for 2 minutes: commands fail with an I/O error; connected again every 30 s.
//   - run_image, power_off: after the sync, disks are removed and sessions end, within 20 s in all. standby.sync does
//     not end sessions, because the machine continues to run.
//   - Lockdown: disks are removed and sessions end, within 20 s in all, before the network is taken down.
package iscsi
