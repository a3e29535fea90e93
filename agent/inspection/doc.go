// Package inspection collects the data of Ironic's in-band inspection about a machine and posts it.
//
// The data, the names of the collectors and the form of the error text are ironic-python-agent's. Data that
// ironic-python-agent gets from dmidecode, lshw and hardware-detect is read from the kernel. Benchmarks are measured by
// the code of package burnin. They read disks and never write to them.
//
// # Unknown collectors
//
// If ipa-inspection-collectors names a collector that does not exist, ironic-python-agent posts only the error. Ironic
// rejects data without an inventory, so the node waits until its timeout, and the error is lost. Here the inventory is
// posted with the error, so that the inspection fails at once with the text of the error.
//
// # Benchmarks are measured by the code of the burn-in
//
// hardware-detect runs sysbench, fio and hdparm. Here the same names have figures of package burnin, so that no program
// is added and results are verified. loops_per_sec counts the same unit as sysbench. A bandwidth is measured by a loop
// in Go that writes words. Figures can be compared between nodes with ironroot; to compare them with
// ironic-python-agent's, measure one node with both.
//
// The first processor of each socket is measured, while hardware-detect takes the number of the socket for the number
// of a processor. A measurement takes 5 s or 1 s instead of 10 s or 5 s, and the time for all disks is limited, because
// an inspection has a timeout. Large reads of a disk are 8 at a time, or fewer if there are many disks, instead of 32,
// because their buffers are memory. There is no destructive mode.
package inspection
