package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
)

// adminCommand is struct nvme_passthru_cmd of linux/nvme_ioctl.h.
type adminCommand struct {
	opcode, flags uint8
	_             uint16
	nsid          uint32
	_, _          uint32
	_             uint64
	address       uint64
	_             uint32
	dataLength    uint32
	cdw10, cdw11  uint32
	_, _, _, _    uint32
	timeout       uint32 // milliseconds
	result        uint32
}

const (
	ioctlAdmin = 0xc0484e41 // _IOWR('N', 0x41, 72 bytes)
	ioctlID    = 0x4e40     // _IO('N', 0x40)

	opIdentify = 0x06
	opFormat   = 0x80

	identifyNamespace  = 0x00
	identifyController = 0x01
	identifyActive     = 0x02 // list of the namespaces attached to the controller
	identifyAllocated  = 0x10 // list of the namespaces of the subsystem

	eraseUserData = 1
	eraseCrypto   = 2

	identifyTimeout = 60 * time.Second
	formatTimeout   = 24 * time.Hour // large drives that erase every block take hours
)

// adminDevice sends admin commands to the controller of a namespace.
type adminDevice interface {
	namespace() (uint32, error)
	admin(c *adminCommand, data []byte) error
	medium() (f *os.File, size int64, err error) // for reads and writes, by direct I/O if possible
	readable() bool                              // whether the first block can be read from the medium
	close() error
}

// eraseNVMe erases a namespace by Format NVM, keeping its block format. If Format cannot be used or the controller
// rejects it, eraseNVMe sanitizes the subsystem. The error wraps ErrUnsupported if both are disabled, if the controller
// supports neither, or if they could erase other namespaces. It wraps ErrTCGLocked if the drive is locked. The scope is
// valid even with an error. After ctx has ended, eraseNVMe sends no further command.
func eraseNVMe(
	ctx context.Context, device block.Device, o Options, open func(string) (adminDevice, error),
) (_ Technique, scope nvmeScope, err error) {
	d, err := open(device.Path)
	if err != nil {
		scope = nvmeScope{unknown: err, lockUnknown: true}
		o.Recorder.change(func(r *Report) { r.Namespaces = scope.namespaces() })
		return "", scope, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	controller, namespace, scope := identifyAll(ctx, d)
	o.Recorder.change(func(r *Report) { r.Namespaces = scope.namespaces() })
	if controller == nil {
		scope.lockUnknown, err = lockNotRead(ctx, scope.unknown, o.Recorder)
	} else {
		scope.lockUnknown, err = checkLockedNVMe(ctx, controller, d, o.Recorder)
	}
	if err != nil {
		return "", scope, err
	}
	if scope.unknown != nil {
		return "", scope, scope.unknown
	}
	o.prove = scope.lockUnknown
	if !o.NVMe {
		return "", scope, fmt.Errorf("%w: NVMe Format is disabled", ErrUnsupported)
	}
	s := sanitizer{
		device: d, path: device.Path, size: device.Size, shared: scope.shared,
		record: o.Recorder, sampling: o.sampling(device), decideOnly: o.decideOnly,
	}
	if sanitizeCapabilities(controller) != 0 {
		if err := s.makeReady(ctx); err != nil {
			return "", scope, fmt.Errorf("%w: %w", errSanitize, err)
		}
	}
	technique, setting, err := formatSetting(controller, scope)
	if err == nil && !o.decideOnly {
		err = formatNVMe(ctx, d, technique, formatCommand(namespace, scope.nsid, setting), s.sampling)
	}
	var rejected nvmeStatus
	if o.NVMeSanitize && (errors.Is(err, ErrUnsupported) || errors.As(err, &rejected)) {
		technique, err = s.sanitizeInstead(ctx, controller, scope, device, o.Siblings, open, err)
		if err == nil { // it has erased all namespaces
			o.Recorder.change(func(r *Report) { r.Namespaces.Attached = nil })
		}
	}
	if err != nil {
		return "", scope, err
	}
	if o.decideOnly {
		return technique, scope, nil
	}
	return technique, scope, block.Flush(ctx, device.Path)
}

// formatNVMe erases a namespace by a Format NVM command, and reads samples of it.
func formatNVMe(
	ctx context.Context, d adminDevice, technique Technique, command adminCommand, how sampling,
) error {
	medium, size, err := d.medium()
	if err != nil {
		return err
	}
	taken, err := takeSamples(ctx, medium, size, how)
	if err != nil {
		return err
	}
	defer taken.free()
	timelimit.Extend(ctx, formatTimeout) // after that the kernel gives up
	err = how.record.during(ctx, technique, 0, func() error { return d.admin(&command, nil) })
	timelimit.Progress(ctx)
	if err != nil {
		return fmt.Errorf("NVMe format: %w", err)
	}
	text := fmt.Sprintf("command with secure erase setting %d completed with status 0", command.cdw10>>9&7)
	how.record.reported(evidence.SourceFormat, text, true)
	return taken.verify(ctx, medium)
}

// formatCommand returns the Format NVM command for a namespace.
func formatCommand(namespace []byte, nsid, setting uint32) adminCommand {
	return adminCommand{
		opcode: opFormat, nsid: nsid, cdw10: formatWord(namespace, setting),
		timeout: uint32(formatTimeout.Milliseconds()),
	}
}

// formatSetting selects the secure erase setting of a Format. OACS bit 1 is set if the controller supports Format, FNA
// bit 2 if it supports a cryptographic erase. If FNA bit 0 or 1 is set, a format or its erase covers all namespaces of
// the subsystem.
func formatSetting(controller []byte, scope nvmeScope) (Technique, uint32, error) {
	oacs, fna := binary.LittleEndian.Uint16(controller[256:]), controller[524]
	switch {
	case oacs&2 == 0:
		return "", 0, fmt.Errorf("%w: the NVMe controller has no Format command", ErrUnsupported)
	case scope.shared:
		return "", 0, fmt.Errorf("%w: NVMe Format could erase namespaces of other hosts: the subsystem is shared",
			ErrUnsupported)
	case fna&3 != 0 && len(scope.others) > 0:
		return "", 0, fmt.Errorf("%w: NVMe Format would also erase %s", ErrUnsupported, namespaceList(scope.others))
	case fna&4 != 0:
		return NVMeCrypto, eraseCrypto, nil
	}
	return NVMeUser, eraseUserData, nil
}

// formatWord returns command dword 10: the namespace's current format (FLBAS, DPS) and the secure erase setting.
func formatWord(namespace []byte, setting uint32) uint32 {
	flbas, dps := uint32(namespace[26]), uint32(namespace[29])
	word := flbas & 0x0f         // format, lower bits
	word |= flbas >> 4 & 1 << 4  // metadata settings
	word |= dps & 7 << 5         // protection information
	word |= dps >> 3 & 1 << 8    // position of the protection information
	word |= setting << 9         // secure erase settings
	word |= flbas >> 5 & 3 << 12 // format, upper bits
	return word
}

// identify reads a data structure of the controller. After ctx has ended, it sends no command.
func identify(ctx context.Context, d adminDevice, structure, nsid uint32) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data := make([]byte, 4096)
	command := adminCommand{
		opcode: opIdentify, nsid: nsid, cdw10: structure, timeout: uint32(identifyTimeout.Milliseconds()),
	}
	err := d.admin(&command, data)
	timelimit.Progress(ctx)
	if err != nil {
		return nil, fmt.Errorf("NVMe identify (CNS 0x%02x): %w", structure, err)
	}
	return data, nil
}

