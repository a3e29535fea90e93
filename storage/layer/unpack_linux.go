package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Unpacker unpacks layers into a directory, the lowest first. It is not safe for concurrent use.
type Unpacker struct {
	root   int
	limits Limits

	entries    int
	bytes      int64
	attributes int64
	names      int64 // memory of created and times
	buffer     []byte
	// created are the names that the current layer has made, so that its whiteouts keep them.
	created map[string]bool
	times   []directoryTime
}

// directoryTime is a modification time that is set after all files of a layer exist.
type directoryTime struct {
	name string
	at   time.Time
}

// NewUnpacker returns an Unpacker for an existing directory. The caller closes it.
func NewUnpacker(dir string, limits Limits) (*Unpacker, error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &Unpacker{root: root, limits: limits, buffer: make([]byte, 256<<10)}, nil
}

// Close frees the Unpacker.
func (u *Unpacker) Close() error { return unix.Close(u.root) }

// Unpack unpacks a layer: a tar archive. It reads r to the end of the archive, not to the end of r. After an error the
// directory is incomplete.
func (u *Unpacker) Unpack(ctx context.Context, r io.Reader) error {
	archive := tar.NewReader(r)
	u.created, u.times, u.names = make(map[string]bool), nil, 0
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := archive.Next()
		if err == io.EOF { //nolint:errorlint // only io.EOF itself is the end
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if u.entries++; u.entries > u.limits.Entries {
			return fmt.Errorf("the layers have more than %d entries", u.limits.Entries)
		}
		if err := u.entry(ctx, h, archive); err != nil {
			return entryError(h, err)
		}
		if u.names > u.limits.Names {
			return fmt.Errorf("the names of the layer need more than %d bytes of memory", u.limits.Names)
		}
	}
	for _, d := range slices.Backward(u.times) {
		if err := u.setDirectoryTime(d); err != nil {
			return fmt.Errorf("unpack %.200q: %w", d.name, err)
		}
	}
	return nil
}

// entry unpacks an entry.
func (u *Unpacker) entry(ctx context.Context, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if err := owner(h); err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return errors.New("the root is not a directory")
		}
		u.keepTime(name, h.ModTime)
		return u.describe(u.root, ".", h)
	}
	parent, base := path.Split(name)
	if strings.Contains("/"+parent, "/"+metadataPrefix) {
		return nil
	}
	dir, err := u.openParent(path.Clean(parent))
	if err != nil {
		return err
	}
	defer unix.Close(dir) //nolint:errcheck // only a position
	// Other entries can have another name for the directory, by a symbolic link.
	if parent, err = u.nameOf(dir); err != nil {
		return err
	}
	if strings.HasPrefix(base, whiteout) {
		return u.whiteout(dir, parent, base)
	}
	name = path.Join(parent, base)
	u.mark(name)
	if err := u.makeSpace(dir, base, h.Typeflag == tar.TypeDir); err != nil {
		return err
	}
	return u.create(ctx, dir, base, name, h, content)
}

// create makes what an entry describes.
func (u *Unpacker) create(ctx context.Context, dir int, base, name string, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		if err := u.file(ctx, dir, base, h.Size, content); err != nil {
			return err
		}
	case tar.TypeDir:
		if err := unix.Mkdirat(dir, base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		u.keepTime(name, h.ModTime)
	case tar.TypeSymlink:
		if len(h.Linkname) > maxPath {
			return fmt.Errorf("the target has %d bytes, want at most %d", len(h.Linkname), maxPath)
		}
		if err := unix.Symlinkat(h.Linkname, dir, base); err != nil {
			return err
		}
	case tar.TypeLink:
		return u.link(dir, base, h.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		if err := u.device(dir, base, h); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown type %q", h.Typeflag)
	}
	return u.describe(dir, base, h)
}

// device makes a device node or a named pipe.
func (u *Unpacker) device(dir int, base string, h *tar.Header) error {
	modes := map[byte]uint32{tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK, tar.TypeFifo: unix.S_IFIFO}
	const most = 1 << 20
	if h.Devmajor < 0 || h.Devminor < 0 || h.Devmajor >= 1<<12 || h.Devminor >= most {
		return fmt.Errorf("device %d:%d: no such number", h.Devmajor, h.Devminor)
	}
	number := 0
	if h.Typeflag != tar.TypeFifo {
		number = int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)))
	}
	return unix.Mknodat(dir, base, modes[h.Typeflag]|0o600, number)
}

