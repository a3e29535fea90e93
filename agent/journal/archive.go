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

	"ironroot/internal/sysfs"
	"ironroot/storage/block"
)

const (
	maxMemberBytes  = 16 << 20 // of one member; the rest is truncated
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
// members into a gzipped tar. Sources that cannot be read are omitted and listed in the member "errors". It takes at
// most about ten seconds.
func (j *Journal) Archive(ctx context.Context, sys sysfs.Root, extra ...Member) ([]byte, error) {
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
	return j.pack(members)
}

func (j *Journal) pack(members []Member) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	packed := tar.NewWriter(zipped)
	now := time.Now()
	left := maxArchiveBytes
	for _, m := range members {
		data := j.cleanBytes(m.Data) // before truncation, which could leave a part of a secret
		data = data[:min(len(data), maxMemberBytes, left)]
		left -= len(data)
		header := &tar.Header{Name: m.Name, Mode: 0o600, Size: int64(len(data)), ModTime: now, Typeflag: tar.TypeReg}
		if err := packed.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack log archive: member %s: %w", m.Name, err)
		}
		if _, err := packed.Write(data); err != nil {
			return nil, fmt.Errorf("pack log archive: member %s: %w", m.Name, err)
		}
	}
	if err := packed.Close(); err != nil {
		return nil, fmt.Errorf("pack log archive: %w", err)
	}
	if err := zipped.Close(); err != nil {
		return nil, fmt.Errorf("pack log archive: %w", err)
	}
	return out.Bytes(), nil
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
