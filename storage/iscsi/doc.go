// Package iscsi attaches disks of iSCSI targets: it performs the login of RFC 7143 with CHAP in one or both directions,
// and hands the connection to the kernel's initiator (iscsi_tcp) by netlink (NETLINK_ISCSI, scsi/iscsi_if.h). When a
// connection breaks, it connects again, so that the kernel can repeat the commands in flight.
//
// Each session has one connection, error recovery level 0 and no digests. Only CHAP and no authentication are
// supported. Secrets are neither logged nor part of errors, and the kernel does not get them.
package iscsi
