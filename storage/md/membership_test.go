package md

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

const (
	imsmSerialText  = "SCSI0123456789012345678" // of the disk "imsm"
	imsmSpareSerial = "SATA : 0123456789ab"
)

// patched is a disk with other bytes at some offsets.
type patched struct {
	disk    []byte
	changes map[int64][]byte
}

func (p patched) ReadAt(data []byte, offset int64) (int, error) {
	n, err := bytes.NewReader(p.disk).ReadAt(data, offset)
	for at, change := range p.changes {
		if at < offset+int64(n) && at+int64(len(change)) > offset {
			copy(data[max(0, at-offset):n], change[max(0, offset-at):])
		}
	}
	return n, err
}

// with returns the disk with other bytes at one more offset.
func (p patched) with(at int64, change []byte) patched {
	next := patched{p.disk, maps.Clone(p.changes)}
	if next.changes == nil {
		next.changes = map[int64][]byte{}
	}
	next.changes[at] = change
	return next
}

// read returns bytes of the disk.
func (p patched) read(offset, length int64) []byte {
	data := make([]byte, length)
	if _, err := p.ReadAt(data, offset); err != nil {
		panic(err)
	}
	return data
}

// checkMembership compares the result with the expected format, and with a part of the reason, which is "" for an
// active member.
func checkMembership(t *testing.T, name string, r io.ReaderAt, size, sector int64, serials []string, want External,
	reason string,
) {
	t.Helper()
	got, err := FindMembership(r, size, sector, serials)
	if err != nil || got.Format != want || got.IsActive() != (want != "" && reason == "") ||
		(got.Reason == "") != (reason == "") || !strings.Contains(got.Reason, reason) {
		t.Errorf("%s: got %q, active %v (%s) and %v, want %q (%s)", name, string(got.Format), got.IsActive(),
			got.Reason, err, string(want), reason)
	}
}

// Disks of containers and volumes that mdadm created. IMSM compares the serial number as mdadm does: without spaces,
// with ";" for ":", the last 16 characters.
func TestMembershipGoldens(t *testing.T) {
	const notListed, unknown = " is not among the 2 listed disks", "serial number of the disk is unknown"
	for disk, cases := range map[string][]struct {
		sector  int64
		serials []string
		want    External
		reason  string
	}{
		"imsm": {
			{512, []string{imsmSerialText}, IMSM, ""},
			{512, []string{"other", " 3456 7890 1234 5678\n"}, IMSM, ""},
			{512, []string{"nvme"}, IMSM, ""}, // the other member of the array
			{512, []string{"3456789012345679"}, IMSM, "3456789012345679" + notListed},
			{512, []string{"NVME", "nvme1"}, IMSM, "NVME or nvme1" + notListed},
			{512, []string{imsmSpareSerial}, IMSM, "ATA;0123456789ab" + notListed},
			{512, nil, IMSM, unknown},
			{512, []string{"", " \xff"}, IMSM, unknown},
			{4096, []string{imsmSerialText}, "", ""},
		},
		"imsm-spare": {
			{512, []string{imsmSpareSerial}, IMSM, "disk ATA;0123456789ab is listed as a spare (status 0x1)"},
			{512, []string{imsmSerialText}, IMSM, "is not among the 1 listed disks"},
		},
		"imsm-4096": {{4096, []string{"large1"}, IMSM, ""}, {512, []string{"large1"}, "", ""}},
		"ddf":       {{512, nil, DDF, ""}, {4096, []string{"any"}, DDF, ""}},
		"ddf-spare": {{512, nil, DDF, "as a spare (type 0x5, state 0x1)"}},
	} {
		data := testenv.FirmwareRAID(t, disk)
		for _, c := range cases {
			name := fmt.Sprintf("%s, %q, sectors of %d bytes", disk, c.serials, c.sector)
			checkMembership(t, name, bytes.NewReader(data), int64(len(data)), c.sector, c.serials, c.want, c.reason)
		}
	}
}

