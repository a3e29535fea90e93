// Package nvme sends admin commands to NVMe controllers: Identify, Format NVM, Sanitize and its log, and Security
// Receive. The specification is the NVM Express base specification 2.0, and for Identify Namespace and Format NVM also
// the NVM command set specification 1.0.
//
// A [Controller] has a method for each command. It sends them by a [Transport]: [Device] is the one for Linux, the
// ioctl NVME_IOCTL_ADMIN_CMD of linux/nvme_ioctl.h; a test can have its own. Commands are not checked for their
// consequences: a Format or Sanitize can erase namespaces of other hosts (package erase decides that). No command waits
// longer than its timeout, and none can be cancelled once it was sent.
//
// Comments name figures by their titles, because their numbers differ between revisions.
package nvme
