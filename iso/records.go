package iso

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
)

// volume contains the used fields of the primary volume descriptor (ECMA-119, 8.4).
type volume struct {
	blocks     uint32 // size of the volume
	root, size uint32 // extent of the root directory, and its length in bytes
}

const (
	primaryBlock = 16
	bootBlock    = 17 // El Torito, section 2.0: the boot record must be in this sector
)

func readVolume(f *os.File) (volume, []byte, error) {
	block := make([]byte, blockSize)
	if _, err := f.ReadAt(block, primaryBlock*blockSize); err != nil {
		return volume{}, nil, fmt.Errorf("read volume descriptor: %w", err)
	}
	if block[0] != 1 || string(block[1:6]) != "CD001" {
		return volume{}, nil, errors.New("sector 16 is not a primary volume descriptor")
	}
	return volume{
		blocks: binary.LittleEndian.Uint32(block[80:]),
		root:   binary.LittleEndian.Uint32(block[156+2:]),
		size:   binary.LittleEndian.Uint32(block[156+10:]),
	}, block, nil
}

// correctRecords corrects the volume descriptor and the directory records that the library wrote. It replaces what
// depends on the time and place of the build: time stamps, owners and link counts, which the library takes from the
// clock and from the files of its workspace. It restores the leading dots of Rock Ridge names. An invalid identifier of
// a file or directory is an error, and so is one that its directory contains twice.
func correctRecords(f *os.File) error {
	v, block, err := readVolume(f)
	if err != nil {
		return err
	}
	copy(block[156+18:], recordTime())
	for _, offset := range []int{813, 830, 847, 864} { // creation, modification, expiration, effective
		copy(block[offset:offset+17], epoch.Format("20060102150405")+"00\x00")
	}
	if _, err := f.WriteAt(block, primaryBlock*blockSize); err != nil {
		return err
	}
	return correctDir(f, v.root, v.size, 1)
}

// recordTime is the time stamp of a directory record (ECMA-119, 9.1.5).
func recordTime() []byte {
	return []byte{byte(epoch.Year() - 1900), byte(epoch.Month()), byte(epoch.Day()), 0, 0, 0, 0}
}

// Identifiers of interchange level 1 (ECMA-119, 7.5, 7.6 and 10.1).
var (
	dirIdentifier  = regexp.MustCompile(`^[A-Z0-9_]{1,8}$`)
	fileIdentifier = regexp.MustCompile(`^([A-Z0-9_]{1,8}\.[A-Z0-9_]{0,3}|\.[A-Z0-9_]{1,3});1$`)
)

// correctDir corrects the records of a directory and of the directories below it, and checks their identifiers.
func correctDir(f *os.File, location, size uint32, depth int) error {
	const deepest = 8 // ECMA-119, 6.8.2.1
	if depth > deepest {
		return fmt.Errorf("directories are deeper than %d", deepest)
	}
	extent := make([]byte, size)
	if _, err := f.ReadAt(extent, int64(location)*blockSize); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read directory: %w", err)
	}
	type child struct{ location, size uint32 }
	var children []child
	seen := map[string]bool{}
	for at := 0; at < len(extent); {
		length := int(extent[at])
		if length == 0 { // the rest of a sector: a record does not cross its end
			at = (at/blockSize + 1) * blockSize
			continue
		}
		if length < 34 || at+length > len(extent) {
			return fmt.Errorf("directory record at byte %d has length %d", at, length)
		}
		record := extent[at : at+length]
		at += length
		copy(record[18:], recordTime())
		name := 33 + int(record[32])
		name += name % 2 // padded to an even offset
		if name > len(record) {
			return fmt.Errorf("directory record at byte %d has a name of length %d", at-length, record[32])
		}
		const dirFlag = 2
		isDir := record[25]&dirFlag != 0
		if err := correctRockRidge(f, record[name:], isDir); err != nil {
			return err
		}
		if record[32] == 1 && record[33] <= 1 { // "." and ".."
			continue
		}
		identifier, valid := string(record[33:33+int(record[32])]), fileIdentifier
		if isDir {
			valid = dirIdentifier
			children = append(children,
				child{binary.LittleEndian.Uint32(record[2:]), binary.LittleEndian.Uint32(record[10:])})
		}
		if !valid.MatchString(identifier) || seen[identifier] {
			return fmt.Errorf("directory record at byte %d has the identifier %q, want a unique one of up to 8 and 3 "+
				"characters", at-length, identifier)
		}
		seen[identifier] = true
	}
	if _, err := f.WriteAt(extent, int64(location)*blockSize); err != nil {
		return err
	}
	for _, c := range children {
		if err := correctDir(f, c.location, c.size, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// correctRockRidge corrects the entries TF, PX and NM of a system use area (SUSP 1.12, RRIP 1.12) and of its
// continuation area.
func correctRockRidge(f *os.File, area []byte, isDir bool) error {
	for len(area) >= 4 {
		length := int(area[2])
		if length < 4 || length > len(area) {
			return nil // padding
		}
		entry := area[:length]
		area = area[length:]
		switch string(entry[:2]) {
		case "TF":
			const longForm = 0x80
			if len(entry) < 5 || entry[4]&longForm != 0 {
				return errors.New("time stamps are in an unknown form")
			}
			for at := 5; at+7 <= len(entry); at += 7 {
				copy(entry[at:], recordTime())
			}
		case "PX":
			links := uint32(1)
			if isDir {
				links = 2
			}
			putBoth(entry[12:], links)
			putBoth(entry[20:], 0) // owner
			putBoth(entry[28:], 0) // group
		case "NM":
			if len(entry) > 5 && entry[5] == leadingDot {
				entry[5] = '.'
			}
		case "CE":
			offset := int64(binary.LittleEndian.Uint32(entry[4:]))*blockSize +
				int64(binary.LittleEndian.Uint32(entry[12:]))
			more := make([]byte, min(binary.LittleEndian.Uint32(entry[20:]), blockSize))
			if _, err := f.ReadAt(more, offset); err != nil {
				return fmt.Errorf("read continuation area: %w", err)
			}
			if err := correctRockRidge(f, more, isDir); err != nil {
				return err
			}
			if _, err := f.WriteAt(more, offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// putBoth writes a number in both byte orders (ECMA-119, 7.3.3).
func putBoth(b []byte, value uint32) {
	binary.LittleEndian.PutUint32(b, value)
	binary.BigEndian.PutUint32(b[4:], value)
}
