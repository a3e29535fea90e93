// Package iscsi tests iSCSI disks of the firmware, and the deployment over iSCSI.
package iscsi
