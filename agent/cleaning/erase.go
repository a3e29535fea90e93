package cleaning

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ironroot/agent/fault"
	"ironroot/agent/inventory/smbios"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// startErase starts a step that erases disks, and decides what it does to each of them. If a disk is protected, or a
// conflict keeps the step from beginning, it stores the evidence that nothing was erased.
func (m *Steps) startErase(ctx context.Context, n *node.Node, step string) (*diskRun, plan, error) {
	run, err := m.startDiskRun(ctx, n, "disk not erased", step)
	if err != nil {
		return nil, plan{}, err
	}
	p, err := run.plan(ctx, n)
	if err != nil {
		return nil, plan{}, err
	}
	run.announce()
	return run, p, nil
}

// EraseDevices erases all data of all disks that are not protected. Arrays that Ironic created are erased and kept, see
// prepareArrays.
func (m *Steps) EraseDevices(ctx context.Context, n *node.Node) (any, error) {
	if err := checkIterations(n); err != nil {
		return nil, err
	}
	run, plan, err := m.startErase(ctx, n, fullErase)
	if err != nil {
		return nil, err
	}
	run.eraseArrays(ctx)
	run.eraseAll(ctx, plan)
	run.restartArrays(ctx)
	return run.end(ctx, unattachedFail)
}

