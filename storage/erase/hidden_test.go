package erase

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/storage/ata"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

// Sectors that a drive hides are part of the method and the evidence. It is no error if the drive does not report them.
func TestHidden(t *testing.T) {
	const last = ataSize/512 - 1 // largest address that the drive addresses
	o := Options{ATA: true, Zeroize: true}
	const byACS = " bytes erased if the drive follows ACS, which was not verified"
	const erasedByACS = "if so, they were erased if the drive follows ACS, which was not verified"
	mayHide := func(by string) string { return "; it is not known whether the drive hides bytes by " + by + ": " }
	hides := func(native, overlay int) string {
		return fmt.Sprintf("; the drive hides %d bytes by an HPA or Accessible Max Address and %d bytes by a DCO: ",
			native, overlay)
	}
	for _, c := range []struct {
		name   string
		drive  fakeATA
		method string
		want   *evidence.Hidden
		states []string // what the drive said
	}{
		{
			name: "HPA, overwritten", drive: fakeATA{noSecurity: true, native: last + 1000},
			method: "overwrite" + hides(512000, 0) + "512000 bytes not erased",
			want:   &evidence.Hidden{NativeBytes: 512000},
			states: []string{"READ NATIVE MAX ADDRESS: largest address 21479, addressable now 20479"},
		},
		{
			name: "HPA of 28 bits, overwritten", drive: fakeATA{noSecurity: true, native: 0x7654321, short: true},
			method: "overwrite" + hides(63516853248, 0) + "63516853248 bytes not erased",
			want:   &evidence.Hidden{NativeBytes: (0x7654321 - last) * 512},
			states: []string{"READ NATIVE MAX ADDRESS: largest address 124076833, addressable now 20479"},
		},
		{
			name: "HPA and DCO, erased", drive: fakeATA{native: last + 1000, configured: last + 3000},
			method: "ata-secure-erase" + hides(512000, 1024000) + "1024000 bytes not erased, 512000" + byACS,
			want:   &evidence.Hidden{NativeBytes: 512000, OverlayBytes: 1024000},
			states: []string{
				"READ NATIVE MAX ADDRESS: largest address 21479, addressable now 20479",
				"DEVICE CONFIGURATION IDENTIFY: largest address 23479, addressable now 20479",
			},
		},
		{
			name: "DCO, erased by the enhanced mode", drive: fakeATA{enhanced: true, configured: last + 2},
			method: "ata-secure-erase-enhanced" + hides(0, 1024) + "1024" + byACS,
			want:   &evidence.Hidden{OverlayBytes: 1024},
			states: []string{"DEVICE CONFIGURATION IDENTIFY: largest address 20481, addressable now 20479"},
		},
		{
			name: "Accessible Max Address, sanitized", drive: fakeATA{
				noSecurity: true, accessible: last + 1, sanitize: sanitizeBlock,
			},
			method: "ata-sanitize-block" + hides(512, 0) + "512" + byACS,
			want:   &evidence.Hidden{NativeBytes: 512},
			states: []string{"GET NATIVE MAX ADDRESS EXT: largest address 20480, addressable now 20479"},
		},
		{
			name: "nothing hidden", drive: fakeATA{native: last, accessible: last, configured: last},
			method: "ata-secure-erase", states: []string{
				"READ NATIVE MAX ADDRESS: largest address 20479, addressable now 20479",
				"GET NATIVE MAX ADDRESS EXT: largest address 20479, addressable now 20479",
				"DEVICE CONFIGURATION IDENTIFY: largest address 20479, addressable now 20479",
			},
		},
		{
			name:   "DCO frozen, HPA rejected, security frozen",
			method: "ata-sanitize-crypto" + hides(512, 0) + "512" + byACS + mayHide("a DCO") + erasedByACS,
			drive: fakeATA{
				frozen: true, sanitize: sanitizeCrypto, native: last + 1, configured: last + 9,
				queryFails: "configuration",
			},
			want: &evidence.Hidden{NativeBytes: 512, OverlayUnknown: true},
			states: []string{
				"READ NATIVE MAX ADDRESS: largest address 20480, addressable now 20479",
				"DEVICE CONFIGURATION IDENTIFY: hidden sectors not known: DEVICE CONFIGURATION IDENTIFY: rejected by " +
					"the drive (ATA status 0x51, error 0x04)",
			},
		},
		{
			name: "DCO frozen, overwritten", drive: fakeATA{
				noSecurity: true, configured: last + 9, queryFails: "configuration",
			},
			method: "overwrite" + mayHide("a DCO") + "if so, they were not all erased",
			want:   &evidence.Hidden{OverlayUnknown: true},
			states: []string{
				"DEVICE CONFIGURATION IDENTIFY: hidden sectors not known: DEVICE CONFIGURATION IDENTIFY: rejected by " +
					"the drive (ATA status 0x51, error 0x04)",
			},
		},
		{
			name:  "HPA not known, nothing behind the DCO",
			drive: fakeATA{native: last, configured: last, queryFails: "native"}, method: "ata-secure-erase",
			states: []string{
				"READ NATIVE MAX ADDRESS: hidden sectors not known: READ NATIVE MAX ADDRESS EXT: rejected by " +
					"the drive (ATA status 0x51, error 0x04)",
				"DEVICE CONFIGURATION IDENTIFY: largest address 20479, addressable now 20479",
			},
		},
		{
			name: "impossible", drive: fakeATA{native: last - 1},
			method: "ata-secure-erase" + mayHide("an HPA or Accessible Max Address") + erasedByACS,
			want:   &evidence.Hidden{NativeUnknown: true},
			states: []string{
				"READ NATIVE MAX ADDRESS: hidden sectors not known: got largest address 20478, want at least 20479",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := testenv.Loop(t, testenv.SparseFile(t, ataSize), 512)
			drive := c.drive
			drive.path = path
			d := device(t, path)
			d.Type, d.Transport = "disk", "sata"
			record := &Recorder{}
			open := sgOpeners(drive.open)
			recording := o
			recording.Recorder = record
			method, err := decidedRun(t.Context(), t, sysfs.Root{}, d, recording, open)
			if err != nil || string(method) != c.method {
				t.Errorf("got %q, %v, want %q", method, err, c.method)
			}
			observed := record.Report()
			if diff := cmp.Diff(c.want, observed.Hidden); diff != "" {
				t.Errorf("hidden: -want +got:\n%s", diff)
			}
			var states []string
			for _, s := range observed.Reported {
				if strings.Contains(s.Text, "addressable") || strings.Contains(s.Text, "hidden") {
					states = append(states, s.Source+": "+s.Text)
				}
			}
			if diff := cmp.Diff(c.states, states); diff != "" {
				t.Errorf("statements: -want +got:\n%s", diff)
			}
			plain, err := tryRunWith(t.Context(), sysfs.Root{}, d, o, open)
			if err != nil || plain != method {
				t.Errorf("repeated: got %q, %v, want %q", plain, err, method)
			}
		})
	}
}

