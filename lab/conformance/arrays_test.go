//go:build linux

package conformance

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// arraySample is the number of bytes at the start and the end of a member that can contain a superblock.
const arraySample = mib

// readArrays returns what mdadm finds on a disk and its partitions, by number: "0" is the disk.
func readArrays(path string, sector int64, t *table) (map[string]map[string]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	parts := map[string]span{"0": {Length: info.Size()}}
	if t != nil {
		for _, p := range t.Partitions {
			parts[strconv.Itoa(p.Number)] = span{Offset: p.Start * sector, Length: p.Size * sector}
		}
	}
	arrays := map[string]map[string]string{}
	for number, part := range parts {
		found, err := examine(path, part)
		if err != nil {
			return nil, err
		}
		if found != nil {
			arrays[number] = found
		}
	}
	return arrays, nil
}

// examine returns the fields that mdadm prints for a part of a disk, nil if it has no superblock. mdadm reads a sparse
// copy of the part's ends.
func examine(path string, part span) (map[string]string, error) {
	disk, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer disk.Close() //nolint:errcheck // only read
	sample, err := os.CreateTemp("", "member")
	if err != nil {
		return nil, err
	}
	defer os.Remove(sample.Name()) //nolint:errcheck // temporary
	for _, at := range []int64{0, max(0, part.Length-arraySample)} {
		data := make([]byte, min(arraySample, part.Length-at))
		if _, err := disk.ReadAt(data, part.Offset+at); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if _, err := sample.WriteAt(data, at); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(sample.Truncate(part.Length), sample.Close()); err != nil {
		return nil, err
	}
	out, err := exec.Command("mdadm", "--examine", sample.Name()).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil // no superblock
	}
	if err != nil {
		return nil, fmt.Errorf("mdadm: %w", err)
	}
	return parseExamine(string(out)), nil
}

// parseExamine parses the output of mdadm --examine. A partition table, for which mdadm prints no superblock, is nil.
func parseExamine(out string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(line, " : "); ok {
			found[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	if found["Magic"] == "" {
		return nil
	}
	name, _, _ := strings.Cut(found["Name"], "  (local to host") // mdadm compares it with the name of this machine
	found["Name"] = name
	splitName(found, "Name")
	return found
}

// splitName splits the field key, HOST:NAME, into the fields Host and key, so that each is compared alone.
func splitName(fields map[string]string, key string) {
	if host, name, ok := strings.Cut(fields[key], ":"); ok {
		fields["Host"], fields[key] = host, name
	}
}

// arrayFields keeps the fields of a superblock that do not depend on when the array was created, on how much of it is
// in sync, or on random numbers. One member of a new array of level 5 is not active until the array is in sync.
func arrayFields(fields map[string]string) {
	if fields["Raid Level"] == "raid5" {
		delete(fields, "Array State")
	}
	maps.DeleteFunc(fields, func(key, _ string) bool {
		switch key {
		case "Feature Map", // bits for a resync in progress; the bitmap is a field of its own
			"State", "Update Time", "Creation Time", "Checksum", "Events", "Resync Offset", "Recovery Offset",
			"Unused Space":
			return true
		}
		return false
	})
	for _, key := range []string{"Array UUID", "Device UUID", "UUID"} {
		if fields[key] != "" {
			fields[key] = "<uuid>"
		}
	}
}

// withoutBitmap returns the arrays with redundancy that have no bitmap. This ramdisk creates none.
func withoutBitmap(o observation) (problems []string) {
	for serial, d := range o.Disks {
		for number, fields := range d.Arrays {
			if fields["Raid Level"] != "raid0" && fields["Internal Bitmap"] == "" {
				problems = append(problems, fmt.Sprintf("disk %s: array on %s without a bitmap", serial, number))
			}
		}
	}
	return problems
}