// imsmFields returns a disk like "imsm" with other bytes of its metadata and a valid checksum.
func imsmFields(disk []byte, changes map[int64][]byte) patched {
	const sector, length = 512, 648
	start := int64(len(disk)) - 2*sector
	metadata := slices.Concat(disk[start:start+sector], disk[start-sector:start])
	for at, change := range changes {
		copy(metadata[at:], change)
	}
	var sum uint32
	for i := 0; i < length; i += 4 {
		sum += binary.LittleEndian.Uint32(metadata[i:])
	}
	sum -= binary.LittleEndian.Uint32(metadata[32:])
	binary.LittleEndian.PutUint32(metadata[32:], sum)
	return patched{disk, map[int64][]byte{start: metadata[:sector], start - sector: metadata[sector:]}}
}

// imsmStatus is the offset of the status of the disk "imsm", which is the second one in the table.
const imsmStatus = 216 + 48 + 24

// imsmStates are the reasons for each status: SPARE is 1, CONFIGURED 2, FAILED 4.
var imsmStates = map[byte]string{
	0: "as member of no volume (status 0x0)", 1: "as a spare", 2: "", 3: "", 4: "as failed", 5: "as failed",
	6: "as failed (status 0x6)",
}

// Only the status CONFIGURED without FAILED is an active member.
func TestIMSMStatus(t *testing.T) {
	disk := testenv.FirmwareRAID(t, "imsm")
	for status, reason := range imsmStates {
		changed := imsmFields(disk, map[int64][]byte{imsmStatus: {status}})
		checkMembership(t, fmt.Sprintf("status %d", status), changed, int64(len(disk)), 512, []string{imsmSerialText},
			IMSM, reason)
	}
	for name, c := range map[string]struct {
		changes map[int64][]byte
		reason  string
	}{
		"no volume": {map[int64][]byte{57: {0}}, "as member of no volume"},
		"placeholder": {
			map[int64][]byte{216 + 48: []byte("789012345678:0\x00\x00")}, "is not among the 2 listed disks",
		},
		"one disk fewer":   {map[int64][]byte{56: {1}}, "is not among the 1 listed disks"},
		"too many disks":   {map[int64][]byte{56: {10}}, "got metadata of 648 bytes, want at least 696 for 10 disks"},
		"serial shortened": {map[int64][]byte{216 + 48 + 15: {0}}, "is not among the 2 listed disks"},
	} {
		checkMembership(t, name, imsmFields(disk, c.changes), int64(len(disk)), 512, []string{imsmSerialText}, IMSM,
			c.reason)
	}
}

// Each bit of the metadata is covered by the checksum. A size that cannot be is rejected before more is read.
func TestIMSMDamaged(t *testing.T) {
	disk := testenv.FirmwareRAID(t, "imsm")
	size := int64(len(disk))
	anchor := size - 1024
	flip := func(at int64) patched { return patched{disk, map[int64][]byte{at: {disk[at] ^ 0x40}}} }
	serials := []string{imsmSerialText}
	for _, at := range []int64{24, 32, 35, 40, 56, 57, 215, 216, imsmStatus, 511} {
		checkMembership(t, fmt.Sprintf("byte %d", at), flip(anchor+at), size, 512, serials, IMSM, "got checksum ")
	}
	for _, at := range []int64{0, 648 - 512 - 1} {
		checkMembership(t, fmt.Sprintf("byte %d of the second sector", at), flip(anchor-512+at), size, 512, serials,
			IMSM, "got checksum ")
	}
	checkMembership(t, "beyond the metadata", flip(anchor-512+648-512), size, 512, serials, IMSM, "")
	checkMembership(t, "migration record", flip(size-1), size, 512, serials, IMSM, "")
	checkMembership(t, "signature", flip(anchor+23), size, 512, serials, "", "")
	for length, reason := range map[uint32]string{
		0: "got metadata of 0 bytes, want 216 to 1131520", 215: "215 bytes", 1131521: "1131521 bytes",
		1<<32 - 1: "4294967295 bytes", 647: "got checksum", 216: "got checksum", 1131520: "got checksum",
	} {
		changed := patched{disk, map[int64][]byte{anchor + 36: binary.LittleEndian.AppendUint32(nil, length)}}
		checkMembership(t, fmt.Sprintf("%d bytes", length), changed, size, 512, serials, IMSM, reason)
	}
	small := disk[size-2048:]
	checkMembership(t, "small disk", bytes.NewReader(small), 2048, 512, serials, IMSM, "")
	changed := patched{small, map[int64][]byte{1024 + 36: binary.LittleEndian.AppendUint32(nil, 1537)}}
	checkMembership(t, "smaller than its metadata", changed, 2048, 512, serials, IMSM,
		"got metadata of 1537 bytes on a disk of 2048 bytes")
}

