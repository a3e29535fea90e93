package bootloader

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"ironroot/storage/fat"
	"ironroot/storage/partition"
)

// loader is a boot loader on an ESP.
type loader struct {
	path  string // with backslashes, from the root of the ESP
	label string
}

// loaderNames are the recognised file names in lower case.
var loaderNames = []string{
	"bootx64.csv", "bootaa64.csv", "boot.csv",
	"bootia32.efi", "bootx64.efi", "bootia64.efi", "bootarm.efi", "bootaa64.efi",
	"bootriscv32.efi", "bootriscv64.efi", "bootriscv128.efi", "grubaa64.efi", "winload.efi",
}

const (
	maxDepth = 8       // depth of directories
	maxFiles = 20000   // number of files
	maxCSV   = 8 << 10 // size of a CSV file in bytes
	maxLabel = 128     // characters in a boot entry's label
)

// readLoaders finds the loaders on the ESP, a partition of the disk. fallback is the one that firmware finds without a
// boot entry, "" if there is none.
func readLoaders(disk string, esp partition.Partition) (loaders []loader, fallback string, err error) {
	f, err := os.Open(disk)
	if err != nil {
		return nil, "", err
	}
	defer f.Close() //nolint:errcheck // only read
	tree, err := fat.Open(io.NewSectionReader(f, esp.Start, esp.Size))
	if err == nil {
		s := searcher{tree: tree}
		if loaders, err = s.search(); err == nil {
			if fallback, err = findFallback(tree); err == nil {
				return loaders, fallback, nil
			}
		}
	}
	return nil, "", fmt.Errorf("read the ESP, partition %d: %w", esp.Number, err)
}

// search walks the ESP: the files of a directory before its subdirectories, both sorted by name. A CSV file that names
// an existing loader takes precedence over all others.
func (s *searcher) search() ([]loader, error) {
	if err := s.walk(s.tree.Root(), `\`, 0); err != nil {
		return nil, err
	}
	if s.fromCSV != nil {
		return []loader{*s.fromCSV}, nil
	}
	if len(s.found) == 0 && s.csvErr != nil {
		return nil, s.csvErr
	}
	if len(s.found) == 0 {
		return nil, fmt.Errorf("%w: none of %d files is a known loader", ErrNoLoader, s.files)
	}
	for i := range s.found {
		s.found[i].label = fmt.Sprintf("ironic%d", i+1)
	}
	return s.found, nil
}

type searcher struct {
	tree    *fat.FS
	files   int
	found   []loader
	fromCSV *loader
	csvErr  error // of the first CSV file that cannot be parsed
}

// findFallback returns the loader that firmware finds without a boot entry (UEFI 2.10, 3.5.1.1), "" if there is none.
func findFallback(tree *fat.FS) (string, error) {
	directory, path := tree.Root(), `\`
	for _, name := range []string{"efi", "boot", ""} {
		files, err := tree.List(directory)
		if err != nil {
			return "", err
		}
		next := slices.IndexFunc(files, func(f fat.File) bool {
			if name != "" {
				return f.IsDir && strings.EqualFold(f.Name, name)
			}
			lower := strings.ToLower(f.Name)
			return !f.IsDir && slices.Contains(loaderNames, lower) && strings.HasPrefix(lower, "boot") &&
				strings.HasSuffix(lower, ".efi")
		})
		if next < 0 {
			return "", nil
		}
		directory = files[next]
		path += directory.Name
		if name != "" {
			path += `\`
		}
	}
	return path, nil
}

// walk searches a directory; prefix is its path with a final backslash.
func (s *searcher) walk(directory fat.File, prefix string, depth int) error {
	files, err := s.tree.List(directory)
	if err != nil {
		return err
	}
	for _, file := range files {
		if s.files++; s.files > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		name := strings.ToLower(file.Name)
		switch {
		case file.IsDir || !slices.Contains(loaderNames, name):
		case strings.HasSuffix(name, ".csv"):
			if err := s.readCSV(file, files, prefix); err != nil || s.fromCSV != nil {
				return err
			}
		default:
			s.found = append(s.found, loader{path: prefix + file.Name})
		}
	}
	for _, file := range files {
		if !file.IsDir || depth == maxDepth {
			continue
		}
		if err := s.walk(file, prefix+file.Name+`\`, depth+1); err != nil || s.fromCSV != nil {
			return err
		}
	}
	return nil
}

// readCSV selects the loader that a CSV file names, in the same directory. A file that names a missing loader is
// ignored. A file that cannot be parsed is recorded in csvErr: search returns it if there is no other loader.
func (s *searcher) readCSV(csv fat.File, directory []fat.File, prefix string) error {
	data, err := s.tree.Read(csv, maxCSV)
	if err != nil {
		return err
	}
	name, label, err := parseCSV(data)
	if err != nil {
		if s.csvErr == nil {
			s.csvErr = fmt.Errorf("parse %s%s: %w", prefix, csv.Name, err)
		}
		return nil
	}
	for _, file := range directory {
		if !file.IsDir && strings.EqualFold(file.Name, name) {
			s.fromCSV = &loader{path: prefix + file.Name, label: label}
			return nil
		}
	}
	return nil
}

// parseCSV parses the first line of the file that shim's fallback loader uses. It is UTF-16, little-endian unless it
// has another byte order mark. Its fields are the loader's file name, the label, options and a description.
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
		return "", "", fmt.Errorf("CSV line: got %d fields, want at least 2", len(fields))
	}
	file, label = strings.TrimSpace(fields[0]), strings.TrimSpace(fields[1])
	if file == "" || label == "" || strings.ContainsAny(file, `/\`) || file == ".." || !printable(file) {
		return "", "", fmt.Errorf("CSV names the file %.64q and the label %.64q", file, label)
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
