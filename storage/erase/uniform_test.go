package erase

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

var secret = []byte("secret  ")

// betweenSamples returns a range of length bytes of a medium full of secrets that contains no sample.
func betweenSamples(path string, length int64) [2]int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	start := int64(0)
	for at := int64(0); at < int64(len(data)); at += sampleSize {
		if !bytes.Equal(data[at:at+sampleSize], bytes.Repeat(secret, sampleSize/len(secret))) {
			start = at + sampleSize
		} else if at+sampleSize-start >= length {
			return [2]int64{start, start + length}
		}
	}
	panic("no range without a sample")
}

// A drive that reports success and has kept data between two samples has not erased it, unless it deleted a key: the
// content is arbitrary then.
func TestKeptBetweenSamples(t *testing.T) {
	const size, length = 16 * mib, 64 << 10
	var kept [2]int64
	nvme := func(fresh fakeNVMe) func(string) openers {
		return func(path string) openers {
			drive := fresh
			drive.path, drive.formatKeeps = path, true
			drive.afterward = func(opcode byte) {
				switch opcode {
				case opFormat:
					kept = betweenSamples(path, length)
					wipeMedium(path, kept)
				case opSanitize:
					kept = betweenSamples(path, length)
					drive.keeps = kept
				}
			}
			return nvmeOpeners(func(string) (adminDevice, error) { return &drive, nil })
		}
	}
	ata := func(fresh fakeATA) func(string) openers {
		return func(path string) openers {
			drive := fresh
			drive.path = path
			drive.afterward = func(command string) {
				if slices.Contains([]string{"prepare", "block", "crypto", "overwrite"}, command) {
					kept = betweenSamples(path, length)
					drive.keeps = kept
				}
			}
			return sgOpeners(drive.open)
		}
	}
	scsi := func(action byte) func(string) openers {
		return func(path string) openers {
			drive := fakeSCSI{actions: []byte{action}, mlu: 1, path: path}
			drive.afterward = func(command string) {
				if command == scsiActions[action] {
					kept = betweenSamples(path, length)
					drive.keeps = kept
				}
			}
			return sgOpeners(drive.open)
		}
	}
	for method, open := range map[Technique]func(string) openers{
		NVMeUser:              nvme(fakeNVMe{oacs: 2}),
		NVMeCrypto:            nvme(fakeNVMe{oacs: 2, fna: 4}),
		NVMeSanitizeBlock:     nvme(fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapBlock}}),
		NVMeSanitizeCrypto:    nvme(fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapCrypto}}),
		NVMeSanitizeOverwrite: nvme(fakeNVMe{fakeSanitize: fakeSanitize{sanicap: sanicapOverwrite}}),
		ATAEnhanced:           ata(fakeATA{enhanced: true}),
		ATAErase:              ata(fakeATA{}),
		ATASanitizeBlock:      ata(fakeATA{noSecurity: true, sanitize: sanitizeBlock}),
		ATASanitizeCrypto:     ata(fakeATA{noSecurity: true, sanitize: sanitizeCrypto}),
		ATASanitizeOverwrite:  ata(fakeATA{noSecurity: true, sanitize: sanitizeOverwrite}),
		SCSISanitizeBlock:     scsi(2),
		SCSISanitizeCrypto:    scsi(3),
		SCSISanitizeOverwrite: scsi(1),
	} {
		t.Run(string(method), func(t *testing.T) {
			path := testenv.Loop(t, testenv.SparseFile(t, size), 512)
			put(t, path, string(bytes.Repeat(secret, size/len(secret))))
			d, sys := device(t, path), sysfs.Root{}
			switch interfaceName, _, _ := strings.Cut(string(method), "-"); interfaceName {
			case "nvme":
				d = block.Device{Name: "nvme0n1", Path: path, Type: "part"} // a loop device plays its node
				sys = nvmeTree(t, "nvme0n1")
			case "ata":
				d.Transport = "sata"
			case "scsi":
				d.Transport, d.HCTL = "sas", "0:0:1:0"
				sys = machineWithUnits(t, "0:0:1:0")
			}
			o := Options{NVMe: true, NVMeSanitize: true, ATA: true, SCSI: true, Zeroize: true}
			record := &Recorder{}
			o.Recorder = record
			got, err := tryRunWith(t.Context(), sys, d, o, open(path))
			b := record.Report().ReadBack
			if s := record.Report().Samples; s == nil || s.Unchanged != 0 || b == nil || b.Other != length {
				t.Fatalf("got samples %+v and read-back %+v, %v, want %d bytes beside the samples", s, b, err, length)
			}
			if strings.Contains(string(method), "crypto") {
				if err != nil || got != method || b.Expected != evidence.ExpectAny || b.Different != 0 ||
					b.Detection != nil {
					t.Errorf("got %q, %v and %+v, want %q", got, err, b, method)
				}
				return
			}
			text := fmt.Sprintf("%d of %d bytes that were read back are in blocks with data, between erased ones, "+
				"the first at byte %d", length, size, kept[0])
			if !errors.Is(err, ErrNotErased) || got != "" || !strings.Contains(err.Error(), text) {
				t.Errorf("got %q and %v, want %v: %s", got, err, ErrNotErased, text)
			}
			if b.Expected != evidence.ExpectUniform || b.Different != length || probabilityOf(t, b, 4096) != 1 {
				t.Errorf("got %+v, want %d different bytes", b, length)
			}
			put(t, path, string(bytes.Repeat(secret, size/len(secret))))
			o.ContinueOnFailure, o.Recorder = true, nil
			got, err = tryRunWith(t.Context(), sys, d, o, open(path))
			if err != nil || !strings.HasPrefix(string(got), "overwrite; secure erase failed: ") ||
				!strings.Contains(string(got), "in blocks with data") || bytes.Contains(content(t, path), secret) {
				t.Errorf("may overwrite: got %q and %v, want no secret", got, err)
			}
		})
	}
}

