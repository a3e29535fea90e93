package ata

import (
	"errors"
	"fmt"
	"time"

	"ironroot/storage/scsi"
)

// Drive is an ATA drive. Its methods must not be called concurrently.
type Drive struct{ transport scsi.Transport }

// New returns the drive behind a transport.
func New(t scsi.Transport) Drive { return Drive{t} }

// ErrNoRegisters is returned if a command succeeded, but the registers with its result were not returned.
var ErrNoRegisters = errors.New("no ATA registers returned")

// Registers are the outputs of a command.
type Registers struct {
	Error, Device, Status byte
	Count                 uint16
	LBA                   uint64 // 48 bits
	Short                 bool   // the upper halves of Count and LBA were not returned and read as zero
}

// Bits of [Registers].
const (
	statusError      = 1 << 0
	statusDeviceFail = 1 << 5
)

// CommandError is the error of a command that the drive, or the translation to ATA, rejected.
type CommandError struct {
	Command        string
	Registers      *Registers // nil if they were not returned
	Key, ASC, ASCQ byte       // sense data
}

func (e *CommandError) Error() string {
	if e.Registers != nil {
		return fmt.Sprintf("%s: rejected by the drive (ATA status 0x%02x, error 0x%02x)",
			e.Command, e.Registers.Status, e.Registers.Error)
	}
	return fmt.Sprintf("%s: rejected (sense key 0x%x, additional sense 0x%02x 0x%02x)",
		e.Command, e.Key, e.ASC, e.ASCQ)
}

// commandTimeout is the time limit of commands that return at once. A drive that must spin up needs up to
// half of it.
const commandTimeout = 60 * time.Second

// command is an ATA command with its inputs.
type command struct {
	name     string
	opcode   byte
	extended bool // 48-bit command
	feature  uint16
	count    uint16
	lba      uint64
	device   byte
	data     []byte
	toDevice bool
	timeout  time.Duration // 0 stands for commandTimeout
}

// run sends a command. The registers are nil if none were returned.
func (d Drive) run(c command) (*Registers, error) {
	request := scsi.Request{CDB: c.cdb(), Data: c.data, ToDevice: c.toDevice, Timeout: c.timeout}
	if request.Timeout == 0 {
		request.Timeout = commandTimeout
	}
	reply, err := d.transport.Send(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	registers, err := result(reply, c.name)
	if err == nil && c.data != nil && reply.Residual != 0 {
		got := len(c.data) - reply.Residual
		return nil, fmt.Errorf("%s: got %d bytes transferred, want %d", c.name, got, len(c.data))
	}
	return registers, err
}