// eraseAll erases all data of the disks of the step. It erases disk_erasure_concurrency disks in parallel. Several
// namespaces of an NVMe controller count as one disk.
func (r *diskRun) eraseAll(ctx context.Context, p plan) {
	group := goroutine.NewGroup()
	group.SetLimit(r.flags.concurrency)
	for _, unit := range p.units {
		group.Go(func() error {
			for _, d := range unit {
				r.act(ctx, p.decisions[d.Path])
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors: r collects them
}

// EraseMetadata removes partition tables and signatures from all disks and partitions that are not protected. Arrays
// that Ironic created are wiped and kept where that is safe, see prepareArrays.
func (m *Steps) EraseMetadata(ctx context.Context, n *node.Node) (any, error) {
	run, plan, err := m.startErase(ctx, n, "erase_devices_metadata")
	if err != nil {
		return nil, err
	}
	for _, d := range run.lastFirst() {
		run.act(ctx, plan.decisions[d.Path])
	}
	run.restartArrays(ctx)
	return run.end(ctx, unattachedNoted)
}

// EraseExpress formats NVMe disks, which takes seconds. It erases the metadata of all other disks, of disks that cannot
// be formatted, and of all disks if agent_enable_nvme_secure_erase is off. It keeps arrays that Ironic created, see
// prepareArrays: an array with members on disks to format is overwritten with zeros, and any other loses its metadata.
func (m *Steps) EraseExpress(ctx context.Context, n *node.Node) (any, error) {
	run, plan, err := m.startErase(ctx, n, expressErase)
	if err != nil {
		return nil, err
	}
	run.eraseArrays(ctx)
	for _, d := range run.lastFirst() {
		run.act(ctx, plan.decisions[d.Path])
	}
	run.restartArrays(ctx)
	if !run.flags.nvme { // the step promises no more than erase_devices_metadata
		return run.end(ctx, unattachedNoted)
	}
	return run.end(ctx, unattachedFail)
}

// end checks for storage that the step could not erase, and returns the step's result.
func (r *diskRun) end(ctx context.Context, policy unattachedPolicy) (any, error) {
	r.examineUnbound(ctx) // first: if a driver is loaded in the meantime, its disks are listed below
	r.failAppeared(ctx)
	r.examineControllers(ctx, policy)
	r.storeEvidence(ctx, nil)
	return r.finish()
}

// finish returns the reports by disk, or an error with the devices that were erased and the errors of all disks that
// were not.
func (r *diskRun) finish() (any, error) {
	if err := r.results.err(); err != nil {
		return nil, fault.BlockDeviceErase("erased: %s; not erased: %w", r.erasedText(), err)
	}
	result := map[string]any{}
	for path, report := range r.results.reports() {
		result[path] = report
	}
	return result, nil
}

// maxErasedText limits the bytes of the devices that an error lists as erased.
const maxErasedText = 1024

// erasedText lists devices that were erased, with their reports, as "/dev/sda (overwrite), /dev/sdb (overwrite)". If
// they do not fit into maxErasedText bytes, it ends with the number of those left out.
func (r *diskRun) erasedText() string {
	erased := map[string]erase.Report{}
	for _, report := range r.results.reports() {
		maps.Copy(erased, report.Erased)
	}
	if len(erased) == 0 {
		return "none"
	}
	var words []string
	length := 0
	for i, path := range slices.Sorted(maps.Keys(erased)) {
		word := fmt.Sprintf("%s (%s)", path, erased[path])
		if length += len(word) + len(", "); length > maxErasedText {
			words = append(words, fmt.Sprintf("and %d more", len(erased)-i))
			break
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// variablesNotSearched is the result of erase_pstore on a machine whose UEFI variables may contain crash logs that the
// step cannot reach.
const variablesNotSearched = "UEFI variables not searched for crash logs: the machine was booted by BIOS"

// ErasePstore removes the crash logs of earlier kernels from the firmware.
func (m *Steps) ErasePstore(ctx context.Context) (any, error) {
	searched, err := erase.Pstore(ctx, m.o.System)
	if err != nil || searched || m.lacksUEFI() {
		return nil, err
	}
	m.o.Log.Warn("UEFI variables not searched for crash logs", "reason", "the machine was booted by BIOS")
	return variablesNotSearched, nil
}

// lacksUEFI reports whether the firmware's SMBIOS table says that it does not support UEFI.
func (m *Steps) lacksUEFI() bool {
	read := func(name string) []byte {
		data, _ := m.o.System.Files.Read(m.o.System.Sys("firmware/dmi/tables", name)) // nil if the table is missing
		return data
	}
	table, err := smbios.Parse(read("smbios_entry_point"), read("DMI"))
	return err == nil && table.LacksUEFI()
}

// eraseFully erases all data of a device by its best technique.
func (r *diskRun) eraseFully(
	ctx context.Context, d block.Device, siblings []block.Device, record *erase.Recorder,
) error {
	options := r.flags.options()
	options.Siblings = siblings
	return r.eraseWith(ctx, d, options, record)
}

// eraseWith erases all data of a device with options and shows the progress.
func (r *diskRun) eraseWith(
	ctx context.Context, d block.Device, options erase.Options, record *erase.Recorder,
) error {
	options.Recorder = record
	return r.withProgress(d, d.Size, record, func() error { return r.m.eraser.Erase(ctx, d, options) })
}

// withProgress calls a function that erases size bytes of a device, and shows its progress.
func (r *diskRun) withProgress(d block.Device, size int64, record *erase.Recorder, do func() error) error {
	r.m.o.Log.Info("erasing disk", "device", d.Path, "bytes", size)
	p := &eraseProgress{m: r.m, device: d}
	p.enter(erasingDisk, r.m.track)
	defer p.end()
	record.Observer = p
	return do()
}

// eraseProgress shows the phases of the erase of a device, each with a tracker of its own.
type eraseProgress struct {
	m        *Steps
	device   block.Device
	recovers bool // the device is not erased: the end of a sanitize that is in progress is waited for
	phase    string
	tracker  status.Tracker // of the phase; nil before the first
}

const erasingDisk = "erasing disk"

// Observe implements [erase.Observer].
func (p *eraseProgress) Observe(now erase.Progress) {
	switch now.Phase {
	case erase.SanitizeStarted:
		p.m.o.Log.Info("sanitize started", startAttrs(p.device, now)...)
	case erase.SelfErasing:
		if now.Elapsed == 0 {
			p.m.o.Log.Info("drive started to erase itself", startAttrs(p.device, now)...)
		}
		message, percent := erasingProgress(now.Elapsed, now.Estimate)
		p.enter("drive erasing itself", p.m.track).SetPercent(message, percent)
	case erase.ReadingBack:
		p.enter("reading disk back", p.m.trackAside).Set(now.Done, now.Total)
	default:
		if p.recovers {
			p.enter("waiting for disk to sanitize itself", p.m.trackAside).Set(now.Done, now.Total)
			return
		}
		p.enter(erasingDisk, p.m.track).Set(now.Done, now.Total)
	}
}

func (p *eraseProgress) end() {
	if p.tracker != nil {
		p.tracker.End()
	}
}

// enter returns the tracker of a phase. If it is a new one, the tracker of the last phase ends.
func (p *eraseProgress) enter(phase string, start func(what, device string) status.Tracker) status.Tracker {
	if phase != p.phase {
		p.end()
		p.phase, p.tracker = phase, start(phase, p.device.Path)
	}
	return p.tracker
}

// erasingProgress describes a drive that has been erasing itself for a time, without reporting progress, and returns
// the percentage by the time that the drive says it takes: at most 99, nil if it does not say.
func erasingProgress(elapsed, estimate time.Duration) (message string, percent *float64) {
	elapsed = elapsed.Round(time.Second)
	if estimate <= 0 {
		return fmt.Sprintf("%v, the drive gives no estimate", elapsed), nil
	}
	percent = new(float64)
	*percent = min(100*float64(elapsed)/float64(estimate), 99)
	if elapsed > estimate {
		return fmt.Sprintf("%v, longer than the drive's estimate of %v", elapsed, estimate), percent
	}
	return fmt.Sprintf("%v of about %v, the drive's estimate", elapsed, estimate), percent
}

// startAttrs returns the attributes of the log line of a drive that has started to erase itself. An estimate of 0 is
// unknown.
func startAttrs(d block.Device, started erase.Progress) []any {
	attrs := []any{"device", d.Path, "method", string(started.Technique)}
	if started.Estimate > 0 {
		attrs = append(attrs, "left", started.Estimate)
	}
	return attrs
}

// wipe erases the metadata of a device.
func (r *diskRun) wipe(ctx context.Context, d block.Device, record *erase.Recorder) error {
	r.m.o.Log.Info("erasing metadata", "device", d.Path)
	if err := erase.Metadata(ctx, r.m.o.System, d.Path, r.flags.wait); err != nil {
		return err
	}
	return erase.RecordMetadata(ctx, d, record)
}

// format erases an NVMe disk by its Format command. If that fails, it erases the metadata.
func (r *diskRun) format(ctx context.Context, d block.Device, record *erase.Recorder) error {
	options := erase.Options{Wait: r.flags.wait, Recorder: record}
	return r.withProgress(d, d.Size, record, func() error {
		return erase.Express(ctx, r.m.o.System, d, options, func(err error) {
			r.m.o.Log.Warn("disk not formatted, erasing its metadata", "device", d.Path, "err", err)
		})
	})
}

// skipReason returns why a disk is not erased, "" if it must be. A read-only disk is an error unless skipReadOnly.
func (r *diskRun) skipReason(ctx context.Context, d block.Device, skipReadOnly bool) (string, error) {
	if floppy, err := erase.ParametersFloppy(ctx, r.m.o.System, d); err != nil {
		return "", err
	} else if floppy {
		return "virtual floppy with the agent's parameters", nil
	}
	readOnly, err := erase.ReadOnly(r.m.o.System, d.Name)
	switch {
	case err != nil:
		return "", err
	case readOnly && !skipReadOnly:
		return "", erase.ErrReadOnly
	case readOnly:
		return "read-only", nil
	}
	return "", nil
}

// eraseTargets erases a disk as decided.
func (r *diskRun) eraseTargets(ctx context.Context, p Decision) (diskReport, error) {
	d := p.Disk
	if !p.isWhole(d) {
		r.splitItem(d, p.targets)
	}
	report := diskReport{Untouched: p.untouched}
	var problems []error
	for _, target := range p.targets {
		started := time.Now()
		record, end := r.results.begin(d, target)
		err := goroutine.Catch(func() error { // after a panic the report still lists what was erased
			if err := r.eraseTarget(ctx, p, target, record); err != nil {
				return err
			}
			return ctx.Err() // the step may have stopped waiting for this disk
		})
		end(err)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		report.addErased(target.Path, record.Report())
		r.logErased(target, record.Report(), started)
	}
	switch {
	case p.hasKept && r.flags.erasesFully(d):
		problems = append(problems, r.eraseGaps(ctx, d, &report))
	case p.hasKept:
		problems = append(problems, r.kept.wipeGaps(ctx, r.m.o.System, d))
	}
	return report, errors.Join(problems...)
}

// logErased logs how a device was erased, and what its overwrite did, if there was one.
func (r *diskRun) logErased(d block.Device, report erase.Report, started time.Time) {
	attributes := []any{
		"device", d.Path, "method", report.String(), "duration", time.Since(started).Round(time.Millisecond),
	}
	if overwritten := report.Overwritten(); overwritten != "" {
		attributes = append(attributes, "overwritten", overwritten)
	}
	r.m.o.Log.Info("device erased", attributes...)
}

// eraseTarget erases a disk, or one of its partitions if the disk stays partitioned: a member of an array that Ironic
// created in a way that keeps the array, all others as the step does. On a disk with such a member,
// erase_devices_express overwrites the other partitions, because formatting would reach the whole disk.
func (r *diskRun) eraseTarget(ctx context.Context, p Decision, target block.Device, record *erase.Recorder) error {
	member, preserved := r.kept.member(target.Path)
	switch full := r.flags.erasesFully(p.Disk); {
	case preserved && full:
		return r.eraseMember(ctx, member, record)
	case preserved:
		return r.wipeMember(ctx, member, record)
	case !full:
		return r.wipe(ctx, target, record)
	case r.flags.step == fullErase:
		return r.eraseFully(ctx, target, p.siblings, record)
	case p.hasKept:
		return r.eraseWith(ctx, target, r.flags.overwriteOptions(), record)
	}
	return r.format(ctx, target, record)
}
