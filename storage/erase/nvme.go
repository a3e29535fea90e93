package erase

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/nvme"
)

// adminDevice sends admin commands to the controller of a namespace.
type adminDevice interface {
	nvme.Transport
	namespace() (uint32, error)
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
		scope.lockUnknown, err = checkLockedNVMe(ctx, *controller, d, o.Recorder)
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
	if controller.SanitizeCapabilities != 0 {
		if err := s.makeReady(ctx); err != nil {
			return "", scope, fmt.Errorf("%w: %w", errSanitize, err)
		}
	}
	technique, setting, err := formatSetting(*controller, scope)
	if err == nil && !o.decideOnly {
		err = formatNVMe(ctx, d, technique, namespace, setting, s.sampling)
	}
	var rejected nvme.Status
	if o.NVMeSanitize && (errors.Is(err, ErrUnsupported) || errors.As(err, &rejected)) {
		technique, err = s.sanitizeInstead(ctx, *controller, scope, device, o.Siblings, open, err)
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
	ctx context.Context, d adminDevice, technique Technique, namespace nvme.Namespace, setting nvme.FormatErase,
	how sampling,
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
	timelimit.Extend(ctx, nvme.FormatTimeout) // after that the kernel gives up
	err = how.record.during(ctx, technique, 0, func() error { return nvme.New(d).Format(namespace, setting) })
	timelimit.Progress(ctx)
	if err != nil {
		return fmt.Errorf("NVMe format: %w", err)
	}
	text := fmt.Sprintf("command with secure erase setting %d completed with status 0", setting)
	how.record.reported(evidence.SourceFormat, text, true)
	return taken.verify(ctx, medium)
}

// formatSetting selects the erase of a Format.
func formatSetting(controller nvme.Identity, scope nvmeScope) (Technique, nvme.FormatErase, error) {
	switch {
	case !controller.FormatCommand:
		return "", 0, fmt.Errorf("%w: the NVMe controller has no Format command", ErrUnsupported)
	case scope.shared:
		return "", 0, fmt.Errorf("%w: NVMe Format could erase namespaces of other hosts: the subsystem is shared",
			ErrUnsupported)
	case (controller.FormatsAll || controller.ErasesAll) && len(scope.others) > 0:
		return "", 0, fmt.Errorf("%w: NVMe Format would also erase %s", ErrUnsupported, namespaceList(scope.others))
	case controller.FormatsCrypto:
		return NVMeCrypto, nvme.EraseCrypto, nil
	}
	return NVMeUser, nvme.EraseUserData, nil
}

// nvmeQueries sends commands that change nothing. After ctx has ended, it sends none. Each command is progress.
type nvmeQueries struct {
	ctx    context.Context
	device nvme.Transport
}

// queryNVMe returns the controller of a device for commands that change nothing.
func queryNVMe(ctx context.Context, d nvme.Transport) nvme.Controller {
	return nvme.New(nvmeQueries{ctx, d})
}

// Send implements [nvme.Transport].
func (q nvmeQueries) Send(c nvme.Command) error {
	if err := q.ctx.Err(); err != nil {
		return err
	}
	err := q.device.Send(c)
	timelimit.Progress(q.ctx)
	return err
}

// nvmeFile is the block device of a namespace, which passes admin commands to the controller.
type nvmeFile struct {
	nvme.Device
}

func (n nvmeFile) namespace() (uint32, error) { return n.NamespaceID() }

func (n nvmeFile) close() error { return n.File.Close() }

func (n nvmeFile) medium() (*os.File, int64, error) {
	size, _, err := block.Geometry(n.File)
	return n.File, size, err
}

func (n nvmeFile) readable() bool {
	f, err := os.OpenFile(n.File.Name(), os.O_RDONLY|directIO, 0)
	if err != nil {
		return false
	}
	_, err = f.ReadAt(alignedZeros()[:sampleSize], 0)
	return errors.Join(err, f.Close()) == nil
}
