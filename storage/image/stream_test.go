package image

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fragile serves one file and breaks connections off.
type fragile struct {
	mu       sync.Mutex
	data     []byte
	header   http.Header // of every answer
	cuts     []int64     // offsets in the file before which a connection ends, each once
	ends     func()      // how it ends; nil: it is closed
	noRanges bool
	deaf     bool           // to If-Range
	onCut    func(*fragile) // called with mu held
	sent     int64          // bytes of bodies
	asked    []string       // Range headers
}

const dayBefore = "Fri, 20 Nov 2026 10:00:00 GMT"

func (f *fragile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	data, ends := f.data, f.ends
	f.asked = append(f.asked, r.Header.Get("Range"))
	for name, values := range f.header {
		w.Header()[name] = values
	}
	if f.noRanges {
		r.Header.Del("Range")
	}
	if f.deaf {
		r.Header.Del("If-Range")
	}
	f.mu.Unlock()
	modified, _ := http.ParseTime(w.Header().Get("Last-Modified"))
	http.ServeContent(&cutting{ResponseWriter: w, f: f, pos: start(r), ends: ends, gone: r.Context().Done()}, r, "", modified, bytes.NewReader(data))
}

// start is where the answer to a range request begins.
func start(r *http.Request) (off int64) {
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &off) //nolint:errcheck // none: from the start
	return off
}

// cutting ends a connection where its server has a cut.
type cutting struct {
	http.ResponseWriter
	f    *fragile
	pos  int64
	ends func()
	gone <-chan struct{}
}

func (c *cutting) WriteHeader(status int) {
	if status == http.StatusOK {
		c.pos = 0 // the range asked for was not heeded
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *cutting) Write(p []byte) (int, error) {
	c.f.mu.Lock()
	i := slices.IndexFunc(c.f.cuts, func(at int64) bool { return at >= c.pos && at < c.pos+int64(len(p)) })
	if i >= 0 {
		p = p[:c.f.cuts[i]-c.pos]
		c.f.cuts = slices.Delete(c.f.cuts, i, i+1)
		if c.f.onCut != nil {
			c.f.onCut(c.f)
		}
	}
	c.f.sent += int64(len(p))
	c.f.mu.Unlock()
	n, err := c.ResponseWriter.Write(p)
	c.pos += int64(n)
	if i < 0 || err != nil {
		return n, err
	}
	c.ResponseWriter.(http.Flusher).Flush()
	if c.ends != nil {
		<-c.gone // silence instead of an end
	}
	panic(http.ErrAbortHandler)
}

func tenths(size int) (cuts []int64) {
	for i := range 10 {
		cuts = append(cuts, int64(size/10*i)+int64(i))
	}
	return cuts
}

// Connections that break off cost no byte twice where the server has ranges and a validator.
func TestResume(t *testing.T) {
	data := randomBytes(20, 21*mib+17)
	qcow := simpleImage(t, "-c")
	for name, header := range map[string]http.Header{
		"entity tag": {"Etag": {`"one"`}},
		"date":       {"Last-Modified": {dayBefore}},
		"both":       {"Etag": {`"one"`}, "Last-Modified": {dayBefore}},
	} {
		f := &fragile{data: data, header: header, cuts: tenths(len(data))}
		src := rawSource(data, serve(t, f.ServeHTTP).URL)
		src.Fetch.Retries = 12 // tenths are small here: each counts as little
		disk := usedDisk(t, 24*mib)
		report, err := Write(t.Context(), disk, src, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(readAt(t, disk, 0, len(data)), data) {
			t.Errorf("%s: the disk does not hold the image", name)
		}
		if f.sent != int64(len(data)) || len(f.asked) != 11 || report.Resumed != 10 || report.Bytes != int64(len(data)) {
			t.Errorf("%s: got %d bytes served in %d answers and report %+v, want %d bytes in 11", name, f.sent, len(f.asked), report, len(data))
		}
	}
	t.Run("qcow2", func(t *testing.T) {
		f := &fragile{data: qcow, header: http.Header{"Etag": {`"one"`}}}
		whole := false // the cuts are for the stream, not for the tables before it
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "" && !whole {
				whole, f.cuts, f.sent = true, tenths(len(qcow)), 0
			}
			f.ServeHTTP(w, r)
		})
		src := qcowSource(qcow, server.URL)
		src.Fetch.Retries = 12
		report, err := Write(t.Context(), usedDisk(t, 16*mib), src, Options{})
		if err != nil || f.sent != int64(len(qcow)) || report.Resumed != 10 {
			t.Errorf("got %d bytes served, report %+v and error %v, want %d bytes", f.sent, report, err, len(qcow))
		}
	})
	t.Run("connections that bring much are no reason to give up", func(t *testing.T) {
		f := &fragile{data: data, header: http.Header{"Etag": {`"one"`}}, cuts: []int64{5 * mib, 10 * mib, 15 * mib, 20 * mib}}
		src := rawSource(data, serve(t, f.ServeHTTP).URL)
		src.Fetch.Retries = 1
		report, err := Write(t.Context(), usedDisk(t, 24*mib), src, Options{})
		if err != nil || report.Resumed != 4 || f.sent != int64(len(data)) {
			t.Errorf("got %d bytes served, report %+v and error %v, want %d bytes", f.sent, report, err, len(data))
		}
	})
	t.Run("silence", func(t *testing.T) {
		f := &fragile{data: data, header: http.Header{"Etag": {`"one"`}}, cuts: []int64{5 * mib}, ends: func() {}}
		src := rawSource(data, serve(t, f.ServeHTTP).URL)
		src.Fetch.Retries, src.Fetch.ConnectTimeout = 1, time.Second
		report, err := Write(t.Context(), usedDisk(t, 24*mib), src, Options{})
		if err != nil || report.Resumed != 1 || f.sent != int64(len(data)) {
			t.Errorf("got %d bytes served, report %+v and error %v, want %d bytes", f.sent, report, err, len(data))
		}
	})
}