// mark remembers that the current layer has a name and the directories above it.
func (u *Unpacker) mark(name string) {
	for ; name != "." && !u.created[name]; name = path.Dir(name) {
		u.created[name] = true
		u.names += int64(len(name)) + nameCost
	}
}

// keepTime remembers the modification time of a directory.
func (u *Unpacker) keepTime(name string, at time.Time) {
	u.times = append(u.times, directoryTime{name, at})
	u.names += int64(len(name)) + nameCost
}

// open resolves a name inside of the root: symbolic links cannot lead out of it.
func (u *Unpacker) open(name string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(u.root, name, &how)
		if err != unix.EAGAIN && err != unix.EINTR { //nolint:errorlint // not wrapped
			return fd, err
		}
	}
}

// nameOf returns the name of an open directory relative to the root, without symbolic links.
func (u *Unpacker) nameOf(dir int) (string, error) {
	var names [2]string
	for i, fd := range []int{u.root, dir} {
		name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			return "", err
		}
		names[i] = name
	}
	rest, ok := strings.CutPrefix(names[1]+"/", strings.TrimSuffix(names[0], "/")+"/")
	if !ok {
		return "", errOutside
	}
	return path.Clean(rest), nil
}

// openParent opens a directory, and creates it if it does not exist.
func (u *Unpacker) openParent(name string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	fd, err := u.open(name, flags)
	if !errors.Is(err, fs.ErrNotExist) {
		return fd, err
	}
	upper, base := path.Split(name)
	dir, err := u.openParent(path.Clean(upper))
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir) //nolint:errcheck // only a position
	if err := unix.Mkdirat(dir, base, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, err
	}
	u.mark(name)
	return u.open(name, flags) // fails if it is a symbolic link that leads nowhere
}

// below returns the path of a name in an open directory, for calls that accept no directory descriptor.
func below(dir int, base string) string { return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + base }

