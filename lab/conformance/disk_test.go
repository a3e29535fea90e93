//go:build linux

package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// planted is a text that fills what is on a disk before a scenario. Where it is found afterwards, nothing was erased.
const planted = "planted-by-the-former-tenant----" // 32 bytes

// chunk is the unit in which the content of a disk is described.
const chunk = mib

// span is a range of bytes.
type span struct {
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	What   string `json:"what,omitempty"`
}

// diskState describes the content of a disk.
type diskState struct {
	Table *table `json:"table,omitempty"`
	// Whole and Parts hold blkid's findings at the start of the disk and of its partitions.
	Whole map[string]string   `json:"whole,omitempty"`
	Parts []map[string]string `json:"parts,omitempty"`
	// Arrays are the superblocks of software RAID on the disk, "0", and on its partitions, by number.
	Arrays map[string]map[string]string `json:"arrays,omitempty"`
	// Content lists the chunks that are not only zeros.
	Content []span `json:"content,omitempty"`
	// Ranges are the digests of the ranges that the scenario names, if all its commands succeeded.
	Ranges []span `json:"ranges,omitempty"`
}

// table is a partition table as sfdisk describes it, with sizes in sectors.
type table struct {
	Label      string      `json:"label"`
	ID         string      `json:"id"`
	FirstLBA   int64       `json:"firstlba,omitempty"`
	LastLBA    int64       `json:"lastlba,omitempty"`
	Sector     int         `json:"sectorsize,omitempty"`
	Partitions []partition `json:"partitions"`
}

type partition struct {
	Number   int    `json:"number"`
	Start    int64  `json:"start"`
	Size     int64  `json:"size"`
	Type     string `json:"type"`
	UUID     string `json:"uuid,omitempty"`
	Name     string `json:"name,omitempty"`
	Attrs    string `json:"attrs,omitempty"`
	Bootable bool   `json:"bootable,omitempty"`
}

// describeDisk describes the content of a disk with sectors of the given size.
func describeDisk(path string, sector int64, ranges []span) (*diskState, error) {
	if sector == 0 {
		sector = 512
	}
	state := &diskState{}
	var err error
	if state.Table, err = readTable(path, sector); err != nil {
		return nil, err
	}
	if state.Whole, err = blkid(path, 0, 0); err != nil {
		return nil, err
	}
	if state.Table != nil {
		for _, p := range state.Table.Partitions {
			found, err := blkid(path, p.Start*sector, p.Size*sector)
			if err != nil {
				return nil, err
			}
			state.Parts = append(state.Parts, found)
		}
	}
	if state.Arrays, err = readArrays(path, sector, state.Table); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if state.Content, err = describeContent(f); err != nil {
		return nil, err
	}
	for _, r := range ranges {
		r.What, err = digest(f, r.Offset, r.Length)
		if err != nil {
			return nil, err
		}
		state.Ranges = append(state.Ranges, r)
	}
	return state, nil
}

// readTable returns the partition table of a disk, or nil if there is none.
func readTable(path string, sector int64) (*table, error) {
	if sector != 512 { // sfdisk knows other sectors only since util-linux 2.42
		if t, err := readGPT(path, sector); t != nil || err != nil {
			return t, err
		}
	}
	out, err := exec.Command("sfdisk", "--json", path).Output()
	if err != nil {
		return nil, nil //nolint:nilerr // no table is the usual reason, and the recording shows it
	}
	var found struct {
		PartitionTable struct {
			table
			Partitions []struct {
				partition
				Node string
			} `json:"partitions"`
		}
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("sfdisk: %w", err)
	}
	t := found.PartitionTable.table
	for _, p := range found.PartitionTable.Partitions {
		p.Number, err = strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(p.Node, path), "p"))
		if err != nil {
			return nil, fmt.Errorf("sfdisk: node %s", p.Node)
		}
		t.Partitions = append(t.Partitions, p.partition)
	}
	return &t, nil
}

// blkid returns what blkid finds at an offset. A file system of ISO 9660, and the root file system of the suite's
// images, also get the digest of their content.
func blkid(path string, offset, length int64) (map[string]string, error) {
	args := []string{"-p", "-o", "export", "-O", strconv.FormatInt(offset, 10)}
	if length > 0 {
		args = append(args, "-S", strconv.FormatInt(length, 10))
	}
	out, err := exec.Command("blkid", append(args, path)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		return map[string]string{}, nil // nothing found
	}
	found := map[string]string{}
	if errors.As(err, &exit) && exit.ExitCode() == 8 {
		return map[string]string{"TYPE": "ambivalent"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("blkid: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "TYPE", "LABEL", "UUID", "UUID_SUB", "PTTYPE", "VERSION", "SEC_TYPE":
			found[key] = value
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	switch {
	case found["TYPE"] == "iso9660":
		var sectors [4]byte
		if _, err := f.ReadAt(sectors[:], offset+16*2048+80); err != nil {
			return nil, err
		}
		found["DIGEST"], err = digest(f, offset, int64(binary.LittleEndian.Uint32(sectors[:]))*2048)
	case found["UUID"] == rootUUID:
		found["DIGEST"], err = digest(f, offset, rootSize)
	}
	return found, err
}

// digest returns the digest of a range of a file.
func digest(f io.ReaderAt, offset, length int64) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, offset, length)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// describeContent lists the chunks of a file that contain anything but zeros.
func describeContent(f *os.File) ([]span, error) {
	var spans []span
	buffer := make([]byte, chunk)
	for at := int64(0); ; {
		next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return spans, nil
		}
		if err != nil {
			return nil, err
		}
		at = next / chunk * chunk
		n, err := f.ReadAt(buffer, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if what := kindOf(buffer[:n]); what != "" {
			spans = appendChunk(spans, span{at, int64(n), what})
		}
		if at += chunk; n < chunk {
			return spans, nil
		}
	}
}

// appendChunk appends a chunk, or extends the last span if the chunk follows it and contains the same.
func appendChunk(spans []span, next span) []span {
	if len(spans) > 0 {
		last := &spans[len(spans)-1]
		if last.What == next.What && last.Offset+last.Length == next.Offset {
			last.Length += next.Length
			return spans
		}
	}
	return append(spans, next)
}

// kindOf describes data: "" for zeros, "planted", "data", or "planted, data".
func kindOf(data []byte) string {
	parts := bytes.Count(data, []byte(planted))
	rest := bytes.ReplaceAll(data, []byte(planted), nil)
	other := len(bytes.Trim(rest, "\x00")) > 0
	switch {
	case parts > 0 && other:
		return "planted, data"
	case parts > 0:
		return "planted"
	case other:
		return "data"
	}
	return ""
}

// plant fills a range of a disk with the planted text.
func plant(path string, offset, length int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(bytes.Repeat([]byte(planted), int(length)/len(planted)), offset)
	return errors.Join(err, f.Close())
}