// A copy of the metadata of DDF: the block of its header, and the blocks of its sections from there on.
const (
	ddfDisksAt, ddfDisksLength     = 2, 128
	ddfVirtualAt, ddfVirtualLength = 130, 32
	ddfDiskAt                      = 617
)

var ddfCopies = map[string]int64{"primary": 49152, "secondary": 16384}

// ddfFields returns a disk like "ddf" with other bytes of a section in one copy, and a valid checksum.
func (p patched) ddfFields(copyName string, section, blocks int64, changes map[int64][]byte) patched {
	start := (ddfCopies[copyName] + section) * ddfBlock
	data := p.read(start, blocks*ddfBlock)
	for at, change := range changes {
		copy(data[at:], change)
	}
	setDDFChecksum(data)
	return p.with(start, data)
}

// setDDFChecksum sets the checksum of a section: the CRC-32 of IEEE 802.3 that begins with 0 and is not inverted.
func setDDFChecksum(data []byte) {
	copy(data[4:], "\xff\xff\xff\xff")
	var sum uint32
	for _, b := range data {
		sum ^= uint32(b)
		for range 8 {
			sum = sum>>1 ^ 0xedb88320*(sum&1)
		}
	}
	binary.BigEndian.PutUint32(data[4:], sum)
}

// ddfRecordOf returns the offset of the record of the disk in the section with the disks.
func ddfRecordOf(t *testing.T, disk []byte) int64 {
	t.Helper()
	start := ddfCopies["primary"] * ddfBlock
	reference := disk[start+ddfDiskAt*ddfBlock+32:][:4]
	at := bytes.Index(disk[start+ddfDisksAt*ddfBlock:][:ddfDisksLength*ddfBlock], reference)
	if at < 0 {
		t.Fatal("the disk lists itself nowhere")
	}
	return int64(at) - 24
}

// ddfStates are the reasons for each type and state of the disk.
var ddfStates = map[[2]byte]string{
	{3, 1}: "", {2, 1}: "", {2, 4}: "", {2, 5}: "", {2, 1 | 16 | 32}: "", {2 | 4, 1}: "", {2 | 8, 1}: "",
	{0, 1}: "as member of no virtual disk (type 0x0, state 0x1)", {1, 1}: "as member of no virtual disk",
	{4, 1}: "as a spare", {8, 1}: "as a spare",
	{2, 0}: "as offline", {2, 8}: "as offline", {2, 2}: "as failed", {2, 3}: "as failed", {2, 6}: "as failed",
	{2, 1 | 64}: "as missing", {2, 64}: "as missing",
}

