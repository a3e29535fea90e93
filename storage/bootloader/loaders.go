package bootloader

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"ironroot/storage/fat"
	"ironroot/storage/partition"
)

// loader is a boot loader on an ESP.
type loader struct {
	path    string // with backslashes, from the root of the ESP
	label   string
	options string // arguments of the program, "" for none
}

// loaderNames are the recognised file names in lower case.
var loaderNames = []string{
	"bootx64.csv", "bootaa64.csv", "boot.csv",
	"bootia32.efi", "bootx64.efi", "bootia64.efi", "bootarm.efi", "bootaa64.efi",
	"bootriscv32.efi", "bootriscv64.efi", "bootriscv128.efi", "grubaa64.efi", "winload.efi",
}

// otherNames are further file names in lower case, used if there is none of loaderNames, the preferred first. A shim
// starts the vendor's next loader, also with Secure Boot; systemd-boot and GRUB have a menu of systems.
var otherNames = namesFor(runtime.GOARCH)

// namesFor returns otherNames for an architecture. Firmware does not start loaders for others, only firmware of 32 bits
// can be on an x86-64 machine.
func namesFor(goarch string) (names []string) {
	suffixes := []string{"x64", "ia32", ""}
	if goarch == "arm64" {
		suffixes = []string{"aa64", ""}
	}
	for _, kind := range []string{"shim", "systemd-boot", "grub"} {
		for _, suffix := range suffixes {
			names = append(names, kind+suffix+".efi")
		}
	}
	return append(names, kernelImages, "bootmgfw.efi")
}