// Uniform sectors come from an erased drive, whatever their values. Without uniform blocks the content is a pattern
// of the drive, which the samples compare.
func TestReadBackUniform(t *testing.T) {
	fill := func(value byte, size int) []byte { return bytes.Repeat([]byte{value}, size) }
	data := bytes.Repeat(secret, 512)
	sectors := slices.Concat(fill(0, 512), fill(0x5a, 1024), fill(0xff, 2560))
	for _, c := range []struct {
		name      string
		content   []byte
		different int64
		first     string
		detected  bool
	}{
		{name: "zeros", content: fill(0, 4*4096), detected: true},
		{name: "fills", content: slices.Concat(fill(0, 4096), fill(0xff, 4096), fill(0x5a, 4096)), detected: true},
		{name: "sectors", content: slices.Concat(fill(0, 4096), sectors, fill(7, 512)), detected: true},
		{name: "one fill that is neither zeros nor ones", content: fill(0x5a, 3*4096+512)},
		{name: "a pattern", content: slices.Concat(data, data, data[:512])},
		{
			name: "data at the end", content: slices.Concat(fill(0, 2*4096), data[:512]),
			different: 512, first: "at byte 8192", detected: true,
		},
		{
			name: "data in the middle", content: slices.Concat(fill(0xff, 4096), data, data, fill(0, 4096), data),
			different: 3 * 4096, first: "at byte 4096", detected: true,
		},
		{
			name: "one byte", content: slices.Concat(fill(0, 3*4096-1), fill(1, 1), fill(0, 4096)),
			different: 4096, first: "at byte 8192", detected: true,
		},
		{
			name: "one uniform block", content: slices.Concat(data, data, fill(0, 4096), data),
			different: 3 * 4096, first: "at byte 0", detected: true,
		},
		{
			name: "between blocks that are neither zeros nor ones", content: slices.Concat(fill(3, 4096), data),
			different: 4096, first: "at byte 4096",
		},
	} {
		size := int64(len(c.content))
		got, err := readPlan(t.Context(), bytes.NewReader(c.content), size, seedOf(1), expectedUniform, nil)
		if got == nil || errors.Is(err, ErrNotErased) != (c.different > 0) ||
			err != nil && !strings.HasSuffix(err.Error(), c.first) || err == nil && c.different > 0 {
			t.Errorf("%s: got %+v and %v, want an error %q", c.name, got, err, c.first)
			continue
		}
		if got.Different != c.different || (got.Detection != nil) != c.detected ||
			got.Expected != evidence.ExpectUniform || got.Zeros+got.Ones+got.Other != size {
			t.Errorf("%s: got %+v, want %d different bytes, probabilities %v", c.name, got, c.different, c.detected)
		}
		got, err = readPlan(t.Context(), bytes.NewReader(c.content), size, seedOf(1), expectedAny, nil)
		if err != nil || got.Different != 0 || got.Expected != evidence.ExpectAny {
			t.Errorf("%s, after a cryptographic erase: got %+v and %v, want no error", c.name, got, err)
		}
	}
	_, err := readPlan(t.Context(), bytes.NewReader(nil), 512, seedOf(1), expectedUniform, nil)
	if errors.Is(err, ErrNotErased) || !errors.Is(err, io.EOF) {
		t.Errorf("unreadable: got %v, want the error of the read", err)
	}
}
