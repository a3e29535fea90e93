package uki

import (
	"bytes"
	"context"
	"debug/pe"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/initramfs/debian"
)

// A stub that cannot be fetched is an error. Each download is logged, and no image is written.
func TestStubIsNotFetched(t *testing.T) {
	mirror := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(mirror.Close)
	o := options(t, newIdentity(t, ownKey))
	var log bytes.Buffer
	o.Log, o.CacheDir, o.Debian = &log, t.TempDir(), debian.Options{Mirror: mirror.URL}
	_, err := Build(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "stub of systemd: ") || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v, want the answer of the mirror", err)
	}
	if !strings.Contains(log.String(), "reading the index of") && !strings.Contains(log.String(), "downloading") {
		t.Errorf("got the log %q, want what is fetched", &log)
	}
	if left, err := os.ReadDir(filepath.Dir(o.Out)); err != nil || len(left) > 0 {
		t.Errorf("got the files %v, %v, want none", left, err)
	}
}

// A build that is cancelled leaves no file and keeps the former ones.
func TestBuildIsCancelled(t *testing.T) {
	o := options(t, newIdentity(t, ownKey))
	o.Stub = write(t, "stub", program(pe.IMAGE_FILE_MACHINE_AMD64, ""))
	if err := os.WriteFile(o.Out, []byte("former"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Build(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	left, err := os.ReadDir(filepath.Dir(o.Out))
	if content, _ := os.ReadFile(o.Out); err != nil || len(left) != 1 || string(content) != "former" {
		t.Errorf("got the files %v, %v, with %q, want only the former image", left, err, content)
	}
}

// A section is not replaced by one that would overlap the next one in memory.
func TestReplacedSectionFits(t *testing.T) {
	const first, optional = 0x58 + 240, 0x58 // offsets of the section table and of the optional header
	le := binary.LittleEndian
	data := program(pe.IMAGE_FILE_MACHINE_AMD64, "")
	le.PutUint32(data[optional+32:], 0x200)     // alignment in memory
	le.PutUint32(data[first+16:], 0x400)        // .text has 0x400 bytes in the file, and 0x200 until the next section
	data = append(data, make([]byte, 0x400)...) // the rest of .text, and .next
	copy(data[first+sectionSize:], encodeHeader(pe.SectionHeader{
		Name: ".next", VirtualSize: 0x100, VirtualAddress: 0x1200, Size: 0x200, Offset: 0x800,
	}))
	le.PutUint16(data[0x46:], 2)
	image, err := parseImage(data)
	if err != nil {
		t.Fatal(err)
	}
	for size, fits := range map[int]bool{0x200: true, 0x201: false} {
		if _, err := image.withSections([]section{{".text", make([]byte, size)}}, true); (err == nil) != fits {
			t.Errorf("%d bytes: got %v, want space for %d", size, err, 0x200)
		}
	}
}

// A program for 32 bits is no stub.
func TestStubOf32Bits(t *testing.T) {
	data := program(pe.IMAGE_FILE_MACHINE_AMD64, "")
	binary.LittleEndian.PutUint16(data[0x44:], pe.IMAGE_FILE_MACHINE_I386)
	binary.LittleEndian.PutUint16(data[0x46:], 0) // sections
	binary.LittleEndian.PutUint16(data[0x54:], uint16(binary.Size(pe.OptionalHeader32{})))
	header, err := binary.Append(nil, binary.LittleEndian, pe.OptionalHeader32{
		Magic: 0x10b, SectionAlignment: 0x1000, FileAlignment: 0x200, SizeOfHeaders: 0x400, NumberOfRvaAndSizes: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	copy(data[0x58:], header)
	if _, err := parseImage(data); err == nil || err.Error() != "is not a PE32+ file" {
		t.Errorf("got %v, want an error about the format", err)
	}
}