// makeSpace removes an existing file with the name of a new one. An existing directory is kept if the new file is a
// directory, too.
func (u *Unpacker) makeSpace(dir int, base string, directory bool) error {
	var info unix.Stat_t
	err := unix.Fstatat(dir, base, &info, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if directory && info.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	return os.RemoveAll(below(dir, base))
}

// whiteout removes a file of a lower layer, or all files of lower layers in a directory.
func (u *Unpacker) whiteout(dir int, parent, base string) error {
	switch {
	case base == opaqueWhiteout:
		return u.clear(parent)
	case strings.HasPrefix(base, metadataPrefix):
		return nil
	}
	hidden := strings.TrimPrefix(base, whiteout)
	if hidden == "" || hidden == "." || hidden == ".." {
		return errors.New("the whiteout has no name")
	}
	if u.created[path.Join(parent, hidden)] {
		return nil // it hides what lower layers have
	}
	return os.RemoveAll(below(dir, hidden))
}

// clear removes everything in a directory and its subdirectories that the current layer has not created.
func (u *Unpacker) clear(name string) error {
	fd, err := u.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close() //nolint:errcheck // only read
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, base := range names {
		full := path.Join(name, base)
		if !u.created[full] {
			err = os.RemoveAll(below(fd, base))
		} else if u.isDirectory(fd, base) {
			err = u.clear(full)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *Unpacker) isDirectory(dir int, base string) bool {
	var info unix.Stat_t
	return unix.Fstatat(dir, base, &info, unix.AT_SYMLINK_NOFOLLOW) == nil && info.Mode&unix.S_IFMT == unix.S_IFDIR
}

// file writes the content of a file. Blocks of zeros become holes.
func (u *Unpacker) file(ctx context.Context, dir int, base string, size int64, content io.Reader) (err error) {
	if size > u.limits.Bytes-u.bytes {
		return fmt.Errorf("the files of the layers have more than %d bytes", u.limits.Bytes)
	}
	u.bytes += size
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer func() { err = errors.Join(err, f.Close()) }()
	for at := int64(0); at < size; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		piece := u.buffer[:min(int64(len(u.buffer)), size-at)]
		if _, err := io.ReadFull(content, piece); err != nil {
			return err
		}
		if err := writeBlocks(f, piece, at); err != nil {
			return err
		}
		at += int64(len(piece))
	}
	return f.Truncate(size)
}

// writeBlocks writes the blocks of a piece that are not zero.
func writeBlocks(f *os.File, piece []byte, at int64) error {
	const block = 4096
	for start := 0; start < len(piece); {
		end := start
		for end < len(piece) && !isZero(piece[end:min(end+block, len(piece))]) {
			end = min(end+block, len(piece))
		}
		if end > start {
			if _, err := f.WriteAt(piece[start:end], at+int64(start)); err != nil {
				return err
			}
		}
		start = end + block
	}
	return nil
}

var zeros [4096]byte

func isZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// link makes another name of a file of the image.
func (u *Unpacker) link(dir int, base, target string) error {
	target, err := cleanName(target)
	if err != nil {
		return fmt.Errorf("target of the link: %w", err)
	}
	parent, file := path.Split(target)
	from, err := u.open(path.Clean(parent), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("target of the link, %.200q: %w", target, err)
	}
	defer unix.Close(from) //nolint:errcheck // only a position
	if err := unix.Linkat(from, file, dir, base, 0); err != nil {
		return fmt.Errorf("target of the link, %.200q: %w", target, err)
	}
	return nil
}

// describe sets owner, mode, extended attributes and times, in the order in which none changes another.
func (u *Unpacker) describe(dir int, base string, h *tar.Header) error {
	if err := unix.Fchownat(dir, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set owner: %w", err)
	}
	name := below(dir, base)
	attributes, size, err := xattrs(h)
	if err != nil {
		return err
	}
	if u.attributes += size; u.attributes > u.limits.Attributes {
		return fmt.Errorf("the layers have more than %d bytes of extended attributes, %d added for each",
			u.limits.Attributes, attributeCost)
	}
	for key, value := range attributes {
		err := unix.Lsetxattr(name, key, []byte(value), 0)
		if errors.Is(err, unix.ENOTSUP) && key != "security.capability" {
			continue // the file system has no such attributes; a program needs its capabilities
		}
		if err != nil {
			return fmt.Errorf("set attribute %.100q: %w", key, err)
		}
	}
	if h.Typeflag != tar.TypeSymlink {
		// The permissions of the archive, not fs.FileMode's, which has other bits for set-user-ID.
		if err := unix.Chmod(name, uint32(h.Mode)&0o7777); err != nil {
			return fmt.Errorf("set mode: %w", err)
		}
	}
	at := unix.NsecToTimespec(h.ModTime.UnixNano())
	if err := unix.UtimesNanoAt(dir, base, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set times: %w", err)
	}
	return nil
}

// setDirectoryTime sets the modification time of a directory, which the files in it have changed.
func (u *Unpacker) setDirectoryTime(d directoryTime) error {
	parent, base := path.Split(d.name)
	dir, err := u.open(path.Clean(parent), unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a later entry replaced it
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir) //nolint:errcheck // only a position
	at := unix.NsecToTimespec(d.at.UnixNano())
	err = unix.UtimesNanoAt(dir, base, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
