//go:build linux

package images

import (
	"net/http"
	"strconv"
	"testing"

	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
)

// writeProgress deploys an image from a server that sends it in pieces. After each of them Ironic learns a percentage
// that is within 5 points of what QEMU says was written, and at the end what was written.
//
// Parity: T12 (percentage of an image)
func writeProgress(t *testing.T, r *rig.Rig, disk string) {
	const size, pieces = 48 * rig.MiB, 4
	image := rig.MBRImage(t, "paced", size)
	content := rig.Read(t, image, 0, size)
	requested, next := make(chan struct{}, 1), make(chan struct{})
	address, stop := serve(t, r, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		if req.Method == http.MethodHead {
			return
		}
		requested <- struct{}{}
		for piece := range pieces {
			select {
			case <-next:
			case <-req.Context().Done():
				return
			}
			if _, err := w.Write(content[piece*size/pieces : (piece+1)*size/pieces]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	})
	defer stop()
	r.SetHints(t, map[string]any{"serial": "small"})
	info := r.RawInfo("paced.raw", rig.SumAll(t, image))
	info["urls"] = []string{"http://" + address + "/paced.raw"}
	type outcome struct {
		record *conductor.Record
		err    error
	}
	ended := make(chan outcome, 1)
	from := len(r.Node.Progress())
	go func() {
		record, err := r.Node.Command(t.Context(), "standby.prepare_image", map[string]any{"image_info": info}, true)
		ended <- outcome{record, err}
	}()
	select {
	case <-requested: // both ends of the disk are wiped
	case end := <-ended:
		t.Fatalf("got %+v, %v before a request for the image", end.record, end.err)
	}
	wiped := r.Written(t)
	for piece := range pieces - 1 {
		next <- struct{}{}
		sent := (piece + 1) * 100 / pieces
		lines, err := r.Node.WaitProgress(rig.Soon(t), from, strconv.Itoa(sent)+" %", func(line string) bool {
			return rig.PercentOf(line) >= sent-5
		})
		if err != nil {
			t.Fatal(err)
		}
		line := lines[len(lines)-1]
		written := int((r.Written(t) - wiped) * 100 / size)
		if percent := rig.PercentOf(line); percent < written-5 || percent > written+5 {
			t.Errorf("after %d %%: got %q, want %d %%, which are on the disk", sent, line, written)
		}
	}
	next <- struct{}{}
	if end := <-ended; end.err != nil || end.record.Status != conductor.Succeeded {
		t.Fatalf("got %+v, %v, want success", end.record, end.err)
	}
	r.CheckProgress(t, from, "prepare_image: done, image of 48.0 MiB written to /dev/")
	if got, want := rig.Sum(t, disk, 0, size), rig.SumAll(t, image); got != want {
		t.Errorf("the disk's SHA-256 is %s, want the image's, %s", got, want)
	}
}
