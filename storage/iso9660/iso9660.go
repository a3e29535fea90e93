// Package iso9660 reads files of an ISO 9660 file system (ECMA-119) without mounting it: the volume descriptors,
// directories, and names. Like the kernel, it takes names from Rock Ridge (IEEE P1282) with continuation areas (SUSP,
// IEEE P1281), otherwise from Joliet, otherwise from ECMA-119 in lower case.
//
// It is read-only. Files can be read if they are regular and in one piece: it does not follow symbolic links, and does
// not read device nodes, relocated directories, files of several extents and interleaved files. UDF is not supported.
// All loops are bounded for any content of the disk.
package iso9660

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"ironroot/internal/rofs"
)

const (
	sectorSize     = 2048
	firstVolume    = 16      // sector of the first volume descriptor
	maxDescriptors = 32      // volume descriptors
	maxDir         = 2 << 20 // bytes of a directory
)

// ErrNoISO is returned if there is no ISO 9660 file system.
var ErrNoISO = errors.New("no ISO 9660 file system")

// FS is an open file system. It implements [fs.StatFS], [fs.ReadDirFS] and [fs.ReadFileFS]. Times are zero, and files
// that cannot be read are irregular. It is safe for concurrent use if its reader is. After it has listed directories of
// 64 MiB, it fails: damaged directories can contain each other.
type FS struct {
	reader *reader
	files  *rofs.FS
}

// reader reads the directories and files of a file system.
type reader struct {
	r         io.ReaderAt
	block     int64     // bytes
	size      int64     // bytes
	root      rofs.File // as for all files, the start is a block
	label     string
	publisher string
	rockRidge bool
	joliet    bool
	skip      int // bytes before the system use entries of a record, from the entry SP
}

// Open reads the volume descriptors. The error wraps ErrNoISO if there is no ISO 9660 file system.
func Open(r io.ReaderAt) (*FS, error) {
	f, err := newReader(r)
	if err != nil {
		return nil, err
	}
	return &FS{f, rofs.New(f, false)}, nil
}

func newReader(r io.ReaderAt) (*reader, error) {
	descriptor, joliet, err := readDescriptors(r)
	if err != nil {
		return nil, err
	}
	f := &reader{
		r: r, block: int64(binary.LittleEndian.Uint16(descriptor[128:])),
		label: text(descriptor[40:72]), publisher: text(descriptor[318:446]),
	}
	if f.block < 512 || f.block > sectorSize || f.block&(f.block-1) != 0 {
		return nil, fmt.Errorf("ISO 9660 volume: got blocks of %d bytes, want 512, 1024 or 2048", f.block)
	}
	f.size = int64(binary.LittleEndian.Uint32(descriptor[80:])) * f.block
	if f.root, err = rootDirectory(descriptor); err != nil {
		return nil, err
	}
	if err := f.findRockRidge(); err != nil || f.rockRidge || joliet == nil {
		return f, err
	}
	f.joliet = true
	f.root, err = rootDirectory(joliet)
	return f, err
}

// rootDirectory returns the root directory of a volume descriptor.
func rootDirectory(descriptor []byte) (rofs.File, error) {
	record, _, err := parseRecord(descriptor[156:190])
	if err != nil {
		return rofs.File{}, fmt.Errorf("ISO 9660 root directory: %w", err)
	}
	if !record.file.Mode.IsDir() {
		return rofs.File{}, errors.New("ISO 9660 root directory: got a file")
	}
	record.file.Name = "/" // for errors
	return record.file, nil
}

// readDescriptors reads the primary volume descriptor and Joliet's, which is nil if there is none.
func readDescriptors(r io.ReaderAt) (primary, joliet []byte, err error) {
	for n := range int64(maxDescriptors) {
		descriptor := make([]byte, sectorSize)
		_, err := r.ReadAt(descriptor, (firstVolume+n)*sectorSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, fmt.Errorf("ISO 9660 volume descriptor: %w", err)
		}
		if err != nil || string(descriptor[1:6]) != "CD001" || descriptor[0] == 255 {
			break
		}
		switch {
		case descriptor[0] == 1 && primary == nil:
			primary = descriptor
		case descriptor[0] == 2 && joliet == nil && isJoliet(descriptor):
			joliet = descriptor
		}
	}
	if primary == nil {
		return nil, nil, ErrNoISO
	}
	return primary, joliet, nil
}

// text converts a field of a descriptor to text without padding.
func text(raw []byte) string {
	return strings.TrimRight(strings.ToValidUTF8(string(raw), "_"), " \x00")
}

// Open opens a file or directory.
func (f *FS) Open(name string) (fs.File, error) { return f.files.Open(name) }

// Stat describes a file or directory.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.files.Stat(name) }

// ReadDir returns a directory's entries, sorted by name.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) { return f.files.ReadDir(name) }

// ReadFile returns the content of a regular file.
func (f *FS) ReadFile(name string) ([]byte, error) { return f.files.ReadFile(name) }

// Label returns the volume identifier, "" if there is none.
func (f *FS) Label() string { return f.reader.label }

// Size returns the size of the volume in bytes. A medium with fewer bytes is truncated.
func (f *FS) Size() int64 { return f.reader.size }

