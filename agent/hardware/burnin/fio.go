package burnin

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// job is the result of a test in the form of fio.
type job struct {
	Name       string    `json:"jobname"`
	Error      int       `json:"error"`
	Read       direction `json:"read"`
	Write      direction `json:"write"`
	TotalError int       `json:"total_err"`
	Text       string    `json:"ironroot_error,omitempty"`
}

type direction struct {
	Bytes   int64 `json:"io_bytes"`
	Rate    int64 `json:"bw_bytes"` // in a second
	Runtime int64 `json:"runtime"`  // milliseconds
}

func directionOf(bytes int64, took time.Duration) direction {
	d := direction{Bytes: bytes, Runtime: took.Milliseconds()}
	if took > 0 {
		d.Rate = int64(float64(bytes) / took.Seconds())
	}
	return d
}

// eilseq is EILSEQ of Linux: the error number that fio reports for data that differ.
const eilseq = 84

// errorNumber returns the number of an error as fio reports it.
func errorNumber(err error) int {
	var number syscall.Errno
	if errors.As(err, &number) {
		return int(number)
	}
	return eilseq
}

// networkJob returns the content of an output file, with the keys of fio's.
func networkJob(role string, bytes int64, took time.Duration, err error) []byte {
	j := job{Name: role}
	if role == "writer" {
		j.Write = directionOf(bytes, took)
	} else {
		j.Read = directionOf(bytes, took)
	}
	if err != nil {
		j.Text, j.Error, j.TotalError = err.Error(), errorNumber(err), 1
	}
	text, _ := json.MarshalIndent(map[string]any{"jobs": []job{j}}, "", "  ") // values that JSON can represent
	return append(text, '\n')
}

// DiskResults collects the results of the disks of a test, and writes them to the output file.
type DiskResults struct {
	out  *output
	mu   sync.Mutex
	jobs []job
}

// NewDiskResults returns an empty DiskResults for tests with the options. It creates the output file.
func NewDiskResults(o DiskOptions) (*DiskResults, error) {
	out, err := openOutput(o.Output)
	if err != nil {
		return nil, err
	}
	return &DiskResults{out: out, jobs: []job{}}, nil
}

// Add adds the result of a disk. It is safe for concurrent use.
func (d *DiskResults) Add(path string, r DiskReport, err error) {
	j := job{
		Name: path, Read: directionOf(r.Verified, r.readTime), Write: directionOf(r.Written, r.writeTime),
		TotalError: r.wrong,
	}
	if err != nil {
		j.Text, j.Error = err.Error(), errorNumber(err)
		j.TotalError = max(1, j.TotalError)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs = append(d.jobs, j)
}

// Finish writes the output file: a JSON document with the keys of fio's for which this package has a value.
func (d *DiskResults) Finish() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.jobs, func(a, b job) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(map[string]any{"jobs": d.jobs, "timestamp": time.Now().Unix()}, "", "  ")
	return errors.Join(err, d.out.finish(append(text, '\n')))
}
