package scsi

import (
	"math"
	"os"
	"time"
	"unsafe"
)

// sgHeader is struct sg_io_hdr of scsi/sg.h.
type sgHeader struct {
	interfaceID  int32
	direction    int32
	cdbLength    uint8
	senseSize    uint8
	_            uint16 // number of buffers
	dataLength   uint32
	data         unsafe.Pointer
	cdb          unsafe.Pointer
	sense        unsafe.Pointer
	timeout      uint32 // milliseconds
	_            uint32 // flags
	_            int32
	_            unsafe.Pointer
	status       uint8
	_, _         uint8
	senseWritten uint8
	hostStatus   uint16
	driverStatus uint16
	residual     int32
	_            uint32 // duration
	_            uint32 // info
}

const (
	sgInterface  = 'S'
	sgNoData     = -1
	sgToDevice   = -2
	sgFromDevice = -3
)

// MaxTimeout is the largest timeout of a command. With a larger one, Linux sets no time limit.
const MaxTimeout = math.MaxInt32 * time.Millisecond

// SG is a [Transport] by the ioctl SG_IO of an open block device.
type SG struct{ File *os.File }

// Send implements [Transport].
func (s SG) Send(r Request) (Reply, error) { return send(s.File, r, control) }

// send sends a request by an ioctl.
func send(f *os.File, r Request, ioctl func(*os.File, *sgHeader) error) (Reply, error) {
	sense := make([]byte, 64)
	h := sgHeader{
		interfaceID: sgInterface, direction: sgNoData, cdbLength: uint8(len(r.CDB)), senseSize: uint8(len(sense)),
		cdb: unsafe.Pointer(&r.CDB[0]), sense: unsafe.Pointer(&sense[0]),
		timeout: uint32(min(r.Timeout, MaxTimeout).Milliseconds()),
	}
	if len(r.Data) > 0 {
		h.direction = sgFromDevice
		if r.ToDevice {
			h.direction = sgToDevice
		}
		h.data, h.dataLength = unsafe.Pointer(&r.Data[0]), uint32(len(r.Data))
	}
	if err := ioctl(f, &h); err != nil {
		return Reply{}, err
	}
	return Reply{
		Status: h.status, Host: h.hostStatus, Driver: h.driverStatus, Residual: int(h.residual),
		Sense: sense[:min(int(h.senseWritten), len(sense))],
	}, nil
}
