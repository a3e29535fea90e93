package erase

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/nvme"
)

// siblingNVMe is another namespace of the subsystem of a fakeNVMe.
type siblingNVMe struct {
	*fakeNVMe
	id         uint32
	idError    error
	closeError error
	shared     bool
	closed     bool
}

func (s *siblingNVMe) namespace() (uint32, error) { return s.id, s.idError }

func (s *siblingNVMe) Send(c nvme.Command) error {
	err := s.fakeNVMe.Send(c)
	if s.shared && c.Opcode == opIdentify && c.CDW10 == 0x00 {
		c.Data[30] |= 1
	}
	return err
}

func (s *siblingNVMe) close() error {
	s.closed = true
	return s.closeError
}

// A subsystem with several namespaces is sanitized if all of them may be erased. They are held until the samples are
// read.
//
// Parity: P2
func TestNVMeSiblings(t *testing.T) {
	const management = oacsNamespaceManagement
	sanitize := fakeSanitize{sanicap: sanicapBlock}
	both := []uint32{7, 9}
	for _, c := range []struct {
		name    string
		drive   fakeNVMe
		sibling siblingNVMe
		open    error
		none    bool // no siblings
		method  Technique
		err     error
		text    string
	}{
		{name: "no Format", drive: fakeNVMe{active: both, fakeSanitize: sanitize}, method: NVMeSanitizeBlock},
		{
			name: "Format of all namespaces", drive: fakeNVMe{oacs: 2, fna: 1, active: both, fakeSanitize: sanitize},
			method: NVMeSanitizeBlock,
		},
		{
			name:   "Format is rejected",
			drive:  fakeNVMe{oacs: 2, formatError: nvme.Status(1), active: both, fakeSanitize: sanitize},
			method: NVMeSanitizeBlock,
		},
		{
			name: "Format of each namespace", drive: fakeNVMe{oacs: 2, active: both, fakeSanitize: sanitize},
			method: NVMeUser,
		},
		{
			name: "must stay", drive: fakeNVMe{active: both, fakeSanitize: sanitize}, none: true, err: ErrUnsupported,
			text: "would also erase namespace 9",
		},
		{
			name: "another namespace", drive: fakeNVMe{active: []uint32{7, 9, 11}, fakeSanitize: sanitize},
			err: ErrUnsupported, text: "would also erase namespace 11",
		},
		{
			name: "unattached namespace", err: ErrUnsupported, text: "would also erase namespace 2",
			drive: fakeNVMe{oacs: management, active: both, allocated: []uint32{2, 9}, fakeSanitize: sanitize},
		},
		{
			name: "shared subsystem", drive: fakeNVMe{cmic: 2, active: both, fakeSanitize: sanitize},
			err: ErrUnsupported, text: "namespaces of other hosts",
		},
		{
			name: "shared sibling", drive: fakeNVMe{active: both, fakeSanitize: sanitize},
			sibling: siblingNVMe{shared: true}, err: ErrUnsupported,
			text: "would also erase namespace 9: /dev/nvme0n2 is shared",
		},
		{
			name: "sibling in use", drive: fakeNVMe{active: both, fakeSanitize: sanitize}, open: unix.EBUSY,
			err: ErrUnsupported, text: "would also erase namespace 9: device or resource busy",
		},
		{
			name: "sibling without an id", drive: fakeNVMe{active: both, fakeSanitize: sanitize},
			sibling: siblingNVMe{idError: unix.EIO}, err: ErrUnsupported,
			text: "would also erase namespace 9: input/output error",
		},
		{
			name: "sibling that cannot be identified", drive: fakeNVMe{active: both, fakeSanitize: sanitize},
			sibling: siblingNVMe{id: 33}, err: ErrUnsupported,
			text: "would also erase namespace 9: NVMe identify (CNS 0x00): invalid argument",
		},
		{
			name: "sibling that cannot be closed", drive: fakeNVMe{active: both, fakeSanitize: sanitize},
			sibling: siblingNVMe{closeError: unix.EIO}, text: unix.EIO.Error(),
		},
		{
			name: "fails", text: "SSTAT 0x0003",
			drive: fakeNVMe{active: both, fakeSanitize: fakeSanitize{sanicap: sanicapBlock, fails: true}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk, drive, sibling := sanitizeMedium(t), c.drive, c.sibling
			drive.path, sibling.fakeNVMe = disk.Path, &drive
			if sibling.id == 0 {
				sibling.id = 9
			}
			held := true
			drive.afterward = func(opcode byte) {
				if opcode == opSanitize && sibling.closed {
					held = false
				}
			}
			o := Options{NVMe: true, NVMeSanitize: true, Siblings: []block.Device{{Path: "/dev/nvme0n2"}}}
			if c.none {
				o.Siblings = nil
			}
			opened := false
			record := &Recorder{}
			o.Recorder = record
			method, _, err := eraseNVMe(t.Context(), disk, o, func(path string) (adminDevice, error) {
				if path == disk.Path {
					return &drive, nil
				}
				opened = c.open == nil
				return &sibling, c.open
			})
			if method != c.method || (err == nil) != (c.method != "") || c.err != nil && !errors.Is(err, c.err) ||
				err != nil && !strings.Contains(err.Error(), c.text) ||
				errors.Is(err, ErrUnsupported) && !errors.Is(c.err, ErrUnsupported) {
				t.Errorf("got %q, %v, want %q, %v with %q", method, err, c.method, c.err, c.text)
			}
			want := c.err == nil && c.method != NVMeUser
			if sanitized := slices.Contains(drive.sanitizes, wordBlock); sanitized != want {
				t.Errorf("got sanitize commands %x", drive.sanitizes)
			}
			if !held || sibling.closed != opened {
				t.Errorf("got the sibling held during the sanitize %v, and closed %v", held, sibling.closed)
			}
			if attached := record.Report().Namespaces.Attached; slices.Contains(attached, 9) == want && err == nil {
				t.Errorf("got %v in the report, after a sanitize %v", attached, want)
			}
			if c.err != nil && bytes.Count(content(t, disk.Path), []byte("secret  ")) != sanitizeSize/8 {
				t.Error("the namespace was written to")
			}
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	disk, drive := sanitizeMedium(t), fakeNVMe{active: both, fakeSanitize: sanitize}
	drive.path = disk.Path
	o := Options{NVMe: true, NVMeSanitize: true, Siblings: []block.Device{{Path: "/dev/nvme0n2"}}}
	record := &Recorder{}
	o.Recorder = record
	_, _, err := eraseNVMe(cancelled, disk, o, func(path string) (adminDevice, error) {
		if path == disk.Path {
			return &drive, nil
		}
		cancel()
		return &siblingNVMe{fakeNVMe: &drive, id: 9}, nil
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnsupported) || len(drive.sanitizes) > 0 {
		t.Errorf("cancelled: got %v and commands %x, want %v and none", err, drive.sanitizes, context.Canceled)
	}
	if attached := record.Report().Namespaces.Attached; !slices.Contains(attached, 9) {
		t.Errorf("cancelled: got %v in the report, want the sibling that was not erased", attached)
	}
}