func TestDDFStatus(t *testing.T) {
	disk := testenv.FirmwareRAID(t, "ddf")
	size, record := int64(len(disk)), ddfRecordOf(t, disk)
	for c, reason := range ddfStates {
		changed := patched{disk: disk}.ddfType("primary", record, c[0], c[1])
		checkMembership(t, fmt.Sprintf("type %#x, state %#x", c[0], c[1]), changed, size, 512, nil, DDF, reason)
	}
	for name, c := range map[string]struct {
		section, blocks int64
		changes         map[int64][]byte
		reason          string
	}{
		"other GUID":      {ddfDiskAt, 1, map[int64][]byte{8: []byte("other")}, ""},
		"other reference": {ddfDiskAt, 1, map[int64][]byte{32: {1, 2, 3, 4}}, ""},
		"other GUID and reference": {
			ddfDiskAt, 1,
			map[int64][]byte{8: []byte("other"), 32: {1, 2, 3, 4}},
			"disk 01020304 is not among the 3 listed disks",
		},
		"record not used": {
			ddfDisksAt, ddfDisksLength,
			map[int64][]byte{record + 24: {0xff, 0xff, 0xff, 0xff}},
			"is not among the 2 listed disks",
		},
		"no virtual disk": {
			ddfVirtualAt, ddfVirtualLength, map[int64][]byte{64: {0xff}, 128: {0xff}}, "no virtual disk listed",
		},
		"one virtual disk": {ddfVirtualAt, ddfVirtualLength, map[int64][]byte{64: {0xff}}, ""},
	} {
		changed := patched{disk: disk}.ddfFields("primary", c.section, c.blocks, c.changes)
		checkMembership(t, name, changed, size, 512, nil, DDF, c.reason)
	}
}

// ddfOrder are the sequence numbers and open flags of the copies, and which one counts if both are valid.
type ddfOrder struct {
	primary, secondary [2]byte
	secondaryFirst     bool
}

var ddfOrders = map[string]ddfOrder{
	"equal":                         {[2]byte{5, 0}, [2]byte{5, 0}, false},
	"equal, primary open":           {[2]byte{5, 1}, [2]byte{5, 0}, true},
	"equal, secondary open":         {[2]byte{5, 0}, [2]byte{5, 1}, false},
	"equal, both open":              {[2]byte{5, 1}, [2]byte{5, 1}, false},
	"newer secondary":               {[2]byte{5, 0}, [2]byte{6, 0}, true},
	"newer secondary, primary open": {[2]byte{5, 1}, [2]byte{6, 0}, true},
	"newer secondary, open":         {[2]byte{5, 0}, [2]byte{6, 1}, false},
	"newer primary":                 {[2]byte{6, 0}, [2]byte{5, 0}, false},
	"newer primary, open":           {[2]byte{6, 1}, [2]byte{5, 0}, false},
}

// ddfOrdered returns the disk with these sequence numbers and open flags.
func ddfOrdered(p patched, o ddfOrder) patched {
	for copyName, c := range map[string][2]byte{"primary": o.primary, "secondary": o.secondary} {
		p = p.ddfFields(copyName, 0, 1, map[int64][]byte{40: {0, 0, 0, c[0]}, 48: {c[1]}})
	}
	return p
}

// ddfType returns the disk with another type and state of itself in one copy.
func (p patched) ddfType(copyName string, record int64, kind, state byte) patched {
	return p.ddfFields(copyName, ddfDisksAt, ddfDisksLength, map[int64][]byte{record + 28: {0, kind, 0, state}})
}

