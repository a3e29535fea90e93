package bootloader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"golang.org/x/sys/unix"
)

// loader is a boot loader that was found on an ESP.
type loader struct {
	path  string // with backslashes, from the root of the ESP
	label string
}

// loaderNames are the files that are looked for; case does not matter.
var loaderNames = []string{
	"bootx64.csv", "bootaa64.csv", "boot.csv", "bootia32.efi", "bootx64.efi", "bootia64.efi", "bootarm.efi", "bootaa64.efi",
	"bootriscv32.efi", "bootriscv64.efi", "bootriscv128.efi", "grubaa64.efi", "winload.efi",
}

const (
	maxDepth = 8       // of folders that are searched
	maxFiles = 20000   // that are looked at
	maxCSV   = 8 << 10 // bytes of a CSV file
	maxLabel = 128     // characters of a boot entry's label
)

// readLoaders mounts the ESP read-only and looks for loaders.
func readLoaders(device string) (loaders []loader, err error) {
	dir, err := os.MkdirTemp("", "esp")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount(device, dir, "vfat", flags, "utf8=1"); err != nil {
		return nil, fmt.Errorf("mount the ESP %s: %w", device, err)
	}
	defer func() {
		if unmountErr := unix.Unmount(dir, 0); unmountErr != nil {
			err = errors.Join(err, fmt.Errorf("unmount the ESP %s: %w", device, unmountErr))
		}
	}()
	return search(dir)
}

// search walks the ESP below root: the files of a folder before its subfolders, both in the order of their names. A
// CSV file that names a loader which is there wins over everything.
func search(root string) ([]loader, error) {
	s := searcher{root: root}
	if err := s.walk("", 0); err != nil {
		return nil, err
	}
	if s.fromCSV != nil {
		return []loader{*s.fromCSV}, nil
	}
	if len(s.found) == 0 {
		return nil, fmt.Errorf("%w: %d files were looked at", ErrNoLoader, s.files)
	}
	for i := range s.found {
		s.found[i].label = fmt.Sprintf("ironic%d", i+1)
	}
	return s.found, nil
}

type searcher struct {
	root    string
	files   int
	found   []loader
	fromCSV *loader
}

func (s *searcher) walk(folder string, depth int) error {
	entries, err := os.ReadDir(path.Join(s.root, folder))
	if err != nil {
		return fmt.Errorf("read the ESP: %w", err)
	}
	var folders []string
	for _, entry := range entries {
		if s.files++; s.files > maxFiles {
			return fmt.Errorf("the ESP has more than %d files", maxFiles)
		}
		name := path.Join(folder, entry.Name())
		switch {
		case entry.IsDir():
			folders = append(folders, name)
		case !slices.Contains(loaderNames, strings.ToLower(entry.Name())):
		case strings.HasSuffix(strings.ToLower(name), ".csv"):
			if err := s.readCSV(name); err != nil || s.fromCSV != nil {
				return err
			}
		default:
			s.found = append(s.found, loader{path: backslashed(name)})
		}
	}
	for _, name := range folders {
		if depth == maxDepth {
			break
		}
		if err := s.walk(name, depth+1); err != nil || s.fromCSV != nil {
			return err
		}
	}
	return nil
}

// readCSV takes the loader that a CSV file names, in the same folder. One that is not there is passed over.
func (s *searcher) readCSV(name string) error {
	f, err := os.Open(path.Join(s.root, name))
	if err != nil {
		return fmt.Errorf("read the ESP: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxCSV))
	if err != nil {
		return fmt.Errorf("read the ESP: %s: %w", name, err)
	}
	file, label, err := parseCSV(data)
	if err != nil {
		return nil //nolint:nilerr // a file that names nothing is passed over like one that names what is not there
	}
	target := path.Join(path.Dir(name), file)
	if info, err := os.Stat(path.Join(s.root, target)); err == nil && info.Mode().IsRegular() {
		s.fromCSV = &loader{path: backslashed(target), label: label}
	}
	return nil
}

// parseCSV reads the first line of the file that shim's fallback loader uses: UTF-16, little-endian or as its byte
// order mark says; the fields are the loader's file name, the label, options and a description.
func parseCSV(data []byte) (file, label string, err error) {
	var order binary.ByteOrder = binary.LittleEndian
	if len(data) >= 2 && data[0] == 0xfe && data[1] == 0xff {
		order = binary.BigEndian
	}
	var units []uint16
	for i := 0; i+1 < len(data); i += 2 {
		units = append(units, order.Uint16(data[i:]))
	}
	text := strings.TrimPrefix(string(utf16.Decode(units)), "\ufeff")
	line, _, _ := strings.Cut(strings.TrimLeft(text, "\r\n"), "\n")
	fields := strings.Split(strings.TrimRight(line, "\r\x00"), ",")
	if len(fields) < 2 {
		return "", "", fmt.Errorf("CSV line has %d fields, want 2 at least", len(fields))
	}
	file, label = strings.TrimSpace(fields[0]), strings.TrimSpace(fields[1])
	if file == "" || label == "" || strings.ContainsAny(file, `/\`) || file == ".." || !printable(file) {
		return "", "", fmt.Errorf("CSV names the file %q and the label %q", file, label)
	}
	label = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, label)
	if runes := []rune(label); len(runes) > maxLabel {
		label = string(runes[:maxLabel])
	}
	return file, label, nil
}

func printable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func backslashed(name string) string { return `\` + strings.ReplaceAll(name, "/", `\`) }
