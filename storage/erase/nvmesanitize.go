package erase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/nvme"
)

// sanitizeStart is the longest time from the command to the first sign of the sanitize in the log.
const sanitizeStart = time.Minute

var (
	// errSanitize is part of all errors of a sanitize of an NVM subsystem.
	errSanitize = errors.New("NVMe sanitize")
	// errNotStarted is returned if the log does not show that a sanitize has started.
	errNotStarted = errors.New("the drive reports success, but not that a sanitize has started")
)

// sanitizeAction is a way in which an NVM subsystem sanitizes itself.
type sanitizeAction struct {
	technique Technique
	method    nvme.SanitizeMethod
}

// sanitizeActions are the actions, the preferred one first.
var sanitizeActions = []sanitizeAction{
	{NVMeSanitizeBlock, nvme.SanitizeBlock},
	{NVMeSanitizeCrypto, nvme.SanitizeCrypto},
	{NVMeSanitizeOverwrite, nvme.SanitizeOverwrite},
}

// chooseSanitize selects the action for a namespace. A sanitize erases all namespaces of the subsystem. So the error
// wraps ErrUnsupported if there are others, or if other hosts may use the subsystem. It is the bare ErrUnsupported if
// the controller has no sanitize.
func chooseSanitize(controller nvme.Identity, scope nvmeScope) (sanitizeAction, error) {
	for _, a := range sanitizeActions {
		if !controller.SanitizeCapabilities.Supports(a.method) {
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
	ctx context.Context, controller nvme.Identity, scope nvmeScope, device block.Device, siblings []block.Device,
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
		namespace, err := queryNVMe(ctx, d).Namespace(id)
		if err != nil {
			return nil, closeAll, err
		}
		if namespace.Shared {
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
	before, err := queryNVMe(ctx, s.device).SanitizeStatus() // after the samples were written: see IsNewer
	if err != nil {
		return err
	}
	if before.InProgress() {
		return fmt.Errorf("%w: another sanitize is in progress", errRejects)
	}
	if err := ctx.Err(); err != nil { // the previous commands can take minutes
		return err
	}
	timelimit.Extend(ctx, nvme.SanitizeTimeout)
	startErr := nvme.New(s.device).Sanitize(a.method)
	timelimit.Progress(ctx)
	var rejected nvme.Status
	if errors.As(startErr, &rejected) {
		return startErr
	}
	// If the kernel returned an error, for example because the controller was reset, the sanitize may have started.
	estimate := before.Estimate(a.method)
	if startErr == nil {
		s.record.observe(Progress{Phase: SanitizeStarted, Technique: a.technique, Estimate: estimate})
	}
	after, err := s.await(ctx, estimate, func(l nvme.SanitizeStatus) bool { return l.IsNewer(before, a.method) })
	switch {
	case errors.Is(err, errNotStarted) && startErr != nil:
		return startErr
	case err != nil:
		return err
	}
	s.record.reported(evidence.SourceNVMeSanitize,
		fmt.Sprintf("SSTAT 0x%04x, SCDW10 0x%08x", after.Status, after.Command), after.Completed())
	switch {
	case after.Completed():
		return nil
	case after.Failed():
		return errors.Join(fmt.Errorf("the drive reports that the sanitize failed (SSTAT 0x%04x)", after.Status),
			s.exitFailure())
	}
	return fmt.Errorf("the drive does not report that the sanitize was completed (SSTAT 0x%04x)", after.Status)
}

// exitFailure makes a drive usable whose last sanitize failed. The error wraps errRejects if the drive still cannot be
// read.
func (s *sanitizer) exitFailure() error {
	err := nvme.New(s.device).ExitFailureMode()
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
	log, err := queryNVMe(ctx, s.device).SanitizeStatus()
	if err != nil {
		return ctx.Err()
	}
	return unsettled(log.InProgress(), log.Failed())
}

// settle waits for a sanitize in progress, and ends the failure mode of the last one, unless other hosts may use the
// subsystem. It reports whether there was one. A drive that does not return its state is not waited for.
func (s *sanitizer) settle(ctx context.Context) (found bool, err error) {
	log, err := queryNVMe(ctx, s.device).SanitizeStatus()
	if err != nil {
		return false, ctx.Err()
	}
	if log.InProgress() {
		found = true
		if log, err = s.await(ctx, 0, func(nvme.SanitizeStatus) bool { return true }); err != nil {
			return found, fmt.Errorf("sanitize that was in progress: %w", err)
		}
	}
	if log.Failed() && !s.shared {
		return true, s.exitFailure()
	}
	return found, nil
}

// await waits until no sanitize is in progress, and returns the log. If it was not seen in progress, the log must be
// one that isNew accepts, or the error wraps errNotStarted. The estimate of the drive is 0 if there is none.
func (s *sanitizer) await(
	ctx context.Context, estimate time.Duration, isNew func(nvme.SanitizeStatus) bool,
) (log nvme.SanitizeStatus, err error) {
	began, started := time.Now(), false
	w := sanitizeWait{size: s.size, stall: max(sanitizeStall, 2*estimate), record: s.record}
	err = w.await(ctx, func() (progress uint16, ended bool, err error) {
		if log, err = queryNVMe(ctx, s.device).SanitizeStatus(); err != nil {
			return 0, false, err
		}
		if log.InProgress() {
			started = true
			return log.Progress, false, nil
		}
		started = started || isNew(log)
		return 0, started || time.Since(began) >= sanitizeStart, nil
	})
	if err == nil && !started {
		err = fmt.Errorf("%w (SSTAT 0x%04x)", errNotStarted, log.Status)
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
	controller, err := queryNVMe(ctx, d).Identify()
	if err != nil {
		return ctx.Err()
	}
	found := false
	if controller.SanitizeCapabilities != 0 {
		s := sanitizer{
			device: d, path: device.Path, size: device.Size, shared: controller.SharedSubsystem, record: record,
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