// A drive that does not say how many sectors it has is not asked, and may hide some. So may one that cannot be unlocked
// or whose failed sanitize cannot be cleared: each statement names the query that was not sent, and why. After the
// context has ended, nothing is asked.
func TestHiddenNotAsked(t *testing.T) {
	asked := 0
	drive := fakeATA{afterward: func(string) { asked++ }}
	record := &Recorder{}
	d := ataDisk{drive: ata.New(&drive), record: record}
	d.noteHidden(t.Context(), ata.Capacity{HPA: true, AMAC: true, DCO: true}, nil)
	want := &evidence.Hidden{NativeUnknown: true, OverlayUnknown: true}
	if diff := cmp.Diff(want, record.Report().Hidden); diff != "" {
		t.Errorf("number of sectors not known: -want +got:\n%s", diff)
	}
	record = &Recorder{}
	d.record = record
	d.noteHidden(t.Context(), ata.Capacity{}, nil)
	if got := record.Report().Hidden; got != nil {
		t.Errorf("no feature: got %+v, want nothing", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d.noteHidden(ctx, ata.Capacity{Sectors: 8, SectorBytes: 512, HPA: true, AMAC: true, DCO: true}, nil)
	if asked > 0 {
		t.Errorf("got %d commands, want none", asked)
	}
	tenant := ata.Password{'t'}
	for name, drive := range map[string]fakeATA{
		"failed sanitize": {native: ataSize, sanitize: sanitizeBlock, failed: true, clearFails: true},
		"frozen":          {native: ataSize, locked: true, frozen: true, password: &tenant},
		"password":        {native: ataSize, locked: true, password: &tenant},
	} {
		disk := ataMedium(t)
		drive.path = disk.Path
		record := &Recorder{}
		_, err := eraseATA(t.Context(), sysfs.Root{}, disk, Options{ATA: true, Recorder: record}, drive.open)
		o := record.Report()
		if err == nil || o.Hidden == nil || !o.Hidden.NativeUnknown || len(o.Reported) != 1 ||
			o.Reported[0].Source != "READ NATIVE MAX ADDRESS" ||
			o.Reported[0].Text != "hidden sectors not known: not asked: "+err.Error() {
			t.Errorf("%s: got %v, %+v and statements %+v", name, err, o.Hidden, o.Reported)
		}
	}
	drive = fakeATA{native: ataSize / 512}
	disk := ataMedium(t)
	drive.path = disk.Path
	drive.afterward = func(command string) {
		if command == "native" {
			cancel()
		}
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	if method, err := eraseATA(ctx, sysfs.Root{}, disk, Options{ATA: true}, drive.open); method != "" ||
		!errors.Is(err, context.Canceled) || len(drive.log) > 0 {
		t.Errorf("got %q, %v and commands %q, want it cancelled", method, err, drive.log)
	}
}
