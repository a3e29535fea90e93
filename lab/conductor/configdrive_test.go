package conductor_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
)

func TestConfigDriveIsAnISOWithTheLabelAndTheFiles(t *testing.T) {
	testenv.Programs(t, "blkid")
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": "11111111-2222-3333-4444-555555555555"},
		[]byte("#!/bin/sh\n"))
	if err != nil {
		t.Fatal(err)
	}
	packed, err := base64.StdEncoding.DecodeString(drive)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "drive.iso")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	out := testenv.Run(t, "blkid", "-p", path)
	if !strings.Contains(out, `LABEL="config-2"`) || !strings.Contains(out, `TYPE="iso9660"`) {
		t.Errorf("blkid: %s", out)
	}
	for _, want := range []string{
		"11111111-2222-3333-4444-555555555555", "meta_data.json", "network_data.json", "user_data", "#!/bin/sh",
	} {
		if !bytes.Contains(image, []byte(want)) {
			t.Errorf("the image does not contain %q", want)
		}
	}
	if len(image)%2048 != 0 || len(image) > 1<<20 {
		t.Errorf("got %d bytes, want whole blocks and less than a MiB", len(image))
	}
}