// LongNames reports whether files have names of Rock Ridge or Joliet. Others are shortened.
func (f *FS) LongNames() bool { return f.reader.rockRidge || f.reader.joliet }

// Publisher returns the publisher identifier, "" if there is none.
func (f *FS) Publisher() string { return f.reader.publisher }

// Root returns the root directory.
func (f *reader) Root() rofs.File { return f.root }

// Content returns a reader of a regular file or a directory.
func (f *reader) Content(file rofs.File) io.Reader {
	return &extent{file: file, content: io.NewSectionReader(f.r, file.Start*f.block, file.Size)}
}

// extent reads the content of a file. A medium that ends before the file is an error.
type extent struct {
	file    rofs.File
	content io.Reader
	got     int64 // bytes
}

func (e *extent) Read(p []byte) (int, error) {
	n, err := e.content.Read(p)
	e.got += int64(n)
	if err == io.EOF { //nolint:errorlint // an error of the medium may wrap io.EOF
		if e.got == e.file.Size {
			return n, err
		}
		err = fmt.Errorf("got %d bytes, want %d", e.got, e.file.Size)
	}
	if err != nil {
		err = fmt.Errorf("ISO 9660 file %s: %w", e.file.Name, err)
	}
	return n, err
}

// List returns a directory's files and directories, sorted by name.
func (f *reader) List(directory rofs.File) ([]rofs.File, int64, error) {
	records, err := f.records(directory)
	if err != nil {
		return nil, 0, err
	}
	var list []rofs.File
	for _, r := range records {
		if r.dots {
			continue
		}
		file, err := f.named(r)
		if err != nil {
			return nil, 0, fmt.Errorf("ISO 9660 directory %s: %w", directory.Name, err)
		}
		if file.Name == "" || file.Name == "." || file.Name == ".." || strings.ContainsAny(file.Name, "/\x00") {
			continue // a name that could lead outside the directory
		}
		list = append(list, file)
	}
	slices.SortStableFunc(list, func(a, b rofs.File) int { return strings.Compare(a.Name, b.Name) })
	return list, directory.Size, nil
}

// records reads the records of a directory.
func (f *reader) records(directory rofs.File) ([]record, error) {
	if directory.Size > maxDir {
		return nil, fmt.Errorf("ISO 9660 directory %s: got %d bytes, want at most %d",
			directory.Name, directory.Size, maxDir)
	}
	raw, err := io.ReadAll(f.Content(directory))
	if err != nil {
		return nil, err
	}
	var list []record
	for offset := 0; offset < len(raw); {
		if raw[offset] == 0 { // records do not cross sectors
			offset = (offset/sectorSize + 1) * sectorSize
			continue
		}
		r, length, err := parseRecord(raw[offset:])
		if err != nil {
			return nil, fmt.Errorf("ISO 9660 directory %s: offset %d: %w", directory.Name, offset, err)
		}
		if !r.dots {
			r.file.Name = f.convert(r.name)
		}
		list = append(list, r)
		offset += length
	}
	return list, nil
}

// record is a directory record (ECMA-119, 9.1).
type record struct {
	file rofs.File // without a name
	name string    // as it is on the medium
	dots bool      // the directory itself or its parent
	use  []byte    // system use area
}

const (
	flagDir, flagAssociated, flagMore = 0x02, 0x04, 0x80
	recordHeader                      = 33
)

// parseRecord reads the record at the start of raw and returns its length.
func parseRecord(raw []byte) (record, int, error) {
	if len(raw) < recordHeader+1 {
		return record{}, 0, fmt.Errorf("record: got %d bytes, want at least %d", len(raw), recordHeader+1)
	}
	length, nameLength := int(raw[0]), int(raw[32])
	if length < recordHeader+nameLength || nameLength == 0 || length > len(raw) {
		return record{}, 0, fmt.Errorf("record of %d bytes with a name of %d bytes in %d bytes",
			length, nameLength, len(raw))
	}
	le := binary.LittleEndian
	flags, name := raw[25], string(raw[recordHeader:recordHeader+nameLength])
	r := record{name: name, dots: name == "\x00" || name == "\x01"}
	r.file = rofs.File{
		Mode: rofs.Other, Size: int64(le.Uint32(raw[10:])),
		Start: int64(le.Uint32(raw[2:])) + int64(raw[1]), // extended attributes come first
	}
	isInterleaved := raw[26] != 0 || raw[27] != 0
	switch {
	case flags&flagDir != 0:
		r.file.Mode = rofs.Directory
	case flags&(flagAssociated|flagMore) == 0 && !isInterleaved:
		r.file.Mode = rofs.Regular
	}
	if use := recordHeader + nameLength + 1 - nameLength%2; use < length { // padded to an even length
		r.use = raw[use:length]
	}
	return r, length, nil
}

// convert returns the name of a record in a mounted file system, without Rock Ridge.
func (f *reader) convert(name string) string {
	if f.joliet {
		return jolietName(name)
	}
	return plainName(name)
}

// plainName converts an ECMA-119 name, "README.TXT;1", to the name in a mounted file system, "readme.txt".
func plainName(name string) string {
	name, _, _ = strings.Cut(name, ";")
	return strings.ToLower(strings.TrimSuffix(strings.ToValidUTF8(name, "_"), "."))
}
