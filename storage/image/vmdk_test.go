package image

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"ironroot/internal/ondisk"
	"ironroot/internal/test/imagetest"
)

// withVMDKFooter returns a stream-optimized image of qemu-img's, in the form that programs write which do not know the
// grain directory before the end.
func withVMDKFooter(t testing.TB, disk []byte) []byte {
	t.Helper()
	file := convert(t, "raw", disk, "vmdk", "subformat=streamOptimized")
	header := ondisk.Decode[vmdkHeader](file, binary.LittleEndian)
	end := make([]byte, vmdkFooterSize)
	ondisk.Encode(end, binary.LittleEndian, vmdkMarker{Value: 1, Type: vmdkFooterMark})
	copy(end[512:], file[:512])
	header.DirectoryOffset = vmdkAtEnd
	ondisk.Encode(file, binary.LittleEndian, header)
	return append(file, end...)
}

// The footer of a VMware image must match its header.
//
// Parity: K8 (vmdk)
func TestVMDKFooter(t *testing.T) {
	data := foreignDisks(t)["partitioned"]
	good := withVMDKFooter(t, data)
	if got := convert(t, "vmdk", good, "raw", ""); !bytes.Equal(got, data) {
		t.Fatal("qemu-img does not read the footer")
	}
	footer := len(good) - vmdkFooterSize
	put64 := binary.LittleEndian.PutUint64
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		text   string
	}{
		"as VMware's programs write it": {
			func(b []byte) []byte { return b }, "images of format vmdk cannot be written to a disk",
		},
		"marker without a length": {
			func(b []byte) []byte { b[footer] = 0; return b }, "images of format vmdk cannot be written to a disk",
		},
		"none":        {func(b []byte) []byte { return b[:footer-512] }, "no valid marker"},
		"too short":   {func(b []byte) []byte { return b[:vmdkFooterSize-1] }, "its footer is missing"},
		"no marker":   {func(b []byte) []byte { b[footer+12] = 2; return b }, "no valid marker"},
		"odd marker":  {func(b []byte) []byte { b[footer+511] = 1; return b }, "no valid marker"},
		"no end":      {func(b []byte) []byte { b[len(b)-512] = 1; return b }, "no valid marker"},
		"other magic": {func(b []byte) []byte { b[footer+512] = 'X'; return b }, "contradicts"},
		"version":     {func(b []byte) []byte { b[footer+512+4]++; return b }, "contradicts"},
		"descriptor":  {func(b []byte) []byte { put64(b[footer+512+28:], 9); return b }, "contradicts"},
		"its length":  {func(b []byte) []byte { put64(b[footer+512+36:], 9); return b }, "contradicts"},
		"another footer": {
			func(b []byte) []byte { put64(b[footer+512+56:], vmdkAtEnd); return b }, "another footer",
		},
	} {
		file := c.change(bytes.Clone(good))
		disk := imagetest.UsedDisk(t, 4*mib)
		src := packedSource(file, imagetest.Serve(t, imagetest.Content(file)).URL)
		_, err := Write(t.Context(), disk, src, Options{})
		if !imagetest.IsA[*FormatError](err) || !strings.Contains(err.Error(), c.text) ||
			strings.HasPrefix(err.Error(), "Security: vmdk image: ") == strings.HasPrefix(c.text, "images") {
			t.Errorf("%s: got error %v, want a refusal with %q", name, err, c.text)
		}
		imagetest.MustBeUntouched(t, disk)
	}
}

// Remains of a longer descriptor after the end of the descriptor are ignored, as by qemu-img.
func TestVMDKDescriptorEnds(t *testing.T) {
	file := convert(t, "raw", foreignDisks(t)["partitioned"], "vmdk", "subformat=monolithicSparse")
	end := 512 + bytes.IndexByte(file[512:], 0)
	for left, want := range map[string]string{
		"\x00\n": "", "\x00rest\n": "", "rest\n": "its descriptor has an unknown line",
	} {
		copy(file[end:], left)
		if got := checkDescriptor(file); got != want {
			t.Errorf("%q after the descriptor: got %q, want %q", left, got, want)
		}
	}
}

// Parity: K7
func TestVMDKDescriptors(t *testing.T) {
	binaryTail := string(make([]byte, 100)) + "\xff\xfe"
	for text, want := range map[string]bool{
		"# Disk DescriptorFile\nversion=1\n":                          true,
		"# disk descriptorfile\r\n":                                   true,
		"# Disk DescriptorFile\xff\xfe\n":                             true,
		"# Disk DescriptorFile\n" + binaryTail:                        true,
		"version=1\ncreateType=\"vmfs\"\nRW 1 VMFS \"/etc/shadow\"\n": true,
		"# a comment\n\n version=1\n\tCREATETYPE = \"vmfs\"":          true,
		strings.Repeat("#\n", 4000) + "createType=\"custom\"":         true,
		"COWD": true,
		"KDMV": true,

		"":                                false,
		"# another text\n":                false,
		"#!/bin/sh\n":                     false,
		"\x00createType=\"vmfs\"":         false,
		"\x7fcreateType=\"vmfs\"":         false,
		"text\x00# Disk DescriptorFile\n": false,
		" KDMV":                           false,
		"COW":                             false,
	} {
		if got := detectVMDK([]byte(text)); got != want {
			t.Errorf("%.40q: got %v, want %v", text, got, want)
		}
	}
}
