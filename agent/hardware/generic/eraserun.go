package generic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/md"
	"ironroot/storage/partition"
)

// diskReport describes what an erase step did to a disk.
type diskReport struct {
	Erased    map[string]erase.Method `json:"erased,omitempty"`    // methods by device path
	Untouched map[string]string       `json:"untouched,omitempty"` // reasons by device path
}

func untouched(d block.Device, reason string) diskReport {
	return diskReport{Untouched: map[string]string{d.Path: reason}}
}

// eraseRun is one run of a step that erases or overwrites disks. It collects reports and errors, so that a disk that
// fails does not keep the others from being erased.
type eraseRun struct {
	m      *Manager
	phrase string // of the log for a disk that failed
	flags  eraseFlags
	arrays hardware.Arrays
	skips  *hardware.SkipList
	disks  []block.Device  // those to erase
	known  map[string]bool // paths of all disks that were there at the start, whether or not they can be erased
	// members are the members of arrays on all disks, including the disks that skip_block_devices names. They are read
	// only if skip_block_devices names an array.
	members []md.Member
	esps    []md.Member // members that look like those of the EFI system partition of a protected array
	unread  []error     // errors of the disks whose members could not be read, with the devices

	mu       sync.Mutex
	reports  map[string]diskReport
	stuck    map[string]error // why the kernel is still busy, by device path
	failures collected
	// explained has the devices whose error is the whole error of an ambiguous name, by its text.
	explained map[string]string
}

// startErase lists the disks to erase. It checks all of them for shared file systems before the first is erased; one
// that is found fails the step. A disk that cannot be described or read is an error of that disk alone.
func (m *Manager) startErase(ctx context.Context, call hardware.Call) (*eraseRun, error) {
	if err := noArguments(call); err != nil {
		return nil, err
	}
	return m.startDisks(ctx, call, "disk not erased")
}

// startDisks is startErase for any step that overwrites disks. The phrase is logged for each disk that fails.
func (m *Manager) startDisks(ctx context.Context, call hardware.Call, phrase string) (*eraseRun, error) {
	c := m.o.Config.Get()
	r := &eraseRun{
		m: m, phrase: phrase, flags: eraseFlagsOf(call.Node, c.GuardSpecialFilesystems),
		known: map[string]bool{}, reports: map[string]diskReport{},
		stuck: map[string]error{}, explained: map[string]string{},
	}
	r.flags.wait = erase.Wait{
		Interval: c.DiskPartitioner.CheckDeviceInterval, Retries: c.DiskPartitioner.CheckDeviceMaxRetries,
	}
	var err error
	if r.arrays, err = hardware.ArraysOf(call.Node); err != nil {
		return nil, fault.BlockDeviceErase("%w", err)
	}
	r.failUnsettled()
	all, err := m.o.Disks(ctx)
	if err := r.failUnread(err); err != nil {
		return nil, err
	}
	if r.skips, err = hardware.NewSkipList(call.Node); err != nil {
		return nil, fault.BlockDeviceErase("%w", err)
	}
	disks, err := r.skips.Without(all)
	if err != nil {
		return nil, fault.BlockDeviceErase("%w", err)
	}
	r.recordSkipped(all, disks)
	if err := r.failUnusable(ctx); err != nil {
		return nil, err
	}
	for _, d := range all {
		r.known[d.Path] = true
	}
	disks = r.recoverDisks(ctx, disks)
	if r.arrays.HasProtected() {
		r.readMembers(ctx, all)
	}
	r.warnUnmatched()
	if err := r.guard(ctx, disks); err != nil {
		return nil, err
	}
	r.failUnidentified()
	return r, nil
}

