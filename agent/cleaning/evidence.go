package cleaning

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ironroot/storage/erase"
	"ironroot/storage/erase/evidence"
)

// targetEvidence has the facts about a disk or partition whose erase was begun. It is changed under the mutex of the
// results.
type targetEvidence struct {
	path           string
	record         *erase.Recorder
	started, ended time.Time // ended is zero while the erase runs
	err            error
}

// Names of steps: one erases all data, the other only the data of NVMe disks.
const (
	fullErase    = "erase_devices"
	expressErase = "erase_devices_express"
)

// newRecord returns the evidence of the disk.
func (d *diskReport) newRecord(m *Steps, l *results, stepErr error) evidence.Record {
	r := evidence.Record{
		Program: "ironroot " + m.o.Version, Node: l.node, Disk: erase.Describe(m.o.System, d.disk),
		Requested: evidence.Request{Operation: l.operation, Options: l.options},
		Started:   l.started, Ended: after(l.started, time.Now()),
		Targets: []evidence.Target{}, Untouched: []evidence.Place{},
	}
	for i, t := range d.targets {
		t.addTo(&r, t.record.Report())
		if i == 0 {
			r.Started = t.started.UTC()
		}
		r.Ended = after(d.targets[0].started, t.end())
	}
	for _, path := range slices.Sorted(maps.Keys(d.Untouched)) {
		r.Untouched = append(r.Untouched, evidence.Place{Path: path, Reason: d.Untouched[path]})
	}
	var reasons []string
	for _, place := range r.Untouched {
		reasons = append(reasons, place.Path+": "+place.Reason)
	}
	r.Outcome = d.outcome()
	switch err := errors.Join(d.errs...); {
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

// storedEvidence is the evidence of a disk in the result of a step.
type storedEvidence struct {
	File     string             `json:"file,omitempty"` // in the log archive; "" if it could not be stored
	Posted   bool               `json:"posted"`         // to erase_evidence_url
	Error    string             `json:"error,omitempty"`
	Envelope *evidence.Envelope `json:"evidence"` // null if it could not be created
}

// storeEvidence writes the evidence of all disks into the log archive and adds it to the reports. An erased disk stays
// erased if its evidence cannot be signed, stored or posted: that is logged, and part of the report. stepErr is why the
// step ended before it erased anything, or nil.
func (r *diskRun) storeEvidence(ctx context.Context, stepErr error) {
	if r.flags.step == "" {
		return
	}
	log := r.m.o.Log
	key, unsigned := r.m.evidenceKey()
	poster := r.m.newPoster()
	defer poster.close()
	for _, record := range r.results.records(r.m, stepErr) {
		path := record.Disk.Path
		sealed, err := evidence.Seal(record, key, unsigned, r.m.redact)
		var data []byte
		if err == nil {
			data, err = sealed.JSON()
		}
		if err != nil {
			log.Error("erase evidence not created", "device", path, "err", err)
			r.results.addEvidence(path, storedEvidence{Error: fmt.Sprintf("not created: %v", err)})
			continue
		}
		claimed := evidence.Classify(record)
		result := storedEvidence{Envelope: &sealed}
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
		r.results.addEvidence(path, result)
	}
}

// redact redacts secrets.
func (m *Steps) redact(text string) string {
	if m.o.Journal == nil {
		return text
	}
	return m.o.Journal.Clean(text)
}

// keep stores a file in the log archive and returns its name there.
func (m *Steps) keep(name string, data []byte) (string, error) {
	if m.o.Journal == nil {
		return "", errors.New("no journal")
	}
	return m.o.Journal.Keep(name, data)
}

// evidenceKey returns the key of the option erase_evidence_key, or why there is none.
func (m *Steps) evidenceKey() (ed25519.PrivateKey, string) {
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
