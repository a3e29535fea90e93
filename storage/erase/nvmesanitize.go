package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
)

// Values of Sanitize and of Get Log Page (NVM Express base specification 2.0, sections "Sanitize command", "Get Log
// Page command" and "Sanitize Status"; libnvme's types.h has the same).
const (
	opGetLogPage = 0x02
	opSanitize   = 0x84

	allNamespaces = 0xffffffff // a log of the whole subsystem

	logSanitize      = 0x81
	logSanitizeBytes = 512

	actionExitFailure = 1 // SANACT in bits 2:0 of dword 10
	actionBlockErase  = 2
	actionOverwrite   = 3
	actionCryptoErase = 4

	// unrestrictedExit is AUSE: after a failed sanitize, actionExitFailure makes the drive usable again. Without it,
	// only a sanitize that succeeds would.
	unrestrictedExit = 1 << 3

	// onePass is OWPASS: the pattern is written once. 0 stands for 16 passes.
	onePass = 1 << 4

	supportsCrypto    = 1 << 0 // SANICAP
	supportsBlock     = 1 << 1
	supportsOverwrite = 1 << 2
)

// States of a sanitize (SSTAT bits 2:0).
const (
	stateCompleted   = 1
	stateInProgress  = 2
	stateFailed      = 3
	stateDeallocated = 4 // completed, and the blocks are deallocated
)

const (
	sanitizeTimeout = 10 * time.Minute // of the command, which starts the sanitize and does not wait for its end
	sanitizeStart   = time.Minute      // from the command to the first sign of the sanitize in the log
)

var (
	// errSanitize is part of all errors of a sanitize of an NVM subsystem.
	errSanitize = errors.New("NVMe sanitize")
	// errNotStarted is returned if the log does not show that a sanitize has started.
	errNotStarted = errors.New("the drive reports success, but not that a sanitize has started")
)

// sanitizeAction is a way in which an NVM subsystem sanitizes itself.
type sanitizeAction struct {
	technique      Technique
	capability     uint32 // bit of SANICAP
	cdw10          uint32 // dword 10 of the command
	estimateOffset int    // place of the estimated time in the log
}

// sanitizeActions are the actions, the preferred one first. NDAS is not set, so that the drive deallocates the blocks:
// those that it keeps allocated can return errors when they are read.
var sanitizeActions = []sanitizeAction{
	{NVMeSanitizeBlock, supportsBlock, actionBlockErase | unrestrictedExit, 12},
	{NVMeSanitizeCrypto, supportsCrypto, actionCryptoErase | unrestrictedExit, 16},
	{NVMeSanitizeOverwrite, supportsOverwrite, actionOverwrite | unrestrictedExit | onePass, 8},
}

// sanitizeLog is the Sanitize Status log page. It survives resets and power cycles.
type sanitizeLog struct {
	progress uint16 // in 1/65536, of a sanitize in progress (SPROG)
	status   uint16 // SSTAT
	command  uint32 // dword 10 of the command that started the sanitize
	page     []byte
}

func (l sanitizeLog) state() uint16 { return l.status & 7 }

// erased reports whether nothing was written since the last sanitize that succeeded (GDE).
func (l sanitizeLog) erased() bool { return l.status&(1<<8) != 0 }

