// Package softraid applies Ironic's configuration of software RAID to the disks of a machine.
//
// It parses the configuration, and finds, plans, creates, deletes and assembles its arrays. Its rules decide which
// arrays the other parts of the agent must leave as they are: those that skip_block_devices protects, and those that
// Ironic created.
package softraid
