package cleaning

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"ironroot/agent/hardware/burnin"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/erase/evidence"
)

// diskReport describes a disk, or a storage controller, and what a step did to it. It is rendered as the entry of the
// step's result (JSON), as evidence (newRecord) and as the outcome in the progress.
type diskReport struct {
	Erased    map[string]erase.Report // by device path
	Untouched map[string]string       // reasons by device path
	Evidence  *storedEvidence         // of steps that erase

	tested   *burnin.DiskReport // of burnin_disk; it is the result of the disk
	disk     block.Device
	listed   bool // it is a disk, or has failed, so that evidence describes it
	recorded bool // the result of the step has it
	errs     []error
	targets  []*targetEvidence
}

// MarshalJSON returns the entry of the step's result.
func (r diskReport) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Erased      map[string]erase.Report `json:"erased,omitempty"`
		Overwritten map[string]string       `json:"overwritten,omitempty"`
		Untouched   map[string]string       `json:"untouched,omitempty"`
		Evidence    *storedEvidence         `json:"evidence,omitempty"`
	}{r.Erased, r.overwritten(), r.Untouched, r.Evidence})
}

// overwritten returns the passes of overwrites, and what was read back of the last one, by device path.
func (r diskReport) overwritten() map[string]string {
	found := map[string]string{}
	for path, report := range r.Erased {
		if text := report.Overwritten(); text != "" {
			found[path] = text
		}
	}
	return found
}

// addErased adds the report of a device that was erased.
func (r *diskReport) addErased(path string, report erase.Report) {
	if r.Erased == nil {
		r.Erased = map[string]erase.Report{}
	}
	r.Erased[path] = report
}

func untouched(d block.Device, reason string) diskReport {
	return diskReport{Untouched: map[string]string{d.Path: reason}}
}

// outcome returns the outcome of the disk by what is known of it.
func (r *diskReport) outcome() evidence.Outcome {
	switch {
	case len(r.errs) > 0 && len(r.targets) > 0:
		return evidence.Failed
	case len(r.errs) > 0:
		return evidence.NotErased
	case len(r.Erased) > 0 && len(r.Untouched) > 0:
		return evidence.Partial
	case len(r.Erased) > 0:
		return evidence.Erased
	}
	return evidence.NotErased
}

// progress returns the outcome of the disk for the progress of the step. The disk's record has the same outcome.
func (r *diskReport) progress() status.Outcome {
	switch outcome := r.outcome(); {
	case len(r.errs) > 0:
		return status.Failed
	case r.tested != nil:
		return status.Tested
	case outcome == evidence.Partial:
		return status.PartlyErased
	case outcome == evidence.Erased:
		return r.extent()
	}
	return status.Untouched
}

// extent returns whether the techniques of an erased disk erase all data or only metadata.
func (r *diskReport) extent() status.Outcome {
	for _, report := range r.Erased {
		if report.Technique != erase.MetadataOnly {
			return status.Erased
		}
	}
	return status.MetadataErased
}

// results collects what a step does to each disk, and its errors. It is safe for concurrent use: an operation that the
// kernel does not return from continues while the evidence is written.
type results struct {
	operation string // "" for a step without evidence
	node      string
	options   map[string]any
	started   time.Time

	mu    sync.Mutex
	order []string // paths of the listed disks
	disks map[string]*diskReport
	errs  []error
}

func newResults(n *node.Node, operation string, flags eraseFlags) *results {
	l := &results{operation: operation, node: n.UUID(), started: time.Now(), disks: map[string]*diskReport{}}
	switch operation {
	case fullErase:
		l.options = map[string]any{
			"random_passes": flags.iterations, "zeroize": flags.zeroize, "nvme_secure_erase": flags.nvme,
			"ata_secure_erase": flags.ata, "overwrite_if_secure_erase_fails": flags.continueOnFailure,
		}
		if flags.discard {
			l.options["discard_if_secure_erase_fails"] = true
		}
	case expressErase: // its other settings are fixed
		l.options = map[string]any{"nvme_secure_erase": flags.nvme}
	}
	return l
}

// of returns the entry of a device and adds it if it is missing.
func (l *results) of(d block.Device) *diskReport {
	entry := l.disks[d.Path]
	if entry == nil {
		entry = &diskReport{disk: d}
		l.disks[d.Path] = entry
	}
	return entry
}

// list returns the entry of a device that evidence describes.
func (l *results) list(d block.Device) *diskReport {
	entry := l.of(d)
	if !entry.listed {
		entry.disk, entry.listed, l.order = d, true, append(l.order, d.Path)
	}
	return entry
}

// add adds disks without a result.
func (l *results) add(disks []block.Device) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range disks {
		l.list(d)
	}
}

// addErr adds an error of the step.
func (l *results) addErr(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// err returns the errors of the step.
func (l *results) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

// fail adds the error of a disk, which is also one of the step.
func (l *results) fail(d block.Device, err error) {
	l.addErr(fmt.Errorf("%s: %w", d.Path, err))
	l.failDisk(d, err)
}

// failDisk adds the error of a disk.
func (l *results) failDisk(d block.Device, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.list(d)
	entry.errs = append(entry.errs, err)
}

// revoke marks a device as not erased.
func (l *results) revoke(d block.Device, err error) {
	l.failDisk(d, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.of(d)
	entry.Erased, entry.recorded = nil, false
}

// record sets what was done to a device.
func (l *results) record(d block.Device, report diskReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.of(d)
	entry.Erased, entry.Untouched, entry.tested, entry.recorded = report.Erased, report.Untouched, report.tested, true
}

// addEvidence adds evidence to the report of a disk.
func (l *results) addEvidence(path string, result storedEvidence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disks[path].Evidence, l.disks[path].recorded = &result, true
}

// reports returns what was done to each device, by path.
func (l *results) reports() map[string]diskReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]diskReport{}
	for path, entry := range l.disks {
		if entry.recorded {
			found[path] = *entry
		}
	}
	return found
}

// progress returns the outcome of a disk.
func (l *results) progress(d block.Device) status.Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(d).progress()
}

// begin adds a target of a disk, and returns the recorder for its erase. The target ends with the call of end.
func (l *results) begin(d, target block.Device) (record *erase.Recorder, end func(error)) {
	t := &targetEvidence{path: target.Path, record: &erase.Recorder{}, started: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.list(d)
	entry.targets = append(entry.targets, t)
	return t.record, func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.ended, t.err = time.Now(), err
	}
}

// records returns a record of each listed disk. stepErr is why the step ended before it erased anything, or nil.
func (l *results) records(m *Steps, stepErr error) []evidence.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []evidence.Record
	for _, path := range l.order {
		list = append(list, l.disks[path].newRecord(m, l, stepErr))
	}
	return list
}