// If a copy is damaged, the other one counts. Otherwise the newer one counts if it is closed, and of two with the same
// sequence number the one that is closed.
func TestDDFCopies(t *testing.T) {
	disk := testenv.FirmwareRAID(t, "ddf")
	size, record := int64(len(disk)), ddfRecordOf(t, disk)
	spare := func(p patched, copyName string) patched { return p.ddfType(copyName, record, 5, 1) }
	plain := patched{disk: disk}
	for name, c := range ddfOrders {
		both := ddfOrdered(plain, c)
		first, second := "as a spare", ""
		if c.secondaryFirst {
			first, second = second, first
		}
		checkMembership(t, name+", primary lists a spare", spare(both, "primary"), size, 512, nil, DDF, first)
		checkMembership(t, name+", secondary lists a spare", spare(both, "secondary"), size, 512, nil, DDF, second)
	}
	flip := func(p patched, copyName string, block, at int64) patched {
		offset := (ddfCopies[copyName]+block)*ddfBlock + at
		return p.with(offset, []byte{p.read(offset, 1)[0] ^ 1})
	}
	for block, want := range map[int64]string{
		0: "header: 1 blocks", ddfDisksAt: "128 blocks", ddfVirtualAt: "32 blocks", ddfDiskAt: "1 blocks",
	} {
		for at, problem := range map[int64]string{0: "got magic number", 4: "got checksum", 200: "got checksum"} {
			name := fmt.Sprintf("block %d, byte %d", block, at)
			first := flip(plain, "primary", block, at)
			checkMembership(t, name, first, size, 512, nil, DDF, "")
			reason := fmt.Sprintf("%s at block %d: %s", want, ddfCopies["secondary"]+block, problem)
			checkMembership(t, name+" of both", flip(first, "secondary", block, at), size, 512, nil, DDF, reason)
			checkMembership(t, name+", the other lists a spare", flip(spare(plain, "secondary"), "primary", block, at),
				size, 512, nil, DDF, "as a spare")
			checkMembership(t, name+" of the secondary", flip(spare(plain, "primary"), "secondary", block, at), size,
				512, nil, DDF, "as a spare")
		}
	}
	// Only the secondary copy has the metadata of this array.
	for at, change := range map[int64][]byte{8: {0}, 32: {'9'}, 96: {1}, 104: {1}, 112: {2}} {
		foreign := spare(plain, "secondary").ddfFields("primary", 0, 1, map[int64][]byte{at: change})
		checkMembership(t, fmt.Sprintf("byte %d of the header", at), foreign, size, 512, nil, DDF, "as a spare")
	}
	// Sections that are not on the disk.
	for name, section := range map[string][]byte{
		"empty":    {0, 0, 0, 2, 0, 0, 0, 0},
		"large":    {0, 0, 0, 2, 0, 0, 4, 1},
		"far":      {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 128},
		"too long": {0, 0, 0x7f, 0xff, 0, 0, 0, 128},
	} {
		bad := map[int64][]byte{200: section}
		changed := plain.ddfFields("primary", 0, 1, bad).ddfFields("secondary", 0, 1, bad)
		checkMembership(t, name, changed, size, 512, nil, DDF, "want 1 to 1024 on a disk of 81920")
	}
}

// examined is a loop device that mdadm examines.
type examined struct {
	t      *testing.T
	disk   []byte
	device string
}

func examine(t *testing.T, name string) examined {
	t.Helper()
	disk := testenv.FirmwareRAID(t, name)
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	return examined{t, disk, testenv.Loop(t, file, 512)}
}

