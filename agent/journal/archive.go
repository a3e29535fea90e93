package journal

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

const (
	maxMemberBytes  = 16 << 20 // of one member; more is truncated
	maxArchiveBytes = 64 << 20 // of all members together
	archiveTimeout  = 10 * time.Second
)

// Member is a file of the archive.
type Member struct {
	Name string
	Data []byte
}

// source creates a member. After an error the member is omitted, except after [block.ErrUnreadable]: then its data
// describes the other disks.
type source struct {
	name string
	read func(context.Context, sysfs.Root) ([]byte, error)
}

// sources returns the members of ironic-python-agent's archive whose data the kernel provides, under the names of the
// programs whose output they replace.
func sources() []source {
	return []source{
		{"dmesg", dmesg},
		{"ps", processes},
		{"df", freeSpace},
		{"mount", mounts},
		{"ip_addr", addresses},
		{"iptables", packetFilter},
		{"lsblk", blockTable},
		{"lsblk-full", blockPairs},
		{"mdstat", mdstat},
		{"multipath", multipathMaps},
		{"parted", partitionTables},
		{"efibootmgr", bootEntries},
	}
}

// maxKept limits the bytes of all members that Keep has stored.
const maxKept = 16 << 20

// Keep stores a member for all later archives and returns its name. A name that is taken gets a number before its
// extension, because a later member must not replace an earlier one.
func (j *Journal) Keep(name string, data []byte) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	size, used := len(data), map[string]bool{}
	for _, m := range j.kept {
		size += len(m.Data)
		used[m.Name] = true
	}
	if size > maxKept {
		return "", fmt.Errorf("keep %s: members have more than %d bytes", name, maxKept)
	}
	extension := path.Ext(name)
	base, unique := strings.TrimSuffix(name, extension), name
	for n := 2; used[unique]; n++ {
		unique = fmt.Sprintf("%s-%d%s", base, n, extension)
	}
	j.kept = append(j.kept, Member{unique, slices.Clone(data)})
	return unique, nil
}

func (j *Journal) keptMembers() []Member {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.kept)
}

// Archive packs the journal, the members that Keep has stored, data of the kernel about the machine, and the extra
// members into a gzipped tar. Sources that cannot be read are omitted and listed in the member "errors", members that
// are too large are truncated and listed in the member "truncated". It takes at most about ten seconds.
func (j *Journal) Archive(ctx context.Context, sys sysfs.Root, extra ...Member) ([]byte, error) {
	archive, _, err := j.pack(j.members(ctx, sys, extra), maxMemberBytes)
	return archive, err
}

// minMemberBytes is the smallest limit to which ArchiveWithin truncates members.
const minMemberBytes = 4 << 10

// ArchiveWithin is like Archive, for an archive of at most limit bytes: it truncates members until they fit, and
// returns what it has truncated. It fails if the archive is larger even with members of 4 KiB.
func (j *Journal) ArchiveWithin(
	ctx context.Context, limit int64, sys sysfs.Root, extra ...Member,
) (archive []byte, truncated []string, err error) {
	members := j.members(ctx, sys, extra)
	for memberLimit := maxMemberBytes; ; {
		if archive, truncated, err = j.pack(members, memberLimit); err != nil || int64(len(archive)) <= limit {
			return archive, truncated, err
		}
		if memberLimit == minMemberBytes {
			return nil, nil, fmt.Errorf("pack log archive: got %d bytes with members of at most %d, want at most %d",
				len(archive), memberLimit, limit)
		}
		// The largest members determine the size, so a few rounds suffice.
		share := float64(limit) / float64(len(archive))
		memberLimit = max(minMemberBytes, int(float64(memberLimit)*min(share, 0.75)))
	}
}

// members returns the members of an archive.
func (j *Journal) members(ctx context.Context, sys sysfs.Root, extra []Member) []Member {
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	members := append([]Member{{"journal", j.Bytes()}}, j.keptMembers()...)
	var missing bytes.Buffer
	for _, s := range sources() {
		data, err := s.read(ctx, sys)
		if err != nil {
			fmt.Fprintf(&missing, "%s: %v\n", s.name, err)
		}
		if err == nil || errors.Is(err, block.ErrUnreadable) {
			members = append(members, Member{s.name, data})
		}
	}
	members = append(members, deviceProperties(ctx, sys)...)
	members = append(members, extra...)
	if missing.Len() > 0 {
		members = append(members, Member{"errors", missing.Bytes()})
	}
	return members
}

// pack returns an archive of members, each truncated to memberLimit bytes, and describes what it has truncated. Of the
// journal and the kernel's log it keeps the end, of all others the beginning.
func (j *Journal) pack(members []Member, memberLimit int) (archive []byte, truncated []string, err error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	packed := tar.NewWriter(zipped)
	now := time.Now()
	add := func(m Member) error {
		header := &tar.Header{Name: m.Name, Mode: 0o600, Size: int64(len(m.Data)), ModTime: now, Typeflag: tar.TypeReg}
		if err := packed.WriteHeader(header); err != nil {
			return fmt.Errorf("pack log archive: member %s: %w", m.Name, err)
		}
		if _, err := packed.Write(m.Data); err != nil {
			return fmt.Errorf("pack log archive: member %s: %w", m.Name, err)
		}
		return nil
	}
	left := maxArchiveBytes
	for _, m := range members {
		data := m.Data
		if m.Name == "dmesg" {
			data = []byte(j.CleanKernelLog(string(data)))
		}
		data = j.cleanBytes(data) // before truncation, which could leave a part of a secret
		size, kept := len(data), min(len(data), memberLimit, left)
		part := "first"
		if m.Name == "journal" || m.Name == "dmesg" {
			part, data = "last", data[size-kept:]
		}
		left -= kept
		if kept < size {
			truncated = append(truncated, fmt.Sprintf("%s: %s %d of %d bytes", m.Name, part, kept, size))
		}
		if err := add(Member{m.Name, data[:kept]}); err != nil {
			return nil, nil, err
		}
	}
	if len(truncated) > 0 {
		if err := add(Member{"truncated", []byte(strings.Join(truncated, "\n") + "\n")}); err != nil {
			return nil, nil, err
		}
	}
	if err := errors.Join(packed.Close(), zipped.Close()); err != nil {
		return nil, nil, fmt.Errorf("pack log archive: %w", err)
	}
	return out.Bytes(), truncated, nil
}

// cleanBytes redacts secrets in data that did not pass through the journal, mainly the kernel's command line in dmesg.
func (j *Journal) cleanBytes(data []byte) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, secret := range j.secrets {
		data = bytes.ReplaceAll(data, []byte(secret), []byte("***"))
	}
	return data
}

func mdstat(_ context.Context, sys sysfs.Root) ([]byte, error) {
	return os.ReadFile(sys.Proc("mdstat"))
}
