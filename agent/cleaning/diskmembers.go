package cleaning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/agent/softraid"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// readMembers reads the members of arrays on all disks, and compares those with protected names. It reads them
// concurrently, so that several disks that hang delay the step only once: skip_block_devices can name disks because
// they hang. A disk that cannot be read is logged. If there is one, no array is protected by its name: see checkRead.
func (r *diskRun) readMembers(ctx context.Context, disks []block.Device) {
	found, errs := make([][]raid.Member, len(disks)), make([]error, len(disks))
	group := goroutine.NewGroup()
	for i, d := range disks {
		group.Go(func() error {
			found[i], errs[i] = r.membersOn(ctx, d)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	for i, d := range disks {
		if err := errs[i]; err != nil {
			r.m.o.Log.Warn("RAID superblocks not read", "device", d.Path, "err", err)
			errs[i] = fmt.Errorf("%s: %w", d.Path, err)
		}
	}
	r.arrays.add(found, errs)
}

// namedArrays has the arrays that the node object names, and compares them with the members of arrays on all disks.
type namedArrays struct {
	softraid.Rules

	// members are on all disks, including the disks that skip_block_devices names. They are read only if
	// skip_block_devices names an array.
	members  []raid.Member
	nameErrs softraid.NameErrors // of the members
	espErr   error               // if the members that look like the EFI system partition are not of one array
	unread   []error             // errors of the disks whose members could not be read, with the devices
}

// add adds the members on disks, or the errors of disks, and compares those with protected names.
func (n *namedArrays) add(found [][]raid.Member, errs []error) {
	var esps raid.Array // those that look like members of the EFI system partition of a protected array
	for i, members := range found {
		if errs[i] != nil {
			n.unread = append(n.unread, errs[i])
			continue
		}
		n.members = append(n.members, members...)
		if slices.ContainsFunc(members, func(m raid.Member) bool { return n.Protected(m.Superblock) }) {
			notESP := func(m raid.Member) bool { return !softraid.IsESPMember(m) }
			esps = append(esps, slices.DeleteFunc(slices.Clone(members), notESP)...)
		}
	}
	n.nameErrs = n.CheckNames(n.members)
	if err := esps.CheckConsistent(); err != nil {
		n.espErr = fmt.Errorf("%q is not the name of one array: %w", bootloader.ESPName, err)
	}
}

// conflict returns the error of a protected name that several arrays share, if a member of one of them is on a disk for
// which skipped is false: also on a disk that the step leaves as it is for another reason, such as a read-only one.
func (n *namedArrays) conflict(skipped func(path string) bool) error {
	for _, member := range n.members {
		if err := n.nameErrs.Of(member.Superblock); err != nil && n.Protected(member.Superblock) &&
			!skipped(member.Disk.Path) {
			return err
		}
	}
	return nil
}

// checkRead returns an error if the members on some disk are not known, or if the member was not among those that were
// compared. Another array could then have the same protected name.
func (n *namedArrays) checkRead(d block.Device, member raid.Member) error {
	if len(n.unread) > 0 {
		var words []string
		for _, err := range n.unread[:min(len(n.unread), maxUnread)] {
			words = append(words, err.Error())
		}
		if more := len(n.unread) - len(words); more > 0 {
			words = append(words, fmt.Sprintf("and %d more", more))
		}
		return fmt.Errorf("%s is a member of %s, but its name cannot be checked: %s",
			member.Device.Path, member.Superblock, strings.Join(words, "; "))
	}
	if !slices.ContainsFunc(n.members, func(m raid.Member) bool {
		// An assembled array has the members of its components.
		return m.UUID == member.UUID && m.Number == member.Number &&
			(m.Device.Path == member.Device.Path || d.IsArray())
	}) {
		return fmt.Errorf("%s is a member of %s, which was not read when the arrays were compared",
			member.Device.Path, member.Superblock)
	}
	return nil
}

// maxUnread limits the disks that an error lists.
const maxUnread = 16

// protectedMembers returns the reasons why members of arrays on a disk are left untouched, by device path. A member of
// an array that Ironic created is an error unless prepareArrays has found the array: regular cleaning must keep the
// array. A member with a protected name that several arrays share is an error too, see [softraid.Rules.CheckNames], or
// that was not compared with those on all disks: a tenant could have written its superblock. So is a disk with
// partitions that the kernel does not show, see [softraid.Rules.CheckShown].
func (r *diskRun) protectedMembers(ctx context.Context, d block.Device) (map[string]string, error) {
	if err := r.arrays.CheckShown(ctx, r.m.o.System, d); err != nil {
		return nil, err
	}
	members, err := softraid.Members(ctx, r.m.o.System, d)
	if err != nil {
		return nil, err
	}
	untouched := map[string]string{}
	var problems []error
	for _, member := range members {
		if !r.arrays.Protected(member.Superblock) {
			continue
		}
		untouched[member.Device.Path] = fmt.Sprintf("member of %s, protected by skip_block_devices", member.Superblock)
		if err := r.arrays.nameErrs.Of(member.Superblock); err != nil {
			problems = append(problems, conflict{&ambiguous{member: member, err: err}})
		} else if member.Role < 0 {
			problems = append(problems, conflict{fmt.Errorf(
				"%s has no role in %s, which skip_block_devices protects: it holds none of the array's data",
				member.Device.Path, member.Superblock)})
		} else if err := r.arrays.checkRead(d, member); err != nil {
			problems = append(problems, err)
		}
	}
	for _, member := range members {
		if untouched[member.Device.Path] != "" {
			continue
		}
		if own, ok := r.kept.member(member.Device.Path); ok && own.UUID == member.UUID {
			continue
		}
		if entry := r.arrays.Created(member.Superblock); entry != "" {
			problems = append(problems, r.notPreservableErr(member, entry))
		} else if len(untouched) > 0 && softraid.IsESPMember(member) {
			untouched[member.Device.Path] = fmt.Sprintf("member of %s, the EFI system partition of a protected array",
				member.Superblock)
			if r.arrays.espErr != nil {
				problems = append(problems, conflict{&ambiguous{member: member, err: r.arrays.espErr}})
			}
		}
	}
	return untouched, errors.Join(problems...)
}

// notPreservableErr returns the error of a member of an array that Ironic created and that the step does not keep. The
// entry is an entry of raid_config.
func (r *diskRun) notPreservableErr(member raid.Member, entry string) error {
	problem := fmt.Errorf("%s is a member of %s, which Ironic created (%s)",
		member.Device.Path, member.Superblock, entry)
	reason := r.kept.refusal(member)
	if reason == nil {
		return fmt.Errorf("%w: erase its content by erase_devices, or remove it by delete_configuration", problem)
	}
	return fmt.Errorf("%w and which cannot be kept: %w; repair it, or remove it by delete_configuration",
		problem, reason)
}

// ambiguous is the error of a member whose name several arrays have.
type ambiguous struct {
	member raid.Member
	err    error
	first  string // path of the member whose error has the whole text; "" if it is this one
}

func (a *ambiguous) Error() string {
	if a.first == "" {
		return a.err.Error()
	}
	return fmt.Sprintf("%s is a member of %s, whose name is ambiguous: see the error of %s",
		a.member.Device.Path, a.member.Superblock, a.first)
}

// Unwrap returns the error of the name.
func (a *ambiguous) Unwrap() error { return a.err }

// shortenAmbiguous keeps the whole text of an ambiguous name in the first error that has it, and shortens it in the
// others: the error of a step contains the errors of all disks.
func shortenAmbiguous(errs []error) {
	first := map[string]string{}
	var visit func(err error)
	visit = func(err error) {
		switch e := err.(type) { //nolint:errorlint // it visits each error of the tree
		case *ambiguous:
			text := e.err.Error()
			if path, ok := first[text]; ok {
				e.first = path
			} else {
				first[text] = e.member.Device.Path
			}
		case interface{ Unwrap() []error }:
			for _, part := range e.Unwrap() {
				visit(part)
			}
		case interface{ Unwrap() error }:
			visit(e.Unwrap())
		}
	}
	for _, err := range errs {
		visit(err)
	}
}

// neighbours returns the partitions of a disk that are not left untouched. A disk that is left untouched as a whole has
// none.
func (r *diskRun) neighbours(ctx context.Context, d block.Device, untouched map[string]string) ([]block.Device, error) {
	if untouched[d.Path] != "" {
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
		return extended || untouched[part.Path] != ""
	}), nil
}
