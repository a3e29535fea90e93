//go:build linux

package images

import (
	"bytes"
	"crypto/md5" //nolint:gosec // one of the protocol's checksums
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
)

// checksums deploys with each algorithm, named or detected by the checksum's length. After a wrong checksum the disk
// does not boot.
//
// Parity: K2
func checksums(t *testing.T, r *rig.Rig, disk string) {
	for n, tt := range []struct {
		algorithm string
		sum       func(image []byte) []byte
	}{
		{"md5", func(b []byte) []byte { s := md5.Sum(b); return s[:] }}, //nolint:gosec // as above
		{"sha256", func(b []byte) []byte { s := sha256.Sum256(b); return s[:] }},
		{"sha512", func(b []byte) []byte { s := sha512.Sum512(b); return s[:] }},
	} {
		for _, named := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, named %t", tt.algorithm, named), func(t *testing.T) {
				path := rig.MBRImage(t, "sum.raw", 2*rig.MiB)
				rig.Patch(t, path, rig.MiB, []byte{byte(n), byte(len(t.Name()))}) // makes each image unique
				r.Images.File("sum.raw", path)
				image := rig.Read(t, path, 0, 2*rig.MiB)
				right := hex.EncodeToString(tt.sum(image))
				for _, sum := range []string{strings.Repeat("0", len(right)), right} {
					info := r.RawInfo("sum.raw", sum)
					info["os_hash_algo"] = tt.algorithm
					if !named {
						delete(info, "os_hash_algo")
						delete(info, "os_hash_value")
						info["checksum"] = sum
					}
					r.SetHints(t, map[string]any{"serial": "small"})
					record := r.Command(t, "standby.prepare_image", map[string]any{"image_info": info})
					got := rig.Read(t, disk, 0, 2*rig.MiB)
					switch {
					case sum == right && (record.Status != conductor.Succeeded || !bytes.Equal(got, image)):
						t.Errorf("got %s (%v), want the image on the disk", record.Status, record.Error)
					case sum != right && (record.Status != conductor.Failed ||
						record.Error.Type != "ImageChecksumError" || !bytes.Equal(got[:rig.MiB], make([]byte,
						rig.MiB))):
						t.Errorf("wrong sum: got %s (%v), want an ImageChecksumError and nothing that starts",
							record.Status, record.Error)
					}
				}
			})
		}
	}
}
