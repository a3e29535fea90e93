package initramfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
)

// Files that tar extracts from the tarball have its date.
func TestTarballDate(t *testing.T) {
	testenv.Programs(t, "tar")
	for name, date := range map[string]time.Time{"1970": {}, "date": time.Unix(1_795_700_000, 0)} {
		t.Run(name, func(t *testing.T) {
			data, err := tarballOf(date, []string{"file"}, [][]byte{[]byte("text")})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			tarball := filepath.Join(dir, "tarball")
			if err := os.WriteFile(tarball, data, 0o600); err != nil {
				t.Fatal(err)
			}
			testenv.Run(t, "tar", "-xf", tarball, "-C", dir)
			info, err := os.Stat(filepath.Join(dir, "file"))
			if err != nil {
				t.Fatal(err)
			}
			if want := max(date.Unix(), 0); info.ModTime().Unix() != want {
				t.Errorf("got the date %v, want %v", info.ModTime(), time.Unix(want, 0))
			}
		})
	}
}
