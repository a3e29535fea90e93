package block

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// FuzzProbe probes superblocks of any content at the offsets of file systems.
func FuzzProbe(f *testing.F) {
	fat := make([]byte, 512)
	copy(fat[3:], "mkfs.fat\x00\x02\x01\x01\x00\x02\x10\x00\x40\x00\xf8\x10\x00")
	copy(fat[54:], "FAT16   ")
	fat[510], fat[511] = 0x55, 0xaa
	f.Add(uint8(0), fat)
	f.Add(uint8(1), append(make([]byte, 56), 0x53, 0xef))
	f.Add(uint8(2), []byte("\x01CD001\x01"))
	f.Add(uint8(3), append(make([]byte, 64), "_BHRfS_M"...))
	f.Add(uint8(0), []byte("XFSB\x00\x00\x10\x00"))
	f.Add(uint8(0), []byte("LUKS\xba\xbe\x00\x02"))
	f.Add(uint8(4), []byte("LABELONE\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add(uint8(5), []byte("EFI PART\x00\x00\x01\x00\x5c\x00\x00\x00"))
	f.Add(uint8(0), []byte("hsqs"))
	// A member of an array.
	f.Add(uint8(0), append([]byte("\xfc\x4e\x2b\xa9\x01\x00\x00\x00"), "        0123456789abcdefhost:name"...))
	places := []int64{0, 1024, 32768, 65536, 512, 512}
	image := filepath.Join(f.TempDir(), "image")
	f.Fuzz(func(t *testing.T, place uint8, data []byte) {
		content := make([]byte, 80<<10)
		copy(content[places[int(place)%len(places)]:], data)
		if err := os.WriteFile(image, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Probe(context.Background(), image); err != nil { // content must not keep a disk from being erased
			t.Errorf("got %v, want any answer but an error", err)
		}
	})
}