// estimate returns the time that the drive says an action takes, 0 if it does not say.
func (l sanitizeLog) estimate(a sanitizeAction) time.Duration {
	seconds := binary.LittleEndian.Uint32(l.page[a.estimateOffset:])
	if seconds == 0xffffffff {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// isNewer reports whether the log describes a sanitize that started after before was read. If a drive repeats the same
// sanitize, and completes it before the first query, only GDE shows that: the write of the samples clears it.
func (l sanitizeLog) isNewer(before sanitizeLog, a sanitizeAction) bool {
	return l.state() != before.state() || l.erased() && !before.erased() ||
		l.command == a.cdw10 && before.command != a.cdw10
}

// readSanitizeLog reads the log of the subsystem.
func readSanitizeLog(ctx context.Context, d adminDevice) (sanitizeLog, error) {
	if err := ctx.Err(); err != nil {
		return sanitizeLog{}, err
	}
	page := make([]byte, logSanitizeBytes)
	command := adminCommand{
		opcode: opGetLogPage, nsid: allNamespaces, cdw10: logSanitize | (logSanitizeBytes/4-1)<<16,
		timeout: uint32(identifyTimeout.Milliseconds()),
	}
	err := d.admin(&command, page)
	timelimit.Progress(ctx)
	if err != nil {
		return sanitizeLog{}, fmt.Errorf("NVMe sanitize status log: %w", err)
	}
	return sanitizeLog{
		progress: binary.LittleEndian.Uint16(page), status: binary.LittleEndian.Uint16(page[2:]),
		command: binary.LittleEndian.Uint32(page[4:]), page: page,
	}, nil
}

// sanitizeCapabilities returns SANICAP of the controller's data. It is 0 on controllers before NVMe 1.3.
func sanitizeCapabilities(controller []byte) uint32 {
	return binary.LittleEndian.Uint32(controller[328:])
}

// chooseSanitize selects the action for a namespace. A sanitize erases all namespaces of the subsystem. So the error
// wraps ErrUnsupported if there are others, or if other hosts may use the subsystem. It is the bare ErrUnsupported if
// the controller has no sanitize.
func chooseSanitize(controller []byte, scope nvmeScope) (sanitizeAction, error) {
	for _, a := range sanitizeActions {
		if sanitizeCapabilities(controller)&a.capability == 0 {
			continue
		}
		if scope.shared {
			return sanitizeAction{}, fmt.Errorf(
				"%w: NVMe sanitize would erase namespaces of other hosts: the subsystem is shared", ErrUnsupported)
		}
		if len(scope.others) > 0 {
			return sanitizeAction{}, fmt.Errorf("%w: NVMe sanitize would also erase %s",
				ErrUnsupported, namespaceList(scope.others))
		}
		return a, nil
	}
	return sanitizeAction{}, ErrUnsupported
}

// sanitizer sanitizes the subsystem of a namespace.
type sanitizer struct {
	device   adminDevice
	path     string
	size     int64 // of the namespace, as the total of the progress
	shared   bool  // other hosts may use the subsystem
	record   *Recorder
	sampling sampling

	decideOnly bool // see [Options]
}

// sanitizeInstead sanitizes the subsystem because of an error of Format. If that is not possible, it returns the error.
func (s *sanitizer) sanitizeInstead(
	ctx context.Context, controller []byte, scope nvmeScope, device block.Device, siblings []block.Device,
	open func(string) (adminDevice, error), reason error,
) (_ Technique, err error) {
	var holdErr error
	if len(scope.others) > 0 {
		var held []uint32
		var closeAll func() error
		held, closeAll, holdErr = holdSiblings(ctx, siblings, open)
		defer func() { err = errors.Join(err, closeAll()) }()
		if err := ctx.Err(); err != nil {
			return "", err
		}
		scope.others = slices.DeleteFunc(slices.Clone(scope.others), func(id uint32) bool {
			return slices.Contains(held, id)
		})
	}
	a, err := chooseSanitize(controller, scope)
	if err != nil {
		return "", sanitizeRefused(reason, err, holdErr)
	}
	if s.decideOnly {
		return a.technique, nil
	}
	if err := s.sanitize(ctx, a); err != nil {
		return "", fmt.Errorf("%w (%v)", err, reason) //nolint:errorlint // the sanitize failed: not ErrUnsupported
	}
	return a.technique, nil
}

// sanitizeRefused returns the error of a subsystem that is not sanitized because of err, after Format was not used for
// a reason. holdErr is why its other namespaces are in the way; it may be nil.
func sanitizeRefused(reason, err, holdErr error) error {
	if err == ErrUnsupported { //nolint:errorlint // the bare error has no reason to report
		return reason
	}
	if holdErr != nil {
		err = fmt.Errorf("%w: %w", err, holdErr)
	}
	if errors.Is(reason, ErrUnsupported) {
		return errors.Join(reason, err)
	}
	return fmt.Errorf("%w (%v)", reason, err) //nolint:errorlint // Format failed: not ErrUnsupported
}

// holdSiblings opens namespaces exclusively, so that nobody uses them while they are sanitized, and returns their ids.
// With an error it returns no ids: if one of them is in use, or can be attached to controllers of other hosts.
func holdSiblings(
	ctx context.Context, siblings []block.Device, open func(string) (adminDevice, error),
) (ids []uint32, closeAll func() error, err error) {
	var held []adminDevice
	closeAll = func() error {
		var errs []error
		for _, d := range held {
			errs = append(errs, d.close())
		}
		return errors.Join(errs...)
	}
	for _, sibling := range siblings {
		d, err := open(sibling.Path)
		if err != nil {
			return nil, closeAll, err
		}
		held = append(held, d)
		id, err := d.namespace()
		if err != nil {
			return nil, closeAll, err
		}
		namespace, err := identify(ctx, d, identifyNamespace, id)
		if err != nil {
			return nil, closeAll, err
		}
		if sharedNamespace(namespace) {
			return nil, closeAll, fmt.Errorf("%s is shared", sibling.Path)
		}
		ids = append(ids, id)
	}
	return ids, closeAll, nil
}

// sanitize sanitizes the subsystem and reads samples of the namespace. All errors wrap errSanitize.
func (s *sanitizer) sanitize(ctx context.Context, a sanitizeAction) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w (%s): %w", errSanitize, a.technique, err)
		}
	}()
	medium, size, err := s.device.medium()
	if err != nil {
		return err
	}
	taken, err := takeSamples(ctx, medium, size, s.sampling)
	if err != nil {
		return err
	}
	defer taken.free()
	if err := s.run(ctx, a); err != nil {
		return err
	}
	return taken.verify(ctx, medium)
}

