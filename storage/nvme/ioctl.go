package nvme

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// passthru is struct nvme_passthru_cmd of linux/nvme_ioctl.h.
type passthru struct {
	opcode, flags uint8
	_             uint16
	nsid          uint32
	_, _          uint32
	_             uint64
	address       uint64
	_             uint32
	dataLength    uint32

	cdw10, cdw11, cdw12, cdw13, cdw14, cdw15 uint32

	timeout uint32 // milliseconds
	result  uint32
}

// passthru returns the command as the kernel reads it. Data must be pinned.
func (c Command) passthru() passthru {
	p := passthru{
		opcode: c.Opcode, nsid: c.Namespace, timeout: uint32(c.Timeout.Milliseconds()),
		cdw10: c.CDW10, cdw11: c.CDW11, cdw12: c.CDW12, cdw13: c.CDW13, cdw14: c.CDW14, cdw15: c.CDW15,
	}
	if len(c.Data) > 0 {
		p.address, p.dataLength = uint64(uintptr(unsafe.Pointer(&c.Data[0]))), uint32(len(c.Data))
	}
	return p
}

// Device is a [Transport] by the ioctl of an open controller, such as /dev/nvme0, or of the block device of a
// namespace, such as /dev/nvme0n1, which passes the commands to its controller.
type Device struct{ File *os.File }

// Send implements [Transport].
func (d Device) Send(c Command) error {
	if len(c.Data) > 0 {
		var pinner runtime.Pinner // the command contains the buffer's address
		pinner.Pin(&c.Data[0])
		defer pinner.Unpin()
	}
	p := c.passthru()
	return commandError(control(d.File, &p))
}

// NamespaceID returns the number of the namespace whose block device is open.
func (d Device) NamespaceID() (uint32, error) { return namespaceID(d.File) }

// commandError returns the error of a command: errno is from the kernel, status from the controller.
func commandError(status uintptr, errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	if status != 0 {
		return Status(status)
	}
	return nil
}
