package imagetest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// Flaky is a handler that serves a file over connections that break.
type Flaky struct {
	Mu            sync.Mutex
	Data          []byte
	Header        http.Header // of every response
	Cuts          []int64     // offsets in the file at which a connection breaks, each once
	Silent        bool        // a broken connection stays open and silent; otherwise it is closed
	NoRanges      bool        // Range headers are ignored
	IgnoreIfRange bool
	OnCut         func(*Flaky) // called with Mu held
	Sent          int64        // bytes of bodies
	Ranges        []string     // Range header of each request
}

// ServeHTTP serves the file up to the next cut.
func (f *Flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.Mu.Lock()
	data, silent := f.Data, f.Silent
	f.Ranges = append(f.Ranges, r.Header.Get("Range"))
	for name, values := range f.Header {
		w.Header()[name] = values
	}
	if f.NoRanges {
		r.Header.Del("Range")
	}
	if f.IgnoreIfRange {
		r.Header.Del("If-Range")
	}
	f.Mu.Unlock()
	modified, _ := http.ParseTime(w.Header().Get("Last-Modified"))
	c := &cutting{ResponseWriter: w, f: f, pos: start(r), silent: silent, gone: r.Context().Done()}
	http.ServeContent(c, r, "", modified, bytes.NewReader(data))
}

// start returns the offset at which the response to a range request begins.
func start(r *http.Request) (off int64) {
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &off) //nolint:errcheck // none: from the start
	return off
}

// cutting is a response that breaks its connection at a cut.
type cutting struct {
	http.ResponseWriter
	f      *Flaky
	pos    int64
	silent bool
	gone   <-chan struct{}
}

func (c *cutting) WriteHeader(status int) {
	if status == http.StatusOK {
		c.pos = 0 // the range was ignored
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *cutting) Write(p []byte) (int, error) {
	c.f.Mu.Lock()
	i := slices.IndexFunc(c.f.Cuts, func(at int64) bool { return at >= c.pos && at < c.pos+int64(len(p)) })
	if i >= 0 {
		p = p[:c.f.Cuts[i]-c.pos]
		c.f.Cuts = slices.Delete(c.f.Cuts, i, i+1)
		if c.f.OnCut != nil {
			c.f.OnCut(c.f)
		}
	}
	c.f.Sent += int64(len(p))
	c.f.Mu.Unlock()
	n, err := c.ResponseWriter.Write(p)
	c.pos += int64(n)
	if i < 0 || err != nil {
		return n, err
	}
	c.ResponseWriter.(http.Flusher).Flush()
	if c.silent {
		<-c.gone
	}
	panic(http.ErrAbortHandler)
}

// Tenths returns an offset in each tenth of a file of size bytes.
func Tenths(size int) (cuts []int64) {
	for i := range 10 {
		cuts = append(cuts, int64(size/10*i)+int64(i))
	}
	return cuts
}
