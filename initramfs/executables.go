package initramfs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/initramfs/squashfs"
)

// imageFile is a file of the ramdisk or of a manager root.
type imageFile struct {
	path    string // relative, with slashes
	mode    fs.FileMode
	content squashfs.Content // of a regular file
	size    int64
}

// checkManagers returns the names of the managers, or an error if the directory of managers has a file that is not one.
// The agent handles everything there as a manager, and uses no disk if it cannot run one. files are all files of the
// ramdisk, or of a manager root.
func checkManagers(files []imageFile, arch string) (names []string, err error) {
	for _, f := range files {
		name, found := strings.CutPrefix(f.path, managersDir+"/")
		if !found {
			continue
		}
		err := errors.New("subdirectory, want files only")
		if !f.mode.IsDir() && !strings.Contains(name, "/") {
			err = checkManager(f, files, arch)
		}
		if err != nil {
			return nil, fmt.Errorf("/%s: %w; the agent handles everything in /%s as a hardware manager, and uses no "+
				"disk if one cannot be run: see docs/managers.md", f.path, err, managersDir)
		}
		names = append(names, name)
	}
	return names, nil
}

// checkManager returns an error if the agent, or the kernel, will not execute a file, as far as its type, mode and
// first bytes tell.
func checkManager(f imageFile, files []imageFile, arch string) error {
	switch {
	case !f.mode.IsRegular():
		return fmt.Errorf("got type %v, want a regular file", f.mode.Type())
	case f.mode&0o100 == 0:
		return fmt.Errorf("mode %v: not executable", f.mode)
	case f.mode&0o022 != 0:
		return fmt.Errorf("mode %v: others than the owner can write to it", f.mode)
	}
	content, err := f.content.Open()
	if err != nil {
		return err
	}
	defer content.Close() //nolint:errcheck // only read
	head := make([]byte, min(f.size, headBytes))
	if _, err := content.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var needed string
	switch {
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		if err := checkELF(head, arch); err != nil {
			return err
		}
		needed = elfInterpreter(content)
	case bytes.HasPrefix(head, []byte("#!")):
		if needed = scriptInterpreter(head); needed == "" {
			return errors.New("script without the path of an interpreter in its first line")
		}
	default:
		return errors.New("neither an ELF program nor a script (no #! at its start)")
	}
	if needed != "" && !mayExist(files, needed) {
		return fmt.Errorf("needs %q, which is not there: link a program for the ramdisk statically, and add others "+
			"by --manager-root with what they need", needed)
	}
	return nil
}

// headBytes is the number of bytes that the kernel reads of a file to decide how to execute it (BINPRM_BUF_SIZE).
const headBytes = 256

// machines are the machines whose programs the kernels of an architecture run.
var machines = map[string][]elf.Machine{
	"amd64": {elf.EM_X86_64, elf.EM_386}, "arm64": {elf.EM_AARCH64, elf.EM_ARM},
}

// checkELF checks the header of an ELF file.
func checkELF(head []byte, arch string) error {
	if len(head) < 20 {
		return fmt.Errorf("ELF file of %d bytes", len(head))
	}
	kind := elf.Type(binary.LittleEndian.Uint16(head[16:]))
	machine := elf.Machine(binary.LittleEndian.Uint16(head[18:]))
	if head[elf.EI_DATA] != byte(elf.ELFDATA2LSB) || !slices.Contains(machines[arch], machine) {
		return fmt.Errorf("ELF file for %v, want one for %s", machine, arch)
	}
	if kind != elf.ET_EXEC && kind != elf.ET_DYN {
		return fmt.Errorf("ELF file of type %v, want a program", kind)
	}
	return nil
}

// elfInterpreter returns the dynamic loader that a program needs, "" if it needs none or that is not known.
func elfInterpreter(content io.ReaderAt) string {
	f, err := elf.NewFile(content)
	if err != nil {
		return ""
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, min(p.Filesz, 4096)) // PATH_MAX
			if _, err := p.ReadAt(name, 0); err != nil {
				return ""
			}
			return string(bytes.TrimRight(name, "\x00"))
		}
	}
	return ""
}

// scriptInterpreter returns the interpreter in the first line of a script.
func scriptInterpreter(head []byte) string {
	line, _, _ := bytes.Cut(head[2:], []byte("\n"))
	name, _, _ := bytes.Cut(bytes.TrimLeft(line, " \t"), []byte(" "))
	name, _, _ = bytes.Cut(name, []byte("\t"))
	return string(name)
}

// mayExist reports whether a path is among the files. Symbolic links are not followed: what is behind one may exist.
func mayExist(files []imageFile, name string) bool {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	return slices.ContainsFunc(files, func(f imageFile) bool {
		return f.path == name || f.mode.Type() == fs.ModeSymlink && strings.HasPrefix(name, f.path+"/")
	})
}

// recordFiles returns the files of records.
func recordFiles(records []cpio.Record) []imageFile {
	var files []imageFile
	for _, r := range records {
		f := imageFile{path: r.Name, mode: fs.FileMode(r.Mode & 0o777), size: int64(r.FileSize)}
		switch r.Mode & cpio.S_IFMT {
		case cpio.S_IFREG:
			f.content = recordContent{r.ReaderAt}
		case cpio.S_IFLNK:
			f.mode |= fs.ModeSymlink
		case cpio.S_IFDIR:
			f.mode |= fs.ModeDir
		default:
			f.mode |= fs.ModeIrregular
		}
		files = append(files, f)
	}
	return files
}

// recordContent is the content of a record.
type recordContent struct{ io.ReaderAt }

// Open implements [squashfs.Content].
func (c recordContent) Open() (squashfs.File, error) { return c, nil }

// Close implements [io.Closer].
func (recordContent) Close() error { return nil }

// entryFiles returns the files of a manager root. Hard links have the content of their target.
func entryFiles(entries []squashfs.Entry) []imageFile {
	byPath := make(map[string]squashfs.Entry, len(entries))
	for _, e := range entries {
		byPath[e.Path] = e
	}
	var files []imageFile
	for _, e := range entries {
		f := imageFile{path: e.Path, mode: e.Mode, content: e.Content, size: e.Size}
		for links := 0; e.Link != "" && links < maxLinks; links++ {
			e = byPath[e.Link]
			f.mode, f.content, f.size = e.Mode, e.Content, e.Size
		}
		if f.mode.IsRegular() && f.content == nil {
			f.mode |= fs.ModeIrregular // a link to nothing
		}
		files = append(files, f)
	}
	return files
}
