//go:build linux

package e2e

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ironroot/lab/conductor"
)

// leading matches the percentage of a command as a whole.
var leading = regexp.MustCompile(`^[a-z_]+: (\d+)%`)

// percentOf returns the percentage in a line about a command, -1 without one.
func percentOf(line string) int {
	m := leading.FindStringSubmatch(line)
	if m == nil {
		return -1
	}
	percent, err := strconv.Atoi(m[1])
	if err != nil {
		return -1
	}
	return percent
}

// checkProgress waits for the result of a command, and checks that the percentages that Ironic received have only grown
// since a message.
func (r *rig) checkProgress(t *testing.T, from int, result string) {
	t.Helper()
	lines, err := r.node.WaitProgress(soon(t), from, result, func(line string) bool {
		return strings.HasPrefix(line, result)
	})
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, line := range lines {
		percent := percentOf(line)
		if percent >= 0 && percent < last {
			t.Errorf("the percentage falls:\n%s", strings.Join(lines, "\n"))
			break
		}
		last = max(last, percent)
	}
	t.Logf("progress:\n%s", strings.Join(lines, "\n"))
}

// writeProgress deploys an image from a server that sends it in pieces. After each of them Ironic learns a percentage
// that is within 5 points of what QEMU says was written, and at the end what was written.
//
// Parity: T12 (percentage of an image)
func (r *rig) writeProgress(t *testing.T, disk string) {
	const size, pieces = 48 * mib, 4
	image := mbrImage(t, "paced", size)
	content := read(t, image, 0, size)
	requested, next := make(chan struct{}, 1), make(chan struct{})
	address, stop := r.serve(t, func(w http.ResponseWriter, req *http.Request) {
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
	r.setHints(t, map[string]any{"serial": "small"})
	info := r.rawInfo("paced.raw", sumAll(t, image))
	info["urls"] = []string{"http://" + address + "/paced.raw"}
	type outcome struct {
		record *conductor.Record
		err    error
	}
	ended := make(chan outcome, 1)
	from := len(r.node.Progress())
	go func() {
		record, err := r.node.Command(t.Context(), "standby.prepare_image", map[string]any{"image_info": info}, true)
		ended <- outcome{record, err}
	}()
	select {
	case <-requested: // both ends of the disk are wiped
	case end := <-ended:
		t.Fatalf("got %+v, %v before a request for the image", end.record, end.err)
	}
	wiped := r.written(t)
	for piece := range pieces - 1 {
		next <- struct{}{}
		sent := (piece + 1) * 100 / pieces
		lines, err := r.node.WaitProgress(soon(t), from, strconv.Itoa(sent)+" %", func(line string) bool {
			return percentOf(line) >= sent-5
		})
		if err != nil {
			t.Fatal(err)
		}
		line := lines[len(lines)-1]
		written := int((r.written(t) - wiped) * 100 / size)
		if percent := percentOf(line); percent < written-5 || percent > written+5 {
			t.Errorf("after %d %%: got %q, want %d %%, which are on the disk", sent, line, written)
		}
	}
	next <- struct{}{}
	if end := <-ended; end.err != nil || end.record.Status != conductor.Succeeded {
		t.Fatalf("got %+v, %v, want success", end.record, end.err)
	}
	r.checkProgress(t, from, "prepare_image: done, image of 48.0 MiB written to /dev/")
	if got, want := sum(t, disk, 0, size), sumAll(t, image); got != want {
		t.Errorf("the disk's SHA-256 is %s, want the image's, %s", got, want)
	}
}