// A download that cannot resume starts again, unless a retry cannot help.
func TestNoResume(t *testing.T) {
	data, other := randomBytes(21, 9*mib), randomBytes(22, 9*mib)
	tag := http.Header{"Etag": {`"one"`}}
	becomes := func(next []byte) func(*fragile) {
		return func(f *fragile) { f.data, f.header = next, http.Header{"Etag": {`"two"`}} }
	}
	for _, c := range []struct {
		name    string
		server  *fragile
		want    []byte // nil: the download fails
		text    string
		answers int
		changed bool // the change is detected before the checksum
	}{
		{name: "no validator", server: &fragile{}, want: data, answers: 2},
		{name: "weak entity tag", server: &fragile{header: http.Header{"Etag": {`W/"one"`}}}, want: data, answers: 2},
		{name: "changed this very second", server: &fragile{header: http.Header{"Last-Modified": {time.Now().UTC().Format(http.TimeFormat)}}}, want: data, answers: 2},
		{name: "no ranges", server: &fragile{header: tag, noRanges: true}, want: data, answers: 3},
		{name: "another file", server: &fragile{header: tag, onCut: becomes(other)}, want: other, answers: 3, changed: true},
		{name: "another file, If-Range not heeded", server: &fragile{header: tag, deaf: true, onCut: becomes(other)}, want: other, answers: 3, changed: true},
		{name: "a shorter file, If-Range not heeded", server: &fragile{header: tag, deaf: true, onCut: becomes(other[:2*mib])}, want: other[:2*mib], answers: 3, changed: true},
		{name: "a longer file, no tag any more", server: &fragile{header: tag, deaf: true, onCut: func(f *fragile) {
			f.data, f.header = append(bytes.Clone(data), other...), nil
		}}, want: append(bytes.Clone(data), other...), answers: 3, changed: true},
		{name: "the same tag, another file", server: &fragile{header: tag, onCut: func(f *fragile) { f.data = other }}, want: other, answers: 3},
		{name: "nothing comes any more", server: &fragile{header: tag, onCut: func(f *fragile) { f.cuts = []int64{3 * mib} }}, text: "before the whole file had arrived", answers: 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.server
			f.data, f.cuts = data, []int64{3 * mib}
			src := rawSource(c.want, serve(t, f.ServeHTTP).URL+"/?signature=secret")
			src.Fetch.Retries = 3
			disk := usedDisk(t, 20*mib)
			var log bytes.Buffer
			_, err := Write(t.Context(), disk, src, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			if got := strings.Contains(log.String(), errChanged.Error()); got != c.changed || strings.Contains(log.String(), "secret") {
				t.Errorf("got a change seen %v, want %v, and no secret, in\n%s", got, c.changed, log.String())
			}
			if len(f.asked) != c.answers {
				t.Errorf("got %d requests (ranges %q), want %d", len(f.asked), f.asked, c.answers)
			}
			if c.want == nil {
				if !isA[*DownloadError](err) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got error %v, want one with %q", err, c.text)
				}
				mustNotBoot(t, disk)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(readAt(t, disk, 0, len(c.want)), c.want) {
				t.Error("the disk does not hold the image")
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		f := &fragile{data: data, header: tag, cuts: []int64{3 * mib}}
		server := serve(t, f.ServeHTTP, status(http.StatusForbidden))
		src := rawSource(data, server.URL)
		src.Fetch.Retries = 3
		_, err := Write(t.Context(), usedDisk(t, 20*mib), src, Options{})
		if !isA[*DownloadError](err) || !strings.Contains(err.Error(), "403") || server.requests.Load() != 2 {
			t.Errorf("got error %v after %d requests, want 403 after 2", err, server.requests.Load())
		}
	})
}

func TestValidator(t *testing.T) {
	const date, later = "Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 2026 10:00:01 GMT"
	for _, c := range []struct{ tag, modified, date, want string }{
		{`"abc"`, "", "", `"abc"`},
		{`"abc"`, date, later, `"abc"`},
		{`W/"abc"`, date, later, date},
		{`W/"abc"`, "", later, ""},
		{"abc", "", later, ""},
		{"", date, later, date},
		{"", date, date, ""},
		{"", date, "", ""},
		{"", "yesterday", later, ""},
	} {
		h := http.Header{"Etag": {c.tag}, "Last-Modified": {c.modified}, "Date": {c.date}}
		if got := validatorOf(h); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}
