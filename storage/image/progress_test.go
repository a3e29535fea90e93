package image

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/piped"
	"ironroot/storage/image/fetch"
)

func TestSnapshotText(t *testing.T) {
	for want, s := range map[string]Snapshot{
		"transfer: 512 of 1024 MiB (50 %)": {Phase: PhaseTransfer, Attempt: 1, Read: 512 * mib, Total: 1024 * mib},
		"transfer: 3 MiB, attempt 2":       {Phase: PhaseTransfer, Attempt: 2, Read: 3 * mib},
		"waiting: 0 MiB":                   new(Progress).Snapshot(),
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// All bytes that have arrived are on the disk, except for the few that are counted as unwritten. Their number is not 0
// before the write has succeeded.
func TestUnwritten(t *testing.T) {
	content := imagetest.RandomBytes(9, 40*mib)
	for name, c := range map[string]struct{ file []byte }{
		"raw": {content}, "compressed": {imagetest.Pack(t, content, "gzip -1")},
	} {
		t.Run(name, func(t *testing.T) {
			disk := imagetest.UsedDisk(t, 48*mib)
			progress := &Progress{}
			check := func(sent int) {
				s := progress.Snapshot()
				// Some MiB wait in a chunk that is not full, and behind a decompressor.
				if s.Read != int64(sent) || s.Unwritten < 0 || s.Unwritten > 5*mib || s.Read-s.Unwritten >= s.Total {
					t.Errorf("after %d bytes: got %+v, want nearly all of them written", sent, s)
				}
				at := int(s.Read-s.Unwritten) - 2*mib // compressed random data is slightly longer
				if off, same := imagetest.Difference(imagetest.ReadAt(t, disk, mib, at-mib), content[mib:at]); !same {
					t.Errorf("%d of %d bytes unwritten, but the disk differs at byte %d", s.Unwritten, s.Read, mib+off)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				client, stop := piped.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Length", fmt.Sprint(len(c.file)))
					if r.Header.Get("Range") != "" || r.Method == http.MethodHead {
						imagetest.WithoutRanges(c.file)(w, r)
						return
					}
					for sent := 0; sent < len(c.file); {
						n := min(10*mib+4567, len(c.file)-sent)
						_, _ = w.Write(c.file[sent : sent+n]) // a client that has gone is an error of the write
						w.(http.Flusher).Flush()
						if sent += n; sent < len(c.file) {
							time.Sleep(time.Second) // until everything that can be written is
							check(sent)
						}
					}
				}))
				defer stop()
				src := Source{URLs: urls("http://server/image"), Format: "raw", Checksum: sha256Of(c.file)}
				if name == "compressed" {
					src.Format = ""
				}
				src.Fetch = fetch.Options{Client: client}
				if _, err := Write(t.Context(), disk, src, Options{Progress: progress}); err != nil {
					t.Fatal(err)
				}
				if s := progress.Snapshot(); s.Phase != PhaseDone || s.Read != s.Total || s.Unwritten != 0 {
					t.Errorf("at the end: got %+v, want all bytes written", s)
				}
			})
		})
	}
}
