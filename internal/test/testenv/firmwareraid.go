package testenv

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

// FirmwareRAID returns the content of a disk with the metadata of firmware RAID, which mdadm wrote: "imsm" with the
// serial number SCSI0123456789012345678, "imsm-4096" with sectors of 4096 bytes and the serial number large1, and "ddf"
// are active members of an array. "imsm-spare" with the serial number "SATA : 0123456789ab" and "ddf-spare" are spares.
func FirmwareRAID(t testing.TB, name string) []byte {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(Data(t, "md/firmware.tar.gz")))
	if err != nil {
		t.Fatal(err)
	}
	for packed := tar.NewReader(unzipped); ; {
		header, err := packed.Next()
		if err != nil {
			t.Fatalf("disk %s of firmware.tar.gz: %v", name, err)
		}
		if header.Name != name {
			continue
		}
		disk := make([]byte, min(header.Size, maxMember))
		if _, err := io.ReadFull(packed, disk); err != nil {
			t.Fatalf("disk %s of firmware.tar.gz: %v", name, err)
		}
		return disk
	}
}