// run starts a sanitize and waits for its end.
func (s *sanitizer) run(ctx context.Context, a sanitizeAction) error {
	before, err := readSanitizeLog(ctx, s.device) // after the samples were written: see isNewer
	if err != nil {
		return err
	}
	if before.state() == stateInProgress {
		return fmt.Errorf("%w: another sanitize is in progress", errRejects)
	}
	if err := ctx.Err(); err != nil { // the previous commands can take minutes
		return err
	}
	timelimit.Extend(ctx, sanitizeTimeout)
	startErr := s.send(a.cdw10, sanitizeTimeout)
	timelimit.Progress(ctx)
	var rejected nvmeStatus
	if errors.As(startErr, &rejected) {
		return startErr
	}
	// If the kernel returned an error, for example because the controller was reset, the sanitize may have started.
	if startErr == nil {
		s.record.observe(Progress{Phase: SanitizeStarted, Technique: a.technique, Estimate: before.estimate(a)})
	}
	after, err := s.await(ctx, before.estimate(a), func(l sanitizeLog) bool { return l.isNewer(before, a) })
	switch {
	case errors.Is(err, errNotStarted) && startErr != nil:
		return startErr
	case err != nil:
		return err
	}
	completed := after.state() == stateCompleted || after.state() == stateDeallocated
	s.record.reported(evidence.SourceNVMeSanitize,
		fmt.Sprintf("SSTAT 0x%04x, SCDW10 0x%08x", after.status, after.command), completed)
	switch after.state() {
	case stateCompleted, stateDeallocated:
		return nil
	case stateFailed:
		return errors.Join(fmt.Errorf("the drive reports that the sanitize failed (SSTAT 0x%04x)", after.status),
			s.exitFailure())
	}
	return fmt.Errorf("the drive does not report that the sanitize was completed (SSTAT 0x%04x)", after.status)
}

