package cleaning

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/erase/evidence"
)

// evidenceLog collects what an erase step does to each disk. A nil log collects nothing. It is safe for concurrent use:
// an operation that the kernel does not return from continues while the evidence is written.
type evidenceLog struct {
	operation string
	node      string
	options   map[string]any
	started   time.Time

	mu    sync.Mutex
	order []string // device paths
	disks map[string]*diskEvidence
}

// diskEvidence has the facts about one disk.
type diskEvidence struct {
	disk    block.Device
	errs    []error
	report  diskReport
	targets []*targetEvidence
}

// targetEvidence has the facts about a disk or partition whose erase was begun. It is changed under the log's mutex.
type targetEvidence struct {
	path           string
	record         *erase.Recorder
	started, ended time.Time // ended is zero while the erase runs
	err            error
}

func newEvidenceLog(n *node.Node, operation string, flags eraseFlags) *evidenceLog {
	l := &evidenceLog{
		operation: operation, node: n.UUID(), started: time.Now(), disks: map[string]*diskEvidence{},
	}
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

// Names of steps: one erases all data, the other only the data of NVMe disks.
const (
	fullErase    = "erase_devices"
	expressErase = "erase_devices_express"
)

// add adds disks without a result.
func (l *evidenceLog) add(disks []block.Device) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range disks {
		l.of(d)
	}
}

// of returns the entry of a disk and adds it if it is missing.
func (l *evidenceLog) of(d block.Device) *diskEvidence {
	entry := l.disks[d.Path]
	if entry == nil {
		entry = &diskEvidence{disk: d}
		l.disks[d.Path], l.order = entry, append(l.order, d.Path)
	}
	return entry
}

// fail adds the error of a disk.
func (l *evidenceLog) fail(d block.Device, err error) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.of(d)
	entry.errs = append(entry.errs, err)
}

// record adds the report of a disk. Reports of other devices, such as controllers, are ignored.
func (l *evidenceLog) record(d block.Device, report diskReport) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if entry := l.disks[d.Path]; entry != nil {
		entry.report = report
	}
}

// begin adds a target of a disk, and returns the recorder for its erase. The target ends with the call of end.
func (l *evidenceLog) begin(d, target block.Device) (record *erase.Recorder, end func(error)) {
	record = &erase.Recorder{}
	if l == nil {
		return record, func(error) {}
	}
	t := &targetEvidence{path: target.Path, record: record, started: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.of(d)
	entry.targets = append(entry.targets, t)
	return record, func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.ended, t.err = time.Now(), err
	}
}

// records returns a record of each disk. stepErr is why the step ended before it erased anything, or nil.
func (l *evidenceLog) records(m *Machine, stepErr error) []evidence.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []evidence.Record
	for _, path := range l.order {
		list = append(list, l.disks[path].newRecord(m, l, stepErr))
	}
	return list
}

func (e *diskEvidence) newRecord(m *Machine, l *evidenceLog, stepErr error) evidence.Record {
	r := evidence.Record{
		Program: "ironroot " + m.o.Version, Node: l.node, Disk: erase.Describe(m.o.System, e.disk),
		Requested: evidence.Request{Operation: l.operation, Options: l.options},
		Started:   l.started, Ended: after(l.started, time.Now()),
		Targets: []evidence.Target{}, Untouched: []evidence.Place{},
	}
	for i, t := range e.targets {
		t.addTo(&r, t.record.Report())
		if i == 0 {
			r.Started = t.started.UTC()
		}
		r.Ended = after(e.targets[0].started, t.end())
	}
	for _, path := range slices.Sorted(maps.Keys(e.report.Untouched)) {
		r.Untouched = append(r.Untouched, evidence.Place{Path: path, Reason: e.report.Untouched[path]})
	}
	var reasons []string
	for _, place := range r.Untouched {
		reasons = append(reasons, place.Path+": "+place.Reason)
	}
	r.Outcome = e.outcome()
	switch err := errors.Join(e.errs...); {
	case err != nil:
		reasons = append([]string{err.Error()}, reasons...)
	case r.Outcome != evidence.NotErased:
	case stepErr != nil:
		reasons = append(reasons, "the step ended before: "+stepErr.Error())
	case len(reasons) == 0:
		reasons = []string{"the step ended before the disk's turn"}
	}
	r.Reason = strings.Join(reasons, "; ")
	return r
}

// outcome returns the outcome of the disk by what is known of it.
func (e *diskEvidence) outcome() evidence.Outcome {
	switch {
	case len(e.errs) > 0 && len(e.targets) > 0:
		return evidence.Failed
	case len(e.errs) > 0:
		return evidence.NotErased
	case len(e.report.Erased) > 0 && len(e.report.Untouched) > 0:
		return evidence.Partial
	case len(e.report.Erased) > 0:
		return evidence.Erased
	}
	return evidence.NotErased
}

// progress returns the outcome of a disk for the progress of the step. The disk's record has the same outcome.
func (l *evidenceLog) progress(d block.Device) status.Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.disks[d.Path]
	if entry == nil {
		return status.Untouched
	}
	switch outcome := entry.outcome(); {
	case len(entry.errs) > 0:
		return status.Failed
	case outcome == evidence.Partial:
		return status.PartlyErased
	case outcome == evidence.Erased:
		return entry.report.extent()
	}
	return status.Untouched
}

