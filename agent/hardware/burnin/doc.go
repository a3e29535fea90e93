// Package burnin tests the processors, the memory, the disks and the network of a machine under load, and verifies
// every result.
//
// It takes the settings of ironic-python-agent's burn-in steps, which run stress-ng and fio, from driver_info of the
// node. Unlike those programs' defaults, it verifies what processors compute and what memory returns, and ends a test
// early, with an error, if the hardware has failed.
//
// Reports contain what was tested in exact figures. Counters of the kernel (thermal throttling, machine checks, errors
// of memory controllers) are read before and after a test. A report contains those that have changed and names those
// that this machine does not have.
//
// # Differences from stress-ng and fio
//
// stress-ng does not verify computed results unless asked to, and both programs continue after wrong data until their
// time is over. Here every result is verified, and a wrong one ends the test: a processor that has computed a wrong
// result is replaced, whatever the remaining hours would show. Memory and disks complete their pass first, so that the
// error names all places that are wrong. The settings have the same names, defaults and units. Each difference exists
// because the other way would report success for something that was not tested, or harm the agent:
//
//   - A timeout of 0, which means forever to stress-ng, is refused: such a step never succeeds.
//   - agent_burnin_vm_vm-bytes is the size for all workers together, as stress-ng implements it (its manual says for
//     each). A percentage is limited so that 64 MiB, or 1 % of all memory if that is more, stay free; a size that
//     leaves less is refused. Without free memory the kernel would panic, because it must not end process 1. Tested
//     memory is freed while less than half of that reserve is free. The result has the number of bytes that were
//     tested.
//   - The kernel unmaps memory with an uncorrected error. The access to it is an error of burnin_memory; elsewhere it
//     ends the process.
//   - More workers than processors are refused if the memory does not suffice for them. stress-ng starts up to 8192.
//   - burnin_disk protects the disks that erase_devices protects, and refuses a disk in use. It fails if no disk was
//     tested, or if a storage controller without a driver hides some. fio writes to all disks, whatever
//     skip_block_devices says. A disk is read past the page cache; one that does not support direct reads is an error.
//   - With agent_burnin_fio_disk_runtime, half of the time is for writing, and everything written is verified even if
//     reading takes longer than the other half.
//   - A SMART self-test (agent_burnin_fio_disk_smart_test) is not supported and refused.
//   - burnin_network connects a node only to a node with the same test, not to one with fio: the data have checksums,
//     and the receiver confirms the bytes that it has verified. A node waits a day for a configured partner, because
//     the partner's earlier steps may take longer, and for a paired partner as long as for pairing; fio waits forever.
//     It receives until 10 minutes after its own agent_burnin_fio_network_runtime, so both nodes need the same value.
//     Connections of other hosts are closed. The port is open only while the node waits for connections.
//   - Uncorrected errors that the hardware reported during the test (EDAC, machine checks) fail the step. Corrected
//     errors and thermal throttling are in the result and in the log, and the result names the counters that the
//     machine does not have. The result of burnin_memory has the counters of EDAC and machine checks before and after
//     the test, whether or not they changed, at most 128; counters of memory modules are omitted first.
//   - Output files have the lines and columns of stress-ng, and the JSON keys of fio, for which there are values. Lines
//     begin with "ironroot:", not with the name of another program.
package burnin