// recoverDisks makes disks usable that an interrupted secure erase has left with a password or sanitizing, unless ATA
// secure erase is switched off. It recovers them concurrently, so that several disks that hang or sanitize delay the
// step only once. It returns the disks without those that failed.
func (r *eraseRun) recoverDisks(ctx context.Context, disks []block.Device) []block.Device {
	if !r.flags.ata {
		return disks
	}
	errs := make([]error, len(disks))
	group := goroutine.NewGroup()
	for i, d := range disks {
		group.Go(func() error {
			_, errs[i] = bounded(ctx, r, d, func(ctx context.Context, d block.Device) (any, error) {
				return nil, r.recoverDisk(ctx, d)
			})
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	var usable []block.Device
	for i, d := range disks {
		if err := errs[i]; err != nil {
			r.fail(d, err)
			continue
		}
		usable = append(usable, d)
	}
	return usable
}

// recoverDisk makes a disk usable. It shows the progress of a sanitize that it waits for, which can take hours.
func (r *eraseRun) recoverDisk(ctx context.Context, d block.Device) error {
	var tracker Tracker
	defer func() {
		if tracker != nil {
			tracker.End()
		}
	}()
	return r.m.recoverDisk(ctx, d, func(done, total int64) {
		if tracker == nil {
			tracker = r.m.o.Track("waiting for disk to sanitize itself", d.Path)
		}
		tracker.Set(done, total)
	})
}

// failUnidentified adds an error for each disk that skip_block_devices may name by something that could not be read.
func (r *eraseRun) failUnidentified() {
	r.disks = slices.DeleteFunc(slices.Clone(r.disks), func(d block.Device) bool {
		err := r.skips.CheckRead(d)
		if err != nil {
			r.fail(d, err)
		}
		return err != nil
	})
}

// warnUnmatched logs the entries of skip_block_devices that protect nothing: they may be mistakes.
func (r *eraseRun) warnUnmatched() {
	for _, entry := range r.skips.Unmatched() {
		r.m.o.Log.Warn("no disk matches an entry of skip_block_devices", "entry", entry)
	}
	for _, name := range r.arrays.Unmatched(r.members) {
		r.m.o.Log.Warn("no RAID array matches an entry of skip_block_devices", "volume_name", name)
	}
}

// readMembers reads the members of arrays on all disks. It reads them concurrently, so that several disks that hang
// delay the step only once: skip_block_devices can name disks because they hang. A disk that cannot be read is logged.
// If there is one, no array is protected by its name: see checkRead.
func (r *eraseRun) readMembers(ctx context.Context, disks []block.Device) {
	found, errs := make([][]md.Member, len(disks)), make([]error, len(disks))
	group := goroutine.NewGroup()
	for i, d := range disks {
		group.Go(func() error {
			found[i], errs[i] = bounded(ctx, r, d, func(ctx context.Context, d block.Device) ([]md.Member, error) {
				return md.Members(ctx, r.m.o.System, d)
			})
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	for i, d := range disks {
		if err := errs[i]; err != nil {
			r.m.o.Log.Warn("RAID superblocks not read", "device", d.Path, "err", err)
			r.unread = append(r.unread, fmt.Errorf("%s: %w", d.Path, err))
			continue
		}
		members := found[i]
		r.members = append(r.members, members...)
		if slices.ContainsFunc(members, func(m md.Member) bool { return r.arrays.Protected(m.Superblock) }) {
			notESP := func(m md.Member) bool { return !isESPMember(m) }
			r.esps = append(r.esps, slices.DeleteFunc(slices.Clone(members), notESP)...)
		}
	}
}

// checkRead returns an error if the members on some disk are not known, or if the member was not among those that were
// compared. Another array could then have the same protected name.
func (r *eraseRun) checkRead(d block.Device, member md.Member) error {
	if len(r.unread) > 0 {
		var words []string
		for _, err := range r.unread[:min(len(r.unread), maxUnread)] {
			words = append(words, err.Error())
		}
		if more := len(r.unread) - len(words); more > 0 {
			words = append(words, fmt.Sprintf("and %d more", more))
		}
		return fmt.Errorf("%s is a member of %s, but its name cannot be checked: %s",
			member.Device.Path, member.Superblock, strings.Join(words, "; "))
	}
	if !slices.ContainsFunc(r.members, func(m md.Member) bool {
		// The members of an assembled array are those of its components.
		return m.UUID == member.UUID && m.Number == member.Number &&
			(m.Device.Path == member.Device.Path || strings.Contains(d.Type, "raid"))
	}) {
		return fmt.Errorf("%s is a member of %s, which was not read when the arrays were compared",
			member.Device.Path, member.Superblock)
	}
	return nil
}

// maxUnread limits the disks that an error lists.
const maxUnread = 16

// failUnread records the error of a list that lacks disks, because they cannot be described, once. It returns any
// other error of the list.
func (r *eraseRun) failUnread(err error) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, block.ErrUnreadable):
		return fmt.Errorf("list disks: %w", err)
	case slices.ContainsFunc(r.unread, func(known error) bool { return strings.Contains(known.Error(), err.Error()) }):
		return nil // the kernel's list and that of the disks to erase contain the same disks
	}
	r.m.o.Log.Error(r.phrase, "err", err)
	r.failures.add(err)
	r.unread = append(r.unread, err)
	return nil
}

// failUnusable adds an error for each disk that is not known yet and that the kernel cannot use and therefore does not
// list: a tenant can format NVMe namespaces and SCSI disks that way. Disks that skip_block_devices names are recorded
// as skipped.
func (r *eraseRun) failUnusable(ctx context.Context) error {
	unusable, err := block.UnusableDisks(ctx, r.m.o.System)
	if err := r.failUnread(err); err != nil {
		return err
	}
	var added []block.Device
	reasons := map[string]error{}
	for _, d := range unusable {
		if !r.known[d.Path] {
			added, reasons[d.Path], r.known[d.Path] = append(added, d.Device), d.Reason, true
		}
	}
	disks, err := r.skips.Without(added)
	if err != nil {
		return fault.BlockDeviceErase("%w", err)
	}
	r.recordSkipped(added, disks)
	for _, d := range disks {
		r.fail(d, reasons[d.Path])
	}
	return nil
}

// recordSkipped records the disks of a list that are not among those that skip_block_devices keeps.
func (r *eraseRun) recordSkipped(all, kept []block.Device) {
	for _, d := range all {
		if !slices.ContainsFunc(kept, func(other block.Device) bool { return other.Path == d.Path }) {
			r.record(d, untouched(d, "named by skip_block_devices"))
		}
	}
}

// guard selects the disks that can be read and hold no shared file system. If the guard is off, it selects all.
func (r *eraseRun) guard(ctx context.Context, disks []block.Device) error {
	if !r.flags.guard {
		r.disks = disks
		return nil
	}
	var protected []error
	for _, d := range disks {
		_, err := bounded(ctx, r, d, func(ctx context.Context, d block.Device) (any, error) {
			return nil, erase.Guard(ctx, r.m.o.System, d.Path)
		})
		switch {
		case err == nil:
			r.disks = append(r.disks, d)
		case errors.Is(err, erase.ErrProtected):
			protected = append(protected, err)
		default:
			r.fail(d, err)
		}
	}
	if len(protected) > 0 {
		return fault.ProtectedDevice("%w", errors.Join(protected...))
	}
	return nil
}

// lastFirst returns the disks in reverse order: arrays and maps come before the disks they are made of.
func (r *eraseRun) lastFirst() []block.Device {
	disks := slices.Clone(r.disks)
	slices.Reverse(disks)
	return disks
}

// bounded calls a function that erases or reads a disk, with a time limit. While the kernel is busy with a disk, later
// calls for it fail.
func bounded[T any](
	ctx context.Context, r *eraseRun, d block.Device, call func(context.Context, block.Device) (T, error),
) (value T, err error) {
	r.mu.Lock()
	err = r.stuck[d.Path]
	r.mu.Unlock()
	if err != nil {
		return value, err
	}
	value, err = erase.Bounded(ctx, r.m.limits(d), func(ctx context.Context) (T, error) { return call(ctx, d) })
	if errors.Is(err, erase.ErrStuck) {
		r.mu.Lock()
		r.stuck[d.Path] = err
		r.mu.Unlock()
	}
	return value, err
}

// do erases one disk with eraseDisk and records the result.
func (r *eraseRun) do(
	ctx context.Context, d block.Device, eraseDisk func(context.Context, block.Device) (diskReport, error),
) {
	report, err := bounded(ctx, r, d, eraseDisk)
	if err != nil {
		r.fail(d, err)
	}
	r.record(d, report)
}

func (r *eraseRun) fail(d block.Device, err error) {
	r.m.o.Log.Error(r.phrase, "device", d.Path, "err", err)
	r.failures.add(fmt.Errorf("%s: %w", d.Path, err))
}

func (r *eraseRun) record(d block.Device, report diskReport) {
	for _, path := range slices.Sorted(maps.Keys(report.Untouched)) {
		r.m.o.Log.Warn("device left untouched", "device", path, "reason", report.Untouched[path])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports[d.Path] = report
}

// end checks for storage that the step could not erase, and returns the step's result.
func (r *eraseRun) end(ctx context.Context, policy unattachedPolicy) (any, error) {
	r.examineUnbound(ctx) // first: if a driver is loaded in the meantime, its disks are listed below
	r.failAppeared(ctx)
	r.examineControllers(ctx, policy)
	return r.finish()
}

// finish returns the reports by disk, or an error with the devices that were erased and the errors of all disks that
// were not.
func (r *eraseRun) finish() (any, error) {
	if err := r.failures.err(); err != nil {
		return nil, fault.BlockDeviceErase("erased: %s; not erased: %w", r.erasedText(), err)
	}
	result := map[string]any{}
	for path, report := range r.reports {
		result[path] = report
	}
	return result, nil
}

// maxErasedText limits the bytes of the devices that an error lists as erased.
const maxErasedText = 1024

// erasedText lists devices that were erased, with their methods, as "/dev/sda (overwrite), /dev/sdb (overwrite)". If
// they do not fit into maxErasedText bytes, it ends with the number of those left out.
func (r *eraseRun) erasedText() string {
	methods := map[string]erase.Method{}
	for _, report := range r.reports {
		maps.Copy(methods, report.Erased)
	}
	if len(methods) == 0 {
		return "none"
	}
	var words []string
	length := 0
	for i, path := range slices.Sorted(maps.Keys(methods)) {
		word := fmt.Sprintf("%s (%s)", path, methods[path])
		if length += len(word) + len(", "); length > maxErasedText {
			words = append(words, fmt.Sprintf("and %d more", len(methods)-i))
			break
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// keptMembers returns the reasons why members of arrays on a disk are left untouched, by device path. A member of an
// array that Ironic created is an error: regular cleaning must keep the array, and its content can only be erased
// through an assembled array. A member with a protected name that several arrays share is an error too, see
// [hardware.Arrays.CheckUnambiguous], or that was not compared with those on all disks: a tenant could have written
// its superblock. So is a disk with partitions that the kernel does not show, see [hardware.Arrays.CheckShown].
func (r *eraseRun) keptMembers(ctx context.Context, d block.Device) (map[string]string, error) {
	if err := r.arrays.CheckShown(ctx, r.m.o.System, d); err != nil {
		return nil, err
	}
	members, err := hardware.Members(ctx, r.m.o.System, d)
	if err != nil {
		return nil, err
	}
	kept := map[string]string{}
	var problems []error
	for _, member := range members {
		if !r.arrays.Protected(member.Superblock) {
			continue
		}
		kept[member.Device.Path] = fmt.Sprintf("member of %s, protected by skip_block_devices", member.Superblock)
		if err := r.checkRead(d, member); err != nil {
			problems = append(problems, err)
		} else if err := r.arrays.CheckUnambiguous(member.Superblock, r.members); err != nil {
			problems = append(problems, r.ambiguous(member, err))
		} else if member.Role < 0 {
			problems = append(problems, fmt.Errorf(
				"%s has no role in %s, which skip_block_devices protects: it holds none of the array's data",
				member.Device.Path, member.Superblock))
		}
	}
	for _, member := range members {
		if kept[member.Device.Path] != "" {
			continue
		}
		if entry := r.arrays.Created(member.Superblock); entry != "" {
			problems = append(problems, fmt.Errorf(
				"%s is a member of %s, which Ironic created (%s): "+
					"erasing the content of such an array is not supported",
				member.Device.Path, member.Superblock, entry))
		} else if len(kept) > 0 && isESPMember(member) {
			kept[member.Device.Path] = fmt.Sprintf("member of %s, the EFI system partition of a protected array",
				member.Superblock)
			if err := hardware.CheckOneArray(r.esps); err != nil {
				err = fmt.Errorf("%q is not the name of one array: %w", espName, err)
				problems = append(problems, r.ambiguous(member, err))
			}
		}
	}
	return kept, errors.Join(problems...)
}

// ambiguous returns the error of an ambiguous name for the first of its members, and a short one for the others: the
// error of a step contains those of all disks.
func (r *eraseRun) ambiguous(member md.Member, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := err.Error()
	first, ok := r.explained[text]
	if !ok {
		r.explained[text] = member.Device.Path
		return err
	}
	return fmt.Errorf("%s is a member of %s, whose name is ambiguous: see the error of %s",
		member.Device.Path, member.Superblock, first)
}

// espName is the array name of the mirrored EFI system partition, on the same disks as the array with the system.
const espName = "esp"

// isESPMember reports whether a member looks like one of the mirrored EFI system partition: a RAID 1 of that name with
// its superblock at the end. The size of the whole member is limited, because a superblock can name a small part of
// it.
func isESPMember(m md.Member) bool {
	return m.ShortName() == espName && m.Level == "raid1" && m.Version == "1.0" && m.Device.Size <= 1<<30
}

// neighbours returns the partitions of a disk that are not kept. A disk that is kept as a whole has none.
func (r *eraseRun) neighbours(ctx context.Context, d block.Device, kept map[string]string) ([]block.Device, error) {
	if kept[d.Path] != "" {
		return nil, nil
	}
	parts, err := block.Partitions(ctx, r.m.o.System, d.Path)
	if err != nil {
		return nil, err
	}
	table, err := partition.Read(ctx, d.Path)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(parts, func(part block.Device) bool {
		// An extended partition contains the table of the logical ones.
		extended := slices.ContainsFunc(table.Partitions, func(p partition.Partition) bool {
			return p.Number == part.Number && p.Extended()
		})
		return extended || kept[part.Path] != ""
	}), nil
}

// collected gathers the errors of several disks into one.
type collected struct {
	mu   sync.Mutex
	errs []error
}

func (c *collected) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

func (c *collected) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}