// send sends a Sanitize command, which has no namespace.
func (s *sanitizer) send(cdw10 uint32, timeout time.Duration) error {
	command := adminCommand{opcode: opSanitize, cdw10: cdw10, timeout: uint32(timeout.Milliseconds())}
	return s.device.admin(&command, nil)
}

// exitFailure makes a drive usable whose last sanitize failed. The error wraps errRejects if the drive still cannot be
// read.
func (s *sanitizer) exitFailure() error {
	err := s.send(actionExitFailure, identifyTimeout)
	// After an exit, drives may still report the failure, and reject the next exit.
	if err == nil || s.device.readable() {
		return nil
	}
	// A drive leaves this state only by a sanitize without AUSE, which nvme-cli sends.
	return fmt.Errorf("%w after a failed sanitize: sanitize it again, for example with nvme sanitize --sanact=2 %s: %w",
		errRejects, s.path, err)
}

// makeReady settles a drive. With decideOnly, a drive that is not settled is an error.
func (s *sanitizer) makeReady(ctx context.Context) error {
	if !s.decideOnly {
		_, err := s.settle(ctx)
		return err
	}
	log, err := readSanitizeLog(ctx, s.device)
	if err != nil {
		return ctx.Err()
	}
	return unsettled(log.state() == stateInProgress, log.state() == stateFailed)
}

// settle waits for a sanitize in progress, and ends the failure mode of the last one, unless other hosts may use the
// subsystem. It reports whether there was one. A drive that does not return its state is not waited for.
func (s *sanitizer) settle(ctx context.Context) (found bool, err error) {
	log, err := readSanitizeLog(ctx, s.device)
	if err != nil {
		return false, ctx.Err()
	}
	if log.state() == stateInProgress {
		found = true
		if log, err = s.await(ctx, 0, func(sanitizeLog) bool { return true }); err != nil {
			return found, fmt.Errorf("sanitize that was in progress: %w", err)
		}
	}
	if log.state() == stateFailed && !s.shared {
		return true, s.exitFailure()
	}
	return found, nil
}

// await waits until no sanitize is in progress, and returns the log. If it was not seen in progress, the log must be
// one that isNew accepts, or the error wraps errNotStarted. The estimate of the drive is 0 if there is none.
func (s *sanitizer) await(
	ctx context.Context, estimate time.Duration, isNew func(sanitizeLog) bool,
) (log sanitizeLog, err error) {
	began, started := time.Now(), false
	w := sanitizeWait{size: s.size, stall: max(sanitizeStall, 2*estimate), record: s.record}
	err = w.await(ctx, func() (progress uint16, ended bool, err error) {
		if log, err = readSanitizeLog(ctx, s.device); err != nil {
			return 0, false, err
		}
		if log.state() == stateInProgress {
			started = true
			return log.progress, false, nil
		}
		started = started || isNew(log)
		return 0, started || time.Since(began) >= sanitizeStart, nil
	})
	if err == nil && !started {
		err = fmt.Errorf("%w (SSTAT 0x%04x)", errNotStarted, log.status)
	}
	return log, err
}

// recoverNVMe makes a namespace usable that is being sanitized, or whose last sanitize failed. The error wraps
// ErrTCGLocked if the drive is locked.
func recoverNVMe(
	ctx context.Context, device block.Device, record *Recorder, open func(string) (adminDevice, error),
) error {
	d, err := open(device.Path)
	if err != nil {
		return err
	}
	defer d.close() //nolint:errcheck // nothing was written
	controller, err := identify(ctx, d, identifyController, 0)
	if err != nil {
		return ctx.Err()
	}
	found := false
	if sanitizeCapabilities(controller) != 0 {
		s := sanitizer{
			device: d, path: device.Path, size: device.Size, shared: sharedSubsystem(controller), record: record,
		}
		if found, err = s.settle(ctx); err != nil {
			return err
		}
	}
	if _, err := checkLockedNVMe(ctx, controller, d, record); err != nil || !found {
		return err
	}
	return block.Rescan(ctx, device.Path) // the kernel could not read the partition table
}