// show returns what mdadm shows of the changed disk.
func (e examined) show(p patched) string {
	e.t.Helper()
	device, err := os.OpenFile(e.device, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	defer device.Close() //nolint:errcheck // the writes have been synced
	write := func(at int64, data []byte) {
		if _, err := device.WriteAt(data, at); err != nil {
			e.t.Fatal(err)
		}
	}
	for at, change := range p.changes {
		write(at, change)
	}
	out := testenv.Run(e.t, "mdadm", "--examine", e.device)
	for at, change := range p.changes {
		write(at, e.disk[at:][:len(change)])
	}
	return out
}

// mdadm shows the same states of the changed disks, and prefers the same copy.
func TestMembershipExamine(t *testing.T) {
	testenv.Programs(t, "mdadm")
	testenv.Root(t)
	t.Setenv("IMSM_NO_PLATFORM", "1")
	t.Setenv("IMSM_DEVNAME_AS_SERIAL", "1") // a loop device has no serial number
	imsm := examine(t, "imsm")
	for status := range imsmStates {
		out := imsm.show(imsmFields(imsm.disk, map[int64][]byte{imsmStatus: {status}}))
		match := regexp.MustCompile(`Serial : 3456789012345678\n +State :(.*)`).FindStringSubmatch(out)
		want := ""
		for i, name := range []string{" spare", " active", " failed"} {
			if status>>i&1 == 1 {
				want += name
			}
		}
		if match == nil || match[1] != want || !strings.Contains(out, " correct") {
			t.Errorf("status %d: mdadm shows %q, want %q:\n%s", status, match, want, out)
		}
	}
	ddf := examine(t, "ddf")
	record := ddfRecordOf(t, ddf.disk)
	show := func(p patched) (kind, state string) {
		out := ddf.show(p)
		match := regexp.MustCompile(ddf.device + ` +(.*)/(.*)`).FindStringSubmatch(out)
		if match == nil {
			t.Fatalf("mdadm does not list the disk:\n%s", out)
		}
		return match[1], match[2]
	}
	for c, reason := range ddfStates {
		kind, state := show(patched{disk: ddf.disk}.ddfType("primary", record, c[0], c[1]))
		active := strings.HasPrefix(kind, "active") && !strings.Contains(state, "Missing") &&
			!strings.Contains(state, "Failed") &&
			(strings.HasPrefix(state, "Online") || strings.Contains(state, "Rebuilding"))
		if active != (reason == "") {
			t.Errorf("type %d, state %d: mdadm shows %s/%s, want %q", c[0], c[1], kind, state,
				cmp.Or(reason, "an active member"))
		}
	}
	for name, c := range ddfOrders {
		kind, _ := show(ddfOrdered(patched{disk: ddf.disk}, c).ddfType("secondary", record, 5, 1))
		if (kind == "Global-Spare") != c.secondaryFirst {
			t.Errorf("%s: mdadm shows %q, want the spare of the secondary copy: %v", name, kind, c.secondaryFirst)
		}
	}
}

// A disk can have old metadata of the other format.
func TestMembershipOfTwoFormats(t *testing.T) {
	ddf, imsm := testenv.FirmwareRAID(t, "ddf"), testenv.FirmwareRAID(t, "imsm")
	size := int64(len(ddf))
	for name, c := range map[string]struct {
		serial, want string
		reason       string
	}{
		"imsm is active": {imsmSerialText, "imsm", ""},
		"ddf is active":  {"other", "ddf", ""},
	} {
		both := patched{ddf, map[int64][]byte{size - 1536: imsm[size-1536 : size-512]}}
		checkMembership(t, name, both, size, 512, []string{c.serial}, External(c.want), c.reason)
	}
	spare := testenv.FirmwareRAID(t, "ddf-spare")
	both := patched{spare, map[int64][]byte{size - 1536: imsm[size-1536 : size-512]}}
	checkMembership(t, "neither", both, size, 512, []string{"other"}, IMSM, "is not among the 2 listed disks")
}

// failsAt fails to read some bytes.
type failsAt struct {
	io.ReaderAt
	offset int64
	err    error
}

func (f failsAt) ReadAt(data []byte, offset int64) (int, error) {
	if offset <= f.offset && f.offset < offset+int64(len(data)) {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(data, offset)
}

// A read that fails is an error, except in one of the copies of DDF.
func TestMembershipReadErrors(t *testing.T) {
	broken := errors.New("broken")
	disk := testenv.FirmwareRAID(t, "imsm")
	size := int64(len(disk))
	for _, at := range []int64{size - 1024, size - 1024 + 100, size - 1536} {
		got, err := FindMembership(failsAt{bytes.NewReader(disk), at, broken}, size, 512, []string{imsmSerialText})
		if !errors.Is(err, broken) || got.IsActive() {
			t.Errorf("byte %d: got %+v and %v, want %v", at, got, err, broken)
		}
	}
	disk = testenv.FirmwareRAID(t, "ddf")
	unreadable := failsAt{bytes.NewReader(disk), size - 1, broken}
	if _, err := FindMembership(unreadable, size, 512, nil); !errors.Is(err, broken) {
		t.Errorf("anchor: got %v, want %v", err, broken)
	}
	for _, block := range []int64{0, ddfDisksAt, ddfDiskAt} {
		one := failsAt{bytes.NewReader(disk), (ddfCopies["primary"] + block) * ddfBlock, broken}
		checkMembership(t, fmt.Sprintf("block %d", block), one, size, 512, nil, DDF, "")
		both := failsAt{one, (ddfCopies["secondary"] + block) * ddfBlock, broken}
		checkMembership(t, fmt.Sprintf("block %d of both copies", block), both, size, 512, nil, DDF, "broken")
	}
}

// The fuzzer changes the last bytes of a disk. A wrong checksum ends the parsing early, so the checksums of anchors and
// headers are also corrected.
func FuzzMembership(f *testing.F) {
	for _, name := range []string{"imsm", "imsm-spare", "imsm-4096", "ddf", "ddf-spare"} {
		disk := testenv.FirmwareRAID(f, name)
		f.Add(bytes.Clone(disk[len(disk)-8192:]), "SCSI0123456789012345678", name == "imsm-4096")
	}
	f.Add(ddfCompact(testenv.FirmwareRAID(f, "ddf")), "", false)
	f.Fuzz(func(t *testing.T, data []byte, serial string, large bool) {
		sector := int64(512)
		if large {
			sector = 4096
		}
		size := int64(len(data))
		for _, correct := range []bool{false, true} {
			if correct {
				data = corrected(data, sector)
			}
			got, err := FindMembership(bytes.NewReader(data), size, sector, []string{serial})
			if err != nil {
				t.Errorf("got %v, want no error in memory", err)
			}
			format, err := FindExternal(bytes.NewReader(data), size, sector)
			if err != nil || (format == "") != (got.Format == "") {
				t.Errorf("got %q and %v from FindExternal, %q from FindMembership", format, err, got.Format)
			}
			if got.Format == "" && got.Reason != "" {
				t.Errorf("got a reason without metadata: %v", got.Reason)
			}
		}
	})
}

// corrected returns a copy of the data with the checksum that an anchor of IMSM or a header of DDF would need.
func corrected(data []byte, sector int64) []byte {
	data = bytes.Clone(data)
	size := int64(len(data))
	if size >= 2*sector && size >= 2*ddfBlock {
		if anchor := data[size-2*sector:]; binary.LittleEndian.Uint32(anchor[36:]) <= uint32(sector) {
			length := binary.LittleEndian.Uint32(anchor[36:])
			binary.LittleEndian.PutUint32(anchor[32:], imsmChecksum(anchor[:length]))
		}
	}
	for start := int64(0); start+ddfBlock <= size; start += ddfBlock {
		block := data[start : start+ddfBlock]
		if slices.Contains([]uint32{ddfHeaderMagic, ddfDiskMagic, ddfDisksMagic, ddfVirtualMagic},
			binary.BigEndian.Uint32(block)) {
			setDDFChecksum(block)
		}
	}
	return data
}

// ddfCompact returns a small disk with one copy of the metadata, with sections of one block.
func ddfCompact(disk []byte) []byte {
	start := ddfCopies["primary"] * ddfBlock
	small := bytes.Clone(disk[start : start+ddfBlock])
	for _, section := range []int64{ddfDiskAt, ddfDisksAt, ddfVirtualAt} {
		small = append(small, disk[start+section*ddfBlock:][:ddfBlock]...)
	}
	be := binary.BigEndian
	be.PutUint64(small[96:], 0)
	be.PutUint64(small[104:], 0xffffffffffffffff)
	for at, block := range map[int]uint32{224: 1, 200: 2, 208: 3} {
		be.PutUint32(small[at:], block)
		be.PutUint32(small[at+4:], 1)
	}
	anchor := bytes.Clone(small[:ddfBlock])
	anchor[112] = 0
	return corrected(append(small, anchor...), 512)
}

// The seed of the fuzzer is an active member.
func TestFuzzMembershipSeed(t *testing.T) {
	small := ddfCompact(testenv.FirmwareRAID(t, "ddf"))
	checkMembership(t, "compact", bytes.NewReader(small), int64(len(small)), 512, nil, DDF, "")
}