// kernelImages is the path, in lower case, of the directory of unified kernel images (Boot Loader Specification, type
// 2). In otherNames it stands for all programs in that directory.
const kernelImages = `\efi\linux\`

// preference returns the index in otherNames of a file; prefix is the path of its directory with a final backslash. It
// returns len(otherNames) for other files.
func preference(prefix, name string) int {
	n := slices.Index(otherNames, strings.ToLower(name))
	if n < 0 && isProgram(name) {
		n = slices.Index(otherNames, strings.ToLower(prefix))
	}
	if n < 0 {
		return len(otherNames)
	}
	return n
}

func isProgram(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".efi") }

var digits = regexp.MustCompile(`[0-9]+`)

// sortKey returns a text that sorts names with versions by the values of their numbers: 6.9 before 6.10.
func sortKey(name string) string {
	return digits.ReplaceAllStringFunc(strings.ToLower(name), func(number string) string {
		return strings.Repeat("0", max(0, 20-len(number))) + number
	})
}

const (
	maxDepth = 8       // depth of directories
	maxFiles = 20000   // number of files
	maxCSV   = 8 << 10 // size of a CSV file in bytes
	maxLabel = 128     // characters in a boot entry's label
	maxNamed = 8       // programs in the error that none is a loader
)

// espContent holds the boot loaders of an ESP.
type espContent struct {
	partition partition.Partition
	loaders   []loader // at least one
	other     bool     // loaders has one of otherNames
	fallback  string   // the loader that firmware finds without a boot entry, "" if there is none
}

// readLoaders finds the loaders on the ESP, a partition of the disk. The error wraps ErrSectorSize if the kernel cannot
// mount it on a disk with the given sector size; 0 means that it need not.
func readLoaders(disk string, esp partition.Partition, sector int64) (espContent, error) {
	f, err := os.Open(disk)
	if err != nil {
		return espContent{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	content := espContent{partition: esp}
	tree, err := fat.Open(io.NewSectionReader(f, esp.Start, esp.Size))
	if err == nil && tree.SectorSize() < sector {
		err = fmt.Errorf("%w: got sectors of %d bytes, want at least the disk's %d",
			ErrSectorSize, tree.SectorSize(), sector)
	}
	if err == nil {
		s := searcher{tree: tree}
		content.loaders, content.other, err = s.search()
	}
	if err == nil {
		content.fallback, err = findFallback(tree)
	}
	if err != nil {
		return espContent{}, fmt.Errorf("read the ESP, partition %d: %w", esp.Number, err)
	}
	return content, nil
}

// search walks the ESP: the files of a directory before its subdirectories, both sorted by name. A CSV file that names
// an existing loader takes precedence over all others. If other is set, the only loader is one of otherNames.
func (s *searcher) search() (loaders []loader, other bool, err error) {
	s.preference = len(otherNames)
	if err := s.walk(".", 0); err != nil {
		return nil, false, err
	}
	switch {
	case s.fromCSV != nil:
		return []loader{*s.fromCSV}, false, nil
	case len(s.found) > 0:
		loaders = s.found
	case s.csvErr != nil:
		return nil, false, s.csvErr
	case s.preference < len(otherNames):
		loaders, other = []loader{s.preferred}, true
	default:
		return nil, false, s.noLoader()
	}
	for i := range loaders {
		loaders[i].label = fmt.Sprintf("ironic%d", i+1)
	}
	return loaders, other, nil
}

// noLoader returns an error that names programs on the ESP that are no known loaders.
func (s *searcher) noLoader() error {
	programs := "none is a program"
	if len(s.programs) > 0 {
		programs = fmt.Sprintf("found %.100q", s.programs)
	}
	return fmt.Errorf("%w: none of %d files is a known loader, %s", ErrNoLoader, s.files, programs)
}

type searcher struct {
	tree       *fat.FS
	files      int
	found      []loader
	fromCSV    *loader
	csvErr     error // of the first CSV file that cannot be parsed
	preferred  loader
	preference int      // of preferred, len(otherNames) if there is none
	programs   []string // paths of files that are no known loaders
}

// findFallback returns the loader that firmware finds without a boot entry (UEFI 2.10, 3.5.1.1), "" if there is none.
func findFallback(tree *fat.FS) (string, error) {
	directory := "."
	for _, name := range []string{"efi", "boot", ""} {
		files, err := tree.ReadDir(directory)
		if err != nil {
			return "", err
		}
		next := slices.IndexFunc(files, func(f fs.DirEntry) bool {
			if name != "" {
				return f.IsDir() && strings.EqualFold(f.Name(), name)
			}
			lower := strings.ToLower(f.Name())
			return !f.IsDir() && slices.Contains(loaderNames, lower) && strings.HasPrefix(lower, "boot") &&
				strings.HasSuffix(lower, ".efi")
		})
		if next < 0 {
			return "", nil
		}
		directory = path.Join(directory, files[next].Name())
	}
	return firmwarePath(directory), nil
}

// firmwarePath returns a path with backslashes from the root of the ESP.
func firmwarePath(name string) string { return `\` + strings.ReplaceAll(name, "/", `\`) }

// walk searches a directory.
func (s *searcher) walk(directory string, depth int) error {
	files, err := s.tree.ReadDir(directory)
	if err != nil {
		return err
	}
	prefix := `\`
	if directory != "." {
		prefix = firmwarePath(directory) + `\`
	}
	for _, file := range files {
		if s.files++; s.files > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		name := strings.ToLower(file.Name())
		switch {
		case file.IsDir():
		case !slices.Contains(loaderNames, name):
			s.addOther(prefix, file.Name())
		case strings.HasSuffix(name, ".csv"):
			if err := s.readCSV(path.Join(directory, file.Name()), files); err != nil || s.fromCSV != nil {
				return err
			}
		default:
			s.found = append(s.found, loader{path: prefix + file.Name()})
		}
	}
	for _, file := range files {
		if !file.IsDir() || depth == maxDepth {
			continue
		}
		if err := s.walk(path.Join(directory, file.Name()), depth+1); err != nil || s.fromCSV != nil {
			return err
		}
	}
	return nil
}

// addOther records a file that is none of loaderNames. Of loaders with the same preference, the first found is
// preferred, of unified kernel images the one with the highest version in its name.
func (s *searcher) addOther(prefix, name string) {
	at, n := prefix+name, preference(prefix, name)
	switch {
	case n == len(otherNames):
		if isProgram(name) && len(s.programs) < maxNamed {
			s.programs = append(s.programs, at)
		}
	case n < s.preference, n == s.preference && otherNames[n] == kernelImages &&
		sortKey(at) > sortKey(s.preferred.path):
		s.preferred, s.preference = loader{path: at}, n
	}
}

// readCSV selects the loader that a CSV file names, in the same directory. A file that names a missing loader is
// ignored. A file that cannot be parsed is recorded in csvErr: search returns it if none of loaderNames is found.
func (s *searcher) readCSV(csv string, directory []fs.DirEntry) error {
	f, err := s.tree.Open(csv)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCSV))
	if err != nil {
		return err
	}
	name, label, options, err := parseCSV(data)
	if err != nil {
		if s.csvErr == nil {
			s.csvErr = fmt.Errorf("parse %s: %w", firmwarePath(csv), err)
		}
		return nil
	}
	for _, file := range directory {
		if !file.IsDir() && strings.EqualFold(file.Name(), name) {
			found := firmwarePath(path.Join(path.Dir(csv), file.Name()))
			s.fromCSV = &loader{path: found, label: label, options: options}
			return nil
		}
	}
	return nil
}

// parseCSV parses the first line of the file that shim's fallback loader uses. It is UTF-16, little-endian unless it
// has another byte order mark. Its fields are the loader's file name, the label, options and a description. As in shim,
// options are not trimmed.
func parseCSV(data []byte) (file, label, options string, err error) {
	var order binary.ByteOrder = binary.LittleEndian
	if len(data) >= 2 && data[0] == 0xfe && data[1] == 0xff {
		order = binary.BigEndian
	}
	var units []uint16
	for i := 0; i+1 < len(data); i += 2 {
		units = append(units, order.Uint16(data[i:]))
	}
	text := strings.TrimPrefix(string(utf16.Decode(units)), "\ufeff")
	line := strings.TrimLeft(text, "\r\n")
	if end := strings.IndexAny(line, "\r\n\x00"); end >= 0 {
		line = line[:end]
	}
	fields := strings.Split(line, ",")
	if len(fields) < 2 {
		return "", "", "", fmt.Errorf("CSV line: got %d fields, want at least 2", len(fields))
	}
	file, label = strings.TrimSpace(fields[0]), strings.TrimSpace(fields[1])
	if file == "" || label == "" || strings.ContainsAny(file, `/\`) || file == ".." || !printable(file) {
		return "", "", "", fmt.Errorf("CSV names the file %.64q and the label %.64q", file, label)
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
	if len(fields) > 2 {
		options = fields[2]
	}
	return file, label, options, nil
}

func printable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
