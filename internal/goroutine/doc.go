// Package goroutine starts the goroutines of the ramdisk. A panic in a goroutine ends the whole process, and if PID 1
// ends, the kernel panics. This package returns the panic as an error to the caller that waits for the goroutine.
//
// A contained panic is logged with its value and stack to [slog.Default]. Panics of the same origin are logged
// whenever their number has doubled. Concurrent map access, exhausted stacks and other fatal errors of the runtime
// cannot be contained.
//
// The ramdisk has no other go statement.
//
// # One place for all goroutines
//
// Image headers, file systems of the previous tenant, media, DHCP, LLDP and DNS messages are untrusted data, and a
// parser can panic on them. All goroutines of the ramdisk therefore start here. "make lint" rejects go statements,
// sync.WaitGroup, errgroup and the AfterFunc functions elsewhere, by a small program that reads the syntax tree,
// because forbidigo matches identifiers and not statements. The effects of a panic:
//
//   - reader, hash and writers of an image, read-ahead of a compressed one, asynchronous command, worker of a burn-in:
//     the error of the command or step.
//   - signing or posting the evidence of an erase: logged and in the result; the disk stays erased and the step
//     succeeds.
//   - description, erase or test of a disk: the error of that disk; the others are listed, erased and tested, and the
//     step fails and names it.
//   - inspection collector: its error in the data for Ironic; the data of the others is sent.
//   - inventory: the fact is missing; without interfaces or disks, the error of the command.
//   - checking or opening a medium, reading a file of it: the error of that medium; the next one is used.
//   - listing the media: the error of that attempt; they are listed again.
//   - files of sysfs, the BMC, connecting to Ironic, querying a time server, loading a module: the error of that
//     attempt; others continue.
//   - one message of DHCP, DHCPv6, ARP, LLDP, multicast DNS, router advertisements: dropped, the next one is read.
//   - a link and its parts, events of the kernel, devices that appear, screen, host name, heartbeats, API, reports:
//     restarted after a pause.
//   - syncing the disks: the error of the command; before a restart or power off a warning.
//   - showing progress, metrics, writing out before power off: ends; nothing depends on it.
//   - the work of PID 1 outside the agent's own restarts, and the stop by signal: shows the stack on every console and
//     restarts the machine.
//
// Of panics at the same place only the 1st, 2nd, 4th, 8th and so on are logged, so that a peer cannot fill the log.
//
// # Panics that it does not contain
//
// "make test-race" finds concurrent map access. Goroutines that libraries start are not contained either. Libraries
// therefore run in goroutines of the ramdisk if they can: Zstandard and LZ4 with a concurrency of one, DHCP by the
// library's codec without its client. The exceptions:
//
//   - net/http, crypto/tls and the resolver of Go parse answers in goroutines of the standard library. A server's
//     goroutine for a connection recovers by itself.
//   - vishvananda/netlink decodes events of links and addresses in its own goroutine. They come from the kernel.
package goroutine
