// Package scsi sends SCSI commands to disks by the ioctl SG_IO of Linux: commands of SCSI Block Commands - 4 (SBC-4,
// INCITS 506) that sanitize a disk, and commands of SCSI Primary Commands - 5 (SPC-5, INCITS 502) that tell whether a
// disk supports them and what state it is in. Package ata wraps its commands for the same transport.
//
// Comments name tables by their titles, because their numbers differ between revisions.
package scsi

import (
	"fmt"
	"time"
)

// Request is a SCSI command.
type Request struct {
	CDB      []byte
	Data     []byte // sent or received; nil if the command transfers none
	ToDevice bool   // Data is sent
	Timeout  time.Duration
}

// Reply is the result of a SCSI command.
type Reply struct {
	Status   byte   // of the SCSI device: 0 is GOOD, 2 CHECK CONDITION
	Host     uint16 // result of the host adapter (DID_* of Linux); 0 without error
	Driver   uint16 // result of the driver (DRIVER_* of Linux); 8 says that there is sense data
	Sense    []byte
	Residual int // bytes of Data that were not transferred
}

// Transport sends SCSI commands to a device.
type Transport interface {
	Send(r Request) (Reply, error)
}

const (
	statusGood           = 0
	statusCheckCondition = 2
	driverSense          = 8
)

// hostResults are the results of a host adapter in Linux (include/scsi/scsi_status.h).
var hostResults = map[uint16]string{
	1: "no connection", 2: "bus busy", 3: "timed out", 4: "bad target", 5: "aborted", 7: "error of the adapter",
	8: "reset",
}

// Result returns the sense data of a reply, nil if the command succeeded without any. The error is the transport's;
// sense data that report the failure of the command are no error.
func (r Reply) Result(command string) (*Sense, error) {
	switch {
	case r.Host != 0:
		text := hostResults[r.Host]
		if text == "" {
			text = "unknown"
		}
		return nil, fmt.Errorf("%s: host adapter result 0x%02x (%s)", command, r.Host, text)
	case r.Driver&0x0f != 0 && r.Driver&0x0f != driverSense:
		return nil, fmt.Errorf("%s: driver result 0x%02x", command, r.Driver)
	case r.Status == statusGood:
		return nil, nil
	case r.Status != statusCheckCondition:
		return nil, fmt.Errorf("%s: SCSI status 0x%02x", command, r.Status)
	}
	sense, err := ParseSense(r.Sense)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return &sense, nil
}

// CommandError is the error of a command that the device rejected.
type CommandError struct {
	Command        string
	Key, ASC, ASCQ byte // sense data
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("%s: rejected (sense key 0x%x, additional sense 0x%02x 0x%02x)",
		e.Command, e.Key, e.ASC, e.ASCQ)
}

// Unsupported reports whether the disk does not know the command, or a field of it (SPC-5, sense key ILLEGAL REQUEST).
func (e *CommandError) Unsupported() bool { return e.Key == keyIllegalRequest }

// Disk is a SCSI disk. Its methods must not be called concurrently.
type Disk struct{ transport Transport }

// New returns the disk behind a transport.
func New(t Transport) Disk { return Disk{t} }

// commandTimeout is the time limit of commands that return at once. A disk that must spin up needs up to half of it.
const commandTimeout = 60 * time.Second

// command is a SCSI command with its data.
type command struct {
	name     string
	cdb      []byte
	data     []byte
	toDevice bool
}

// run sends a command, and returns the bytes that were received. The error is a [CommandError] if the device rejected
// the command.
func (d Disk) run(c command) ([]byte, error) {
	reply, sense, err := d.send(c)
	if err != nil {
		return nil, err
	}
	if sense != nil && sense.Key != KeyNoSense && sense.Key != KeyRecovered {
		return nil, &CommandError{c.name, sense.Key, sense.ASC, sense.ASCQ}
	}
	return c.data[:max(0, len(c.data)-max(0, reply.Residual))], nil
}

// maxAttentions limits the number of times that a command is repeated because the device reports UNIT ATTENTION: an
// event that the command has not caused, such as a reset.
const maxAttentions = 3

// send sends a command and returns its sense data, nil if there are none.
func (d Disk) send(c command) (Reply, *Sense, error) {
	for attempt := 0; ; attempt++ {
		reply, err := d.transport.Send(Request{CDB: c.cdb, Data: c.data, ToDevice: c.toDevice, Timeout: commandTimeout})
		if err != nil {
			return Reply{}, nil, fmt.Errorf("%s: %w", c.name, err)
		}
		sense, err := reply.Result(c.name)
		if sense != nil && sense.Key == keyUnitAttention && attempt < maxAttentions {
			continue
		}
		return reply, sense, err
	}
}