// addTo adds the report of the target's erase to a record: the target, and the facts that the drive reported of itself.
func (t *targetEvidence) addTo(r *evidence.Record, report erase.Report) {
	r.Targets = append(r.Targets, t.newTarget(report))
	r.Disk = report.Disk(r.Disk)
}

// newTarget returns the evidence of the target. It has no technique unless the erase has ended without an error.
func (t *targetEvidence) newTarget(report erase.Report) evidence.Target {
	problem := ""
	switch {
	case t.ended.IsZero():
		problem = "the erase had not ended when the evidence was written"
	case t.err != nil:
		problem = t.err.Error()
	}
	if problem != "" {
		report.Technique = ""
	}
	target := report.Target()
	target.Path, target.Error = t.path, problem
	target.Started, target.Ended = t.started.UTC(), after(t.started, t.end())
	return target
}

// after returns the end of what started at a time: the start and the duration. The clock can be set in the meantime, so
// that the end by the clock is before the start.
func after(started, ended time.Time) time.Time { return started.Add(ended.Sub(started)).UTC() }

// end returns the end of a target, which is now while the erase runs.
func (t *targetEvidence) end() time.Time {
	if t.ended.IsZero() {
		return time.Now()
	}
	return t.ended
}

// diskResult is the evidence of a disk in the result of a step.
type diskResult struct {
	File     string             `json:"file,omitempty"` // in the log archive; "" if it could not be stored
	Posted   bool               `json:"posted"`         // to erase_evidence_url
	Error    string             `json:"error,omitempty"`
	Envelope *evidence.Envelope `json:"evidence"` // null if it could not be created
}

// storeEvidence writes the evidence of all disks into the log archive and adds it to the reports. An erased disk stays
// erased if its evidence cannot be signed, stored or posted: that is logged, and part of the report. stepErr is why the
// step ended before it erased anything, or nil.
func (r *diskRun) storeEvidence(ctx context.Context, stepErr error) {
	if r.evidence == nil {
		return
	}
	log := r.m.o.Log
	key, unsigned := r.m.evidenceKey()
	poster := r.m.newPoster()
	defer poster.close()
	for _, record := range r.evidence.records(r.m, stepErr) {
		path := record.Disk.Path
		sealed, err := evidence.Seal(record, key, unsigned, r.m.clean)
		var data []byte
		if err == nil {
			data, err = sealed.JSON()
		}
		if err != nil {
			log.Error("erase evidence not created", "device", path, "err", err)
			r.addEvidence(path, diskResult{Error: fmt.Sprintf("not created: %v", err)})
			continue
		}
		claimed := evidence.Classify(record)
		result := diskResult{Envelope: &sealed}
		var problems []error
		if result.File, err = r.m.keep(evidenceName(record.Disk), data); err != nil {
			problems = append(problems, fmt.Errorf("not stored in the log archive: %w", err))
		}
		if result.Posted, err = poster.post(ctx, data); err != nil {
			problems = append(problems, fmt.Errorf("not posted: %w", err))
		}
		if err := errors.Join(problems...); err != nil {
			result.Error = err.Error()
			log.Error("erase evidence incomplete", "device", path, "err", err)
		}
		log.Info("erase evidence", "device", path, "file", result.File, "outcome", string(record.Outcome),
			"category", string(claimed.Category), "reason", claimed.Reason, "signed", key != nil,
			"posted", result.Posted)
		r.addEvidence(path, result)
	}
}

// addEvidence adds evidence to the report of a disk.
func (r *diskRun) addEvidence(path string, result diskResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.reports[path]
	report.Evidence = &result
	r.reports[path] = report
}

// clean redacts secrets.
func (m *Machine) clean(text string) string {
	if m.o.Journal == nil {
		return text
	}
	return m.o.Journal.Clean(text)
}

// keep stores a file in the log archive and returns its name there.
func (m *Machine) keep(name string, data []byte) (string, error) {
	if m.o.Journal == nil {
		return "", errors.New("no journal")
	}
	return m.o.Journal.Keep(name, data)
}

// evidenceKey returns the key of the option erase_evidence_key, or why there is none.
func (m *Machine) evidenceKey() (ed25519.PrivateKey, string) {
	name := m.o.Config.Get().EraseEvidenceKey
	if name == "" {
		return nil, "no key is configured (option erase_evidence_key)"
	}
	redact := func(string) {}
	if m.o.Journal != nil {
		redact = m.o.Journal.Redact
	}
	key, err := evidence.ReadPrivateKey(name, redact)
	if err != nil {
		m.o.Log.Error("erase evidence is not signed", "option", "erase_evidence_key", "err", err)
		return nil, fmt.Sprintf("the key cannot be used (option erase_evidence_key): %v", err)
	}
	return key, ""
}

// evidenceName returns the file of a disk in the log archive: its serial number, otherwise its world wide name or
// kernel name. Other characters than letters, digits, dot, dash and underscore are replaced.
func evidenceName(d evidence.Disk) string {
	name := d.Serial
	if strings.Trim(name, ". ") == "" {
		name = d.WWN
	}
	if strings.Trim(name, ". ") == "" {
		name = strings.TrimPrefix(d.Path, "/dev/")
	}
	name = strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.ContainsRune(".-_", c):
			return c
		}
		return '_'
	}, strings.TrimSpace(name))
	return "erase/" + name[:min(len(name), maxSerial)] + ".json"
}

// maxSerial limits the bytes of a serial number in a file name.
const maxSerial = 100