// nvmeFile is the block device of a namespace, which passes admin commands to the controller.
type nvmeFile struct{ file *os.File }

// openNVMe opens a namespace exclusively: before a Format, the kernel does not check whether it is mounted.
func openNVMe(path string) (adminDevice, error) {
	f, _, err := openExclusive(path)
	if err != nil {
		return nil, err
	}
	return nvmeFile{f}, nil
}

// openIdentify opens a namespace or controller for commands that change nothing.
func openIdentify(path string) (adminDevice, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return nvmeFile{f}, nil
}

func (n nvmeFile) close() error { return n.file.Close() }

func (n nvmeFile) medium() (*os.File, int64, error) {
	size, _, err := block.Geometry(n.file)
	return n.file, size, err
}

func (n nvmeFile) readable() bool {
	f, err := os.OpenFile(n.file.Name(), os.O_RDONLY|directIO, 0)
	if err != nil {
		return false
	}
	_, err = f.ReadAt(alignedZeros()[:sampleSize], 0)
	return errors.Join(err, f.Close()) == nil
}

func (n nvmeFile) namespace() (uint32, error) {
	id, err := namespaceID(n.file)
	return uint32(id), err
}

func (n nvmeFile) admin(c *adminCommand, data []byte) error {
	if len(data) > 0 {
		var pinner runtime.Pinner // the command contains the buffer's address
		pinner.Pin(&data[0])
		defer pinner.Unpin()
		c.address, c.dataLength = uint64(uintptr(unsafe.Pointer(&data[0]))), uint32(len(data))
	}
	return commandError(sendAdmin(n.file, c))
}

// commandError returns the error of a command: errno is from the kernel, status from the controller.
func commandError(status uintptr, errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	if status != 0 {
		return nvmeStatus(status)
	}
	return nil
}

// nvmeStatus is the error of a command that the controller rejected or aborted: the status type in bits 10:8, the
// status code in bits 7:0, and flags.
type nvmeStatus uint16

// statusTexts are the meanings of the statuses that Format and Sanitize return (NVM Express base specification 2.0,
// section "Status Code (SC)").
var statusTexts = map[nvmeStatus]string{
	0x001: "invalid command opcode",
	0x002: "invalid field in command",
	0x006: "internal error",
	0x00c: "command sequence error",
	0x01c: "sanitize failed",
	0x01d: "sanitize in progress",
	0x020: "namespace is write protected",
	0x084: "format in progress",
	0x10a: "invalid format",
	0x10b: "firmware activation requires a reset",
	0x110: "firmware activation requires a reset of the NVM subsystem",
	0x123: "sanitize prohibited while a persistent memory region is enabled",
}

func (s nvmeStatus) Error() string {
	if text := statusTexts[s&0x7ff]; text != "" {
		return fmt.Sprintf("NVMe status 0x%x (%s)", uint16(s), text)
	}
	return fmt.Sprintf("NVMe status 0x%x", uint16(s))
}
