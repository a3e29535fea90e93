package raid_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// TestGuest boots one machine with Debian's mdadm, in which the program in testdata/guest works with arrays.
func TestGuest(t *testing.T) {
	var disks []qemu.Disk
	for i, d := range []qemu.Disk{
		{Bus: qemu.SATA, Serial: "SATA : 0123456789ab"},
		{Bus: qemu.SCSI, Serial: "SCSI0123456789012345678", Size: 512},
		{Bus: qemu.NVMe, Serial: "nvme"},
		{Bus: qemu.NVMe, Serial: "large1", Sector: 4096},
		{Bus: qemu.NVMe, Serial: "large2", Sector: 4096},
	} {
		d.File, d.Size = filepath.Join(t.TempDir(), fmt.Sprint(i)), 96<<20+d.Size
		disks = append(disks, d)
	}
	console := guest(t, disks)
	t.Run("assemble", func(t *testing.T) { checkAssembled(t, console) })
	t.Run("create", func(t *testing.T) { checkCreated(t, console) })
	t.Run("cases", func(t *testing.T) { checkCases(t, console) })
	t.Run("external", func(t *testing.T) { checkExternal(t, console) })
}

// guest boots a machine with Debian's mdadm and disks, and returns its console.
func guest(t *testing.T, disks []qemu.Disk) string {
	t.Helper()
	testenv.Programs(t, "qemu-system-x86_64", "apt-get", "mdadm", "ldd")
	path, err := exec.LookPath("mdadm")
	if err != nil {
		path = "/usr/sbin/mdadm"
	}
	files := []string{path + ":bin/mdadm"}
	for _, match := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(testenv.Run(t, "ldd", path), -1) {
		library, err := filepath.EvalSymlinks(match[1])
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, library+":"+strings.TrimPrefix(match[1], "/"))
	}
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Out: t.TempDir(), ModuleGroups: []string{"storage", "virtual", "platform"}, Files: files,
		Init: "ironroot/storage/raid/testdata/guest", Dir: testenv.Top(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := qemu.Start(t.Context(), qemu.Config{
		Name: t.Name(), Dir: t.TempDir(), Memory: 1280 << 20, Kernel: report.Kernel, Initrd: report.Initramfs,
		Append: "console=ttyS0 " + qemu.KernelHints, Disks: disks,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	ctx := testenv.Context(t, 15*time.Minute)
	match, err := m.Console().Follow(ctx, regexp.MustCompile("\n(DONE|FAILED [^\r\n]*)\r?\n"))
	if err != nil || match.Groups[1] != "DONE" {
		t.Fatalf("%v, %v; the console ends with\n%s", match.Groups, err, m.Console().Tail(80))
	}
	return strings.ReplaceAll(qemu.Plain(m.Console().String()), "\r", "")
}

// checkCreated checks arrays of each level on members with random data. It compares the superblocks with those that
// mdadm writes, what mdadm shows of the arrays with what it shows of its own, and after the resync all copies and
// parities. A member that was removed returns by mdadm --re-add, and is rebuilt.
//
// Parity: N2 (metadata)
func checkCreated(t *testing.T, console string) {
	t.Helper()
	if count := strings.Count(console, "\nSAME "); count != 16 || strings.Contains(console, "\nDIFFERS ") {
		t.Errorf("superblocks: got %d that are the same, want 16:\n%s", count,
			strings.Join(regexp.MustCompile("(?m)^DIFFERS .*").FindAllString(console, -1), "\n"))
	}
	for name, members := range map[string]int{
		"1.2 raid0": 2, "1.2 raid1": 2, "1.0 raid1": 3, "1.2 raid5": 3, "1.2 raid6": 4, "1.2 raid10": 4,
	} {
		version, level, _ := strings.Cut(name, " ")
		var list []string
		for i := range members {
			list = append(list, fmt.Sprintf("{Path:/dev/loop%d Role:%d State:in_sync}", i, i))
		}
		wants := []string{
			fmt.Sprintf("ARRAY %s /dev/md3 %s %s 0/%d [%s]", name, level, version, members, strings.Join(list, " ")),
			fmt.Sprintf("ASSEMBLED %s: mdadm: /dev/md/data has been started with %d drives.", name, members),
		}
		detail := part(t, console, "DETAIL "+name)
		for _, line := range []string{
			"Version : " + version, "Raid Level : " + level, fmt.Sprintf("Raid Devices : %d", members),
			fmt.Sprintf("Working Devices : %d", members), "Name : any:data",
		} {
			if !strings.Contains(detail, line) {
				t.Errorf("%s: mdadm --detail lacks %q:\n%s", name, line, detail)
			}
		}
		if level != "raid0" {
			wants = append(wants, "MISMATCHES "+name+" 0\n")
			if version == "1.2" {
				wants = append(wants,
					"READDED "+name+": mdadm: re-added /dev/loop1, in_sync, same=true, mismatches 0\n")
			}
			if !resyncing.MatchString(detail) {
				t.Errorf("%s: mdadm --detail shows no resync that is pending or runs:\n%s", name, detail)
			}
		}
		for _, want := range wants {
			if !strings.Contains(console, want) {
				t.Errorf("%s: the console does not show %q", name, want)
			}
		}
		parts := []string{"SYNCED " + name}
		for i := range members {
			parts = append(parts, fmt.Sprintf("EXAMINE %s /dev/loop%d", name, i))
		}
		for _, title := range parts {
			ours, theirs := masked(part(t, console, title)), masked(part(t, console, "THEIRS "+title))
			if diff := cmp.Diff(theirs, ours); diff != "" {
				t.Errorf("%s: mdadm shows the array of mdadm and ours differently (-theirs +ours):\n%s", title, diff)
			}
		}
		for i := range members {
			examined := part(t, console, fmt.Sprintf("EXAMINE %s /dev/loop%d", name, i))
			for _, line := range []string{
				"Version : " + version, "Raid Level : " + level, "State : clean", " - correct", "Name : any:data",
				fmt.Sprintf("Device Role : Active device %d", i),
			} {
				if !strings.Contains(examined, line) {
					t.Errorf("%s: mdadm --examine lacks %q:\n%s", name, line, examined)
				}
			}
		}
	}
	for _, want := range []string{
		`REFUSED small: create array "small": member 2 of 65536 bytes is too small`,
		`REFUSED few: create array "few": got 2 members, want 3 to 128 for raid5`,
		`REFUSED twice: create array "twice": open /dev/loop0: device or resource busy`,
		`REFUSED missing: create array "missing": open /dev/missing: no such file or directory`,
		"EMPTY /dev/loop0 true", "EMPTY /dev/loop1 true", "EMPTY /dev/loop2 true", "ARRAYS 0 <nil>",
	} {
		if !strings.Contains(console, want) {
			t.Errorf("the console does not show %q", want)
		}
	}
}

// resyncing matches the state of an array that mdadm --detail shows until all copies and parities are right. The line
// "Consistency Policy : resync" is no such state.
var resyncing = regexp.MustCompile(`(?m)^ *State :.*, resyncing`)

// masked returns what mdadm shows of an array without what is random, time, or depends on them. The kernel counts as
// events how often it has updated the superblocks, which depends on time, too.
func masked(text string) string {
	text = regexp.MustCompile(`(?m)^( *((Array |Device )?UUID|(Creation|Update) Time|Events) : ).*$`).
		ReplaceAllString(text, "${1}MASKED")
	return regexp.MustCompile(`(?m)^( *Checksum : )[0-9a-f]+ `).ReplaceAllString(text, "${1}MASKED ")
}

// part returns the lines of the console between a title and END.
func part(t *testing.T, console, title string) string {
	t.Helper()
	_, text, found := strings.Cut(console, "\n"+title+"\n")
	text, _, ended := strings.Cut(text, "\nEND")
	if !found || !ended {
		t.Errorf("the console lacks %q", title)
	}
	return text
}

// checkAssembled checks arrays that mdadm has created, and that package raid has assembled and erased. Nothing is
// written to a member before the array is. Afterwards mdadm and the kernel find the same arrays, with equal copies and
// parities. This also applies to arrays whose superblocks differ by the one update that was interrupted by a loss of
// power. Arrays that are not complete are not started, nor those that have dropped a member.
//
// Parity: F10 (arrays)
func checkAssembled(t *testing.T, console string) {
	t.Helper()
	wants := []string{"AT BOOT 0 <nil>"}
	const superblock, bitmap = "4096", " 8192 8704 9216 9728 10240 10752 11264 11776"
	for name, tt := range map[string]struct {
		members int
		left    string // bytes of the sectors that are not zero
	}{
		"raid0 2 synced=false random=false":                                      {2, superblock},
		"raid10 3 synced=true random=false":                                      {3, superblock},
		"raid1 3 synced=true random=false":                                       {3, superblock},
		"raid5 3 synced=false random=false":                                      {3, superblock},
		"raid6 4 synced=false random=false":                                      {4, superblock},
		"raid1 2 --bitmap=internal --bitmap-chunk=64M synced=false random=false": {2, superblock + bitmap},
		"raid5 3 --bitmap=internal --bitmap-chunk=64M synced=true random=true":   {3, superblock + bitmap},
		// The state after a loss of power, see below.
		"raid1 2 synced=true random=false torn":                                      {2, superblock},
		"raid5 3 --bitmap=internal --bitmap-chunk=64M synced=true random=false torn": {3, superblock + bitmap},
	} {
		state := "read-auto idle"
		if strings.HasPrefix(name, "raid0 ") {
			state = "clean "
		} else {
			wants = append(wants, "MISMATCHES "+name+": 0\n")
		}
		wants = append(wants, "STATE "+name+": /dev/md3 "+state+"\n", "UNTOUCHED "+name+": true\n")
		if strings.HasSuffix(name, " torn") {
			wants = append(wants, "TORN "+name+": 1 event, resync from 0x0\n")
		}
		if strings.Contains(name, "bitmap") {
			wants = append(wants, "BITMAP "+name+": 1 bits (chunks), 0 dirty (0.0%)\n")
		}
		for _, line := range []string{
			"LEFT " + name + ": overwrite " + tt.left + "\n", "EXAMINED " + name + ": same=true correct=true\n",
		} {
			if count := strings.Count(console, "\n"+line); count != tt.members {
				t.Errorf("got %d members with %q, want %d", count, line, tt.members)
			}
		}
		started := fmt.Sprintf("has been started with %d drives.", tt.members)
		if !strings.Contains(part(t, console, "ASSEMBLED "+name), started) {
			t.Errorf("%s: mdadm did not start the array with all members", name)
		}
	}
	for name, want := range map[string]string{
		"missing": "got 1 members, want 2", "twice": "occurs twice", "uuid": "want other", "checksum": "got checksum",
		"several": "has 2 superblocks, want 1", "events": "events, want", "held": "device or resource busy",
		"dropped": "/dev/loop1: got role 1, want -1 as on /dev/loop0, which is newer: the array has dropped the member",
	} {
		wants = append(wants, "KEPT "+name+": true 0 <nil>\n")
		_, text, _ := strings.Cut(console, "\nREJECTED "+name+": assemble array ")
		if text, _, _ = strings.Cut(text, "\n"); !strings.Contains(text, want) {
			t.Errorf("%s: got error %q, want %q", name, text, want)
		}
	}
	wants = append(wants, "GOOD: <nil>\n", "BAD: array /dev/md3: /dev/loop1: member has bad blocks",
		"READ-ONLY: array /dev/md3: got raid1 of 2 members, read-auto")
	for _, want := range wants {
		if !strings.Contains(console, "\n"+want) {
			t.Errorf("the console does not show %q", want)
		}
	}
}

// checkCases checks that the kernel passes the cases of package raidtest, which the kernel for tests passes too.
func checkCases(t *testing.T, console string) {
	t.Helper()
	results := regexp.MustCompile(`(?m)^CASE "(.*?)" (.*)$`).FindAllStringSubmatch(console, -1)
	for _, m := range results {
		if m[2] != "ok" {
			t.Errorf("%s: %s", m[1], m[2])
		}
	}
	if want := fmt.Sprintf("\nCASES %d\n", len(results)); len(results) == 0 || !strings.Contains(console, want) {
		t.Errorf("got %d results, the console does not show %q", len(results), want)
	}
}

// checkExternal checks containers and volumes with the metadata of firmware RAID, which mdadm has created and deleted.
// Package md finds the same disks as active members as mdadm, which compares serial numbers of SCSI, SATA and NVMe
// disks, also those with spaces and colons and those that are too long.
func checkExternal(t *testing.T, console string) {
	t.Helper()
	serials := map[string]string{ // as mdadm shows them
		"SATA : 0123456789ab": "ATA;0123456789ab", "SCSI0123456789012345678": "3456789012345678", "nvme": "nvme",
		"large1": "large1", "large2": "large2",
	}
	got := map[string]int{}
	line := regexp.MustCompile(`(?m)^MEMBER (imsm|ddf) (\w+) (.*): active (true|false) \((.*)\), mdadm: "(.*)" "(.*)"$`)
	for _, m := range line.FindAllStringSubmatch(console, -1) {
		format, stage, serial, active, reason, name, state := m[1], m[2], m[3], m[4], m[5], m[6], m[7]
		got[format+" "+stage+" "+active]++
		if format == "imsm" && name != serials[serial] {
			t.Errorf("serial number %q: mdadm shows %q, want %q", serial, name, serials[serial])
		}
		if format == "ddf" && stage == "deleted" && reason == "no virtual disk listed" {
			continue // mdadm does not change the state of the disks
		}
		if want := strings.HasPrefix(strings.TrimSpace(state), "active"); active != fmt.Sprint(want) {
			t.Errorf("%s: got active %s (%s), mdadm shows %q", m[0], active, reason, state)
		}
	}
	want := map[string]int{
		"imsm container false": 5, "imsm volume true": 4, "imsm volume false": 1, "imsm deleted false": 5,
		"ddf container false": 3, "ddf volume true": 2, "ddf volume false": 1, "ddf deleted false": 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("numbers of disks differ (-want +got):\n%s", diff)
	}
}
