package cleaning

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// withJournal gives a manager a journal, and returns it with what it has logged.
func withJournal(m *Steps) (*journal.Journal, *bytes.Buffer) {
	var log bytes.Buffer
	j := journal.New(&log, nil, 1<<20)
	m.o.Journal, m.o.Log, m.o.Version = j, j.Logger(), "1.2.3"
	return j, &log
}

// archived returns the files below erase/ of the log archive.
func archived(t *testing.T, j *journal.Journal) map[string]string {
	t.Helper()
	data, err := j.Archive(t.Context(), sysfs.Root{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for name, text := range testenv.Untar(t, data) {
		if strings.HasPrefix(name, "erase/") {
			files[name] = text
		}
	}
	return files
}

func parsed(t *testing.T, text string) evidence.Evidence {
	t.Helper()
	e, err := evidence.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return e
}

// writeKey writes a private key to a new file.
func writeKey(t *testing.T, key ed25519.PrivateKey, mode os.FileMode) (name, secret string) {
	t.Helper()
	data, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: data})
	name = filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(name, text, mode); err != nil {
		t.Fatal(err)
	}
	return name, strings.Split(string(text), "\n")[1]
}

// withPassword returns the URL of a server with credentials.
func withPassword(server *httptest.Server) string {
	return strings.Replace(server.URL, "//", "//me:hidden-password@", 1)
}

// The evidence of each disk is in the result, in the log archive, and posted: a disk that was erased, and one that the
// node protects.
func TestEvidence(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	protected := raidtest.PartitionedDisk(t, partition.TypeLinux)
	disk.Serial, protected.Serial = "S1/../x", "S2"
	m := onThisMachine(t, disk, protected)
	j, log := withJournal(m)
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
	file, secret := writeKey(t, key, 0o600)
	var posted []string
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" ||
			user != "me" || password != "hidden-password" {
			t.Errorf("got %s by %q, %q and %v", r.Method, user, password, err)
		}
		mu.Lock()
		posted = append(posted, string(body))
		mu.Unlock()
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	m.o.Config.Update(func(c *config.Config) {
		c.EraseEvidenceKey, c.HTTPRequestTimeout = file, time.Minute
		c.EraseEvidenceURL = withPassword(server)
	})
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": "S2"}]}, `+
		`"driver_internal_info": {"agent_erase_devices_iterations": 0}`)
	began := time.Now().Add(-time.Second)
	result, err := m.EraseDevices(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	files := archived(t, j)
	if len(files) != 2 || len(posted) != 2 {
		t.Fatalf("got files %v and %d posts, want two", files, len(posted))
	}
	erased := parsed(t, files["erase/S1_.._x.json"])
	r := erased.Record
	if r.Program != "ironroot 1.2.3" || r.Node != "u" || r.Disk.Path != disk.Path || r.Disk.Serial != disk.Serial ||
		r.Disk.Bytes != diskSize || r.Requested.Operation != "erase_devices" ||
		r.Requested.Options["random_passes"] != 0.0 || r.Outcome != evidence.Erased || r.Started.Before(began) ||
		r.Ended.Before(r.Started) || !key.Public().(ed25519.PublicKey).Equal(erased.Key) {
		t.Errorf("got %+v", r)
	}
	if len(r.Targets) != 1 || r.Targets[0].Technique != "overwrite" || len(r.Targets[0].Passes) != 1 ||
		r.Targets[0].ReadBack == nil || r.Targets[0].ReadBack.Zeros != diskSize {
		t.Errorf("got targets %+v, want one that was read back", r.Targets)
	}
	// A loop device is no drive.
	if s := r.Sanitization; s.Category != evidence.Clear ||
		!strings.Contains(strings.Join(s.Limits, " "), "not reached") {
		t.Errorf("got %+v, want clear of a virtual disk", s)
	}
	kept := parsed(t, files["erase/S2.json"]).Record
	if kept.Outcome != evidence.NotErased || !strings.Contains(kept.Reason, "named by skip_block_devices") ||
		kept.Sanitization.Category != evidence.None || len(kept.Targets) != 0 {
		t.Errorf("got %+v, want that it was not erased", kept)
	}
	for path, name := range map[string]string{disk.Path: "erase/S1_.._x.json", protected.Path: "erase/S2.json"} {
		data, err := json.Marshal(result.(map[string]any)[path])
		if err != nil {
			t.Fatal(err)
		}
		var report struct {
			Evidence struct {
				File     string          `json:"file"`
				Posted   bool            `json:"posted"`
				Evidence json.RawMessage `json:"evidence"`
			} `json:"evidence"`
		}
		if err := json.Unmarshal(data, &report); err != nil {
			t.Fatal(err)
		}
		if e := report.Evidence; e.File != name || !e.Posted || !slices.Contains(posted, files[name]) {
			t.Errorf("%s: got %+v, want the file and the post", path, report.Evidence)
		}
		if got := parsed(t, string(report.Evidence.Evidence)).Record.Disk.Path; got != path {
			t.Errorf("result of %s has the evidence of %s", path, got)
		}
	}
	if text := log.String(); strings.Contains(text, secret) || strings.Contains(text, "hidden-password") {
		t.Error("the log contains a secret")
	}
	if m.redact("x "+secret) != "x ***" {
		t.Error("the key is not redacted")
	}
}

// Later evidence of a disk does not replace earlier: an erase of the metadata claims no category.
func TestEvidenceOfMetadata(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	disk.Serial = ""
	m := onThisMachine(t, disk)
	j, _ := withJournal(m)
	for range 2 {
		if _, err := m.EraseMetadata(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	files := archived(t, j)
	for _, name := range []string{"erase/" + disk.Name + ".json", "erase/" + disk.Name + "-2.json"} {
		e := parsed(t, files[name])
		if r := e.Record; r.Outcome != evidence.Erased || r.Sanitization.Category != evidence.None ||
			r.Requested.Operation != "erase_devices_metadata" || r.Targets[0].ReadBack != nil ||
			!strings.Contains(r.Sanitization.Reason, "metadata") ||
			!strings.Contains(e.Unsigned, "no key is configured") {
			t.Errorf("%s: got %+v, %q, want no category, unsigned", name, r, e.Unsigned)
		}
	}
}

// The evidence of a failed erase says what is known: the error, and that nothing was begun with other disks.
func TestEvidenceOfFailure(t *testing.T) {
	for name, c := range map[string]struct {
		erase   func(context.Context) error
		outcome evidence.Outcome
		words   string
	}{
		"keeps data": {func(context.Context) error { return erase.ErrNotErased }, evidence.Failed, "still holds data"},
		"panic":      {func(context.Context) error { panic("oops") }, evidence.Failed, "oops"},
		"kernel hangs": {
			func(context.Context) error { <-t.Context().Done(); return nil },
			evidence.Failed, "still busy in the kernel",
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
			disk.Serial = "S1"
			m := onThisMachine(t, disk)
			j, _ := withJournal(m)
			if name == "kernel hangs" {
				fake(m).limits = func(block.Device) timelimit.Limits {
					return timelimit.Limits{NoProgress: 10 * time.Second}
				}
			}
			fake(m).erase = func(
				ctx context.Context, _ block.Device, _ erase.Options,
			) error {
				return c.erase(ctx)
			}
			if _, err := m.EraseDevices(t.Context(), nil); err == nil {
				t.Fatal("got no error")
			}
			r := parsed(t, archived(t, j)["erase/S1.json"]).Record
			if r.Outcome != c.outcome || !strings.Contains(r.Reason, c.words) ||
				r.Sanitization.Category != evidence.None || len(r.Targets) != 1 || r.Targets[0].Error == "" ||
				r.Targets[0].Technique != "" {
				t.Errorf("got %+v, want %q with %q", r, c.outcome, c.words)
			}
		})
	}
}

// The evidence of an erase that the kernel does not return from has what is known until then: here, that the disk was
// overwritten and read back.
func TestEvidenceOfStuckErase(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	disk.Serial = "S1"
	m := onThisMachine(t, disk)
	j, _ := withJournal(m)
	fake(m).limits = func(block.Device) timelimit.Limits { return timelimit.Limits{NoProgress: 10 * time.Second} }
	full := fake(m).thisMachine.Erase
	fake(m).erase = func(ctx context.Context, d block.Device, o erase.Options) error {
		err := full(ctx, d, o)
		<-t.Context().Done()
		return err
	}
	if _, err := m.EraseDevices(t.Context(), nil); err == nil {
		t.Fatal("got no error")
	}
	r := parsed(t, archived(t, j)["erase/S1.json"]).Record
	if r.Outcome != evidence.Failed || r.Sanitization.Category != evidence.None || len(r.Targets) != 1 {
		t.Fatalf("got %+v, want a failure with one target", r)
	}
	target := r.Targets[0]
	if len(target.Passes) != 2 || target.ReadBack == nil || target.ReadBack.Read != diskSize ||
		target.Technique != "" || !strings.Contains(target.Error, "had not ended") {
		t.Errorf("got %+v, want the passes, the read-back and no technique", target)
	}
}

// The clock can be set while a disk is erased. Evidence whose end is before its start would not be valid.
func TestEvidenceClockSet(t *testing.T) {
	m := onThisMachine(t)
	log := newResults(nodeWith(t, `"properties": {}`), fullErase, eraseFlags{})
	log.started = advanced(t, log.started)
	_, end := log.begin(block.Device{Path: "/dev/sda"}, block.Device{Path: "/dev/sda"})
	log.disks["/dev/sda"].targets[0].started = advanced(t, log.disks["/dev/sda"].targets[0].started)
	end(errors.New("failed"))
	log.fail(block.Device{Path: "/dev/sda"}, errors.New("failed"))
	log.add([]block.Device{{Path: "/dev/sdb"}})
	for _, r := range log.records(m, nil) {
		if r.Ended.Before(r.Started) {
			t.Errorf("%s: got %v to %v", r.Disk.Path, r.Started, r.Ended)
		}
		if _, err := evidence.Seal(r, nil, "no key", nil); err != nil {
			t.Error(err)
		}
	}
}

// advanced returns a time whose clock is one hour ahead, and whose monotonic reading is the same.
func advanced(t *testing.T, now time.Time) time.Time {
	t.Helper()
	ahead := now
	// The seconds are in bits 62 to 30 of the first word of a time with a monotonic reading.
	*(*uint64)(unsafe.Pointer(&ahead)) += 3600 << 30
	if ahead.Round(0).Sub(now.Round(0)) != time.Hour || ahead.Sub(now) != 0 {
		t.Fatalf("got %v for %v: time.Time has another form", ahead, now)
	}
	return ahead
}

// Other namespaces of a drive are part of the evidence.
func TestEvidenceUnreached(t *testing.T) {
	target := targetEvidence{started: time.Now(), ended: time.Now()}
	why, more := []string{"why"}, erase.Namespaces{Attached: []uint32{2}}
	for _, c := range []struct {
		report erase.Report
		want   string
	}{
		{erase.Report{}, ""},
		{erase.Report{Namespaces: more}, "the drive has namespace 2, too"},
		{erase.Report{Restrictions: why}, "why"},
		{erase.Report{Restrictions: why, Namespaces: more}, "why; the drive has namespace 2, too"},
	} {
		c.report.Technique = erase.Overwrite
		if got := target.newTarget(c.report).LimitText(); got != c.want {
			t.Errorf("%v: got detail %q, want %q", c.report, got, c.want)
		}
	}
}

// The target has the sectors that the drive hides.
func TestEvidenceHidden(t *testing.T) {
	target := targetEvidence{started: time.Now(), ended: time.Now()}
	hidden := &evidence.Hidden{NativeBytes: 512}
	if got := target.newTarget(erase.Report{Hidden: hidden}).Hidden; got != hidden {
		t.Errorf("got %+v, want %+v", got, hidden)
	}
}

// The firmware and the rotation rate in the evidence are those that the drive reported to the erase. The kernel takes a
// drive without a rotation rate for a hard disk: its enhanced erase is no purge.
func TestEvidenceOfDrive(t *testing.T) {
	disk := block.Device{
		Name: "none", Path: "/dev/none", Type: "disk", Transport: "sata", Model: "drive", Size: 8 << 20,
		LogicalSector: 512, Rotational: true,
	}
	var seed evidence.Seed
	offsets := evidence.SampleOffsets(disk.Size, seed)
	detection, read := evidence.PlanDetection(disk.Size, seed)
	for _, c := range []struct {
		noRate bool
		want   evidence.Category
		reason string
	}{
		{false, evidence.Purge, ""},
		{true, evidence.Clear, "the enhanced erase is a purge of hard disks only"},
	} {
		report := erase.Report{
			Technique: erase.ATAEnhanced, Firmware: "AB12CD34", NoRotationRate: c.noRate,
			Reported: []evidence.Statement{{Source: evidence.SourceATASecurity, Completed: true}},
			Samples: &evidence.Samples{
				Seed: seed.String(), Blocks: int64(len(offsets)), Bytes: evidence.SampleBytes, Written: true,
				Comparable: int64(len(offsets)), Detection: evidence.SampleDetection(disk.Size, offsets),
			},
			ReadBack: &evidence.ReadBack{
				Seed: seed.String(), Size: disk.Size, Read: read, Direct: true, Expected: evidence.ExpectUniform,
				Zeros: read, Detection: detection,
			},
		}
		log := newResults(nodeWith(t, `"properties": {}`), fullErase, eraseFlags{})
		_, end := log.begin(disk, disk)
		end(nil)
		log.record(disk, diskReport{Erased: map[string]erase.Report{disk.Path: report}})
		record := log.records(onThisMachine(t), nil)[0]
		record.Targets = nil
		log.disks[disk.Path].targets[0].addTo(&record, report) // as newRecord does with the recorder's report
		sealed, err := evidence.Seal(record, nil, "no key", nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := sealed.JSON()
		if err != nil {
			t.Fatal(err)
		}
		r := parsed(t, string(data)).Record
		if r.Disk.Firmware != "AB12CD34" || r.Disk.Rotational == c.noRate {
			t.Errorf("no rate %t: got firmware %q and rotational %t, want those of the report",
				c.noRate, r.Disk.Firmware, r.Disk.Rotational)
		}
		if s := r.Sanitization; s.Category != c.want || s.Reason != c.reason {
			t.Errorf("no rate %t: got %q, %q, want %q, %q", c.noRate, s.Category, s.Reason, c.want, c.reason)
		}
	}
}

// The evidence of a disk lasts from the start of its first target to the end of its last.
func TestEvidenceTimes(t *testing.T) {
	disk, second := block.Device{Path: "/dev/sda"}, block.Device{Path: "/dev/sda2"}
	log := newResults(nil, fullErase, eraseFlags{})
	for _, target := range []block.Device{disk, second} {
		_, end := log.begin(disk, target)
		end(nil)
	}
	begin := log.started.Add(time.Hour)
	for i, target := range log.disks[disk.Path].targets {
		target.started = begin.Add(time.Duration(i) * time.Hour)
		target.ended = target.started.Add(time.Minute)
	}
	r := log.records(onThisMachine(t), nil)[0]
	if want := begin.Add(time.Hour + time.Minute); !r.Started.Equal(begin) || !r.Ended.Equal(want) {
		t.Errorf("got %v to %v, want %v to %v", r.Started, r.Ended, begin, want)
	}
}

// A target without passes and statements has empty lists in JSON.
func TestEvidenceLists(t *testing.T) {
	target := targetEvidence{started: time.Now(), ended: time.Now()}
	text, err := json.Marshal(target.newTarget(erase.Report{}))
	if err != nil || !strings.Contains(string(text), `"passes":[],"reported":[]`) {
		t.Errorf("got %s and %v, want empty lists", text, err)
	}
}

// Evidence that cannot be created is reported, and the disk stays erased.
func TestEvidenceNotCreated(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	m := onThisMachine(t, disk)
	withJournal(m)
	fake(m).erase = func(_ context.Context, _ block.Device, o erase.Options) error {
		o.Recorder.Erased(erase.Overwrite)
		return nil
	}
	run, err := m.startDiskRun(t.Context(), nil, "disk not erased", fullErase)
	if err != nil {
		t.Fatal(err)
	}
	run.eraseAll(t.Context(), run.decideAll(t.Context()))
	run.results.options["random_passes"] = func() {} // JSON has no functions
	run.storeEvidence(t.Context(), nil)
	result, err := run.finish()
	if err != nil {
		t.Fatal(err)
	}
	report := result.(map[string]any)[disk.Path].(diskReport)
	if report.Evidence == nil || report.Evidence.Envelope != nil ||
		!strings.Contains(report.Evidence.Error, "not created: encode evidence") || len(report.Erased) != 1 {
		t.Errorf("got %+v with evidence %+v, want an erased disk and the error", report, report.Evidence)
	}
}

// A shared file system fails the step before anything is erased, and the evidence of all disks says so.
func TestEvidenceOfProtectedDisk(t *testing.T) {
	shared := raidtest.PartitionedDisk(t, "37AFFC90-EF7D-4E96-91C3-2D7AE055B174")
	other := raidtest.PartitionedDisk(t, partition.TypeLinux)
	shared.Serial, other.Serial = "S1", "S2"
	m := onThisMachine(t, shared, other)
	j, _ := withJournal(m)
	if _, err := m.EraseDevices(t.Context(), nil); !errors.Is(err, erase.ErrProtected) {
		t.Fatalf("got %v, want ErrProtected", err)
	}
	files := archived(t, j)
	for _, name := range []string{"erase/S1.json", "erase/S2.json"} {
		if r := parsed(t, files[name]).Record; r.Outcome != evidence.NotErased || !strings.Contains(r.Reason, "GPFS") {
			t.Errorf("%s: got %+v, want that nothing was erased", name, r)
		}
	}
}

// Evidence that cannot be signed or posted is reported, and the disk stays erased.
func TestEvidenceIncomplete(t *testing.T) {
	attempts := 0
	status := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		attempts++
		w.Header().Set("Location", "/hidden-password")
		w.WriteHeader(status)
	}))
	defer server.Close()
	unreachable := httptest.NewServer(nil)
	unreachable.Close()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	for _, c := range []struct {
		name     string
		url      string
		status   int
		mode     os.FileMode
		attempts int
		words    string // of the result
		unsigned string
	}{
		{"busy", server.URL, http.StatusServiceUnavailable, 0o600, 3, "503", ""},
		{"rejected", server.URL, http.StatusForbidden, 0o600, 1, "403", ""},
		{"redirect", withPassword(server), http.StatusFound, 0o600, 1, "302 Found, a redirect to http://127.0.0.1", ""},
		{"unreachable", withPassword(unreachable), 0, 0o600, 0, "attempt 3", ""},
		{"no URL", "://", 0, 0o600, 0, "not a valid URL", ""},
		{"password in a wrong URL", "http://me:hidden-password/x@h/", 0, 0o600, 0, "not a valid URL", ""},
		{"not posted", "", 0, 0o644, 0, "", "others have access"},
	} {
		t.Run(c.name, func(t *testing.T) {
			attempts, status = 0, c.status
			disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
			disk.Serial = "S1"
			m := onThisMachine(t, disk)
			m.postPause = time.Millisecond
			j, log := withJournal(m)
			file, _ := writeKey(t, key, c.mode)
			m.o.Config.Update(func(o *config.Config) {
				o.EraseEvidenceURL, o.EraseEvidenceKey, o.HTTPRequestTimeout = c.url, file, time.Minute
			})
			result, err := m.EraseMetadata(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			report := result.(map[string]any)[disk.Path].(diskReport).Evidence
			if report == nil || report.Posted || !strings.Contains(report.Error, c.words) ||
				(report.Error == "") != (c.words == "") || attempts != c.attempts {
				t.Errorf("got %q after %d attempts, want %q after %d", report.Error, attempts, c.words, c.attempts)
			}
			if e := parsed(t, archived(t, j)["erase/S1.json"]); !strings.Contains(e.Unsigned, c.unsigned) ||
				(e.Key == nil) != (c.unsigned != "") {
				t.Errorf("got key %x, %q, want %q", e.Key, e.Unsigned, c.unsigned)
			}
			if strings.Contains(log.String()+report.Error, "hidden-password") {
				t.Error("the log or the result contains the password")
			}
		})
	}
}

// Invalid TLS settings and the time limit of all posts are errors of evidence that is not posted.
func TestEvidenceNotPosted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	m := onThisMachine(t)
	m.o.Config.Update(func(c *config.Config) { c.EraseEvidenceURL, c.HTTPRequestTimeout = server.URL, time.Minute })
	p := m.newPoster()
	defer p.close()
	p.end, p.pause = time.Now().Add(100*time.Millisecond), time.Hour
	if posted, err := p.post(t.Context(), nil); posted || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v and %v, want %v", posted, err, context.DeadlineExceeded)
	}
	m.o.Config.Update(func(c *config.Config) { c.CAFile = "/nonexistent/ca.pem" })
	if posted, err := m.newPoster().post(t.Context(), nil); posted || err == nil ||
		!strings.Contains(err.Error(), "ca.pem") {
		t.Errorf("got %v and %v, want an error for the authorities", posted, err)
	}
	if err := withoutURL(io.ErrUnexpectedEOF); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

// countingDialer connects to a server under any address.
type countingDialer struct {
	address string
	dials   int
}

func (d *countingDialer) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	d.dials++
	return (&net.Dialer{}).DialContext(ctx, network, d.address)
}

// The evidence of all disks is posted over one connection, which is closed at the end. The option Dialer makes it.
func TestEvidenceConnection(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, maxPostReply-1))
	}))
	connections := imagetest.CountConnections(server)
	server.Start()
	defer server.Close()
	m := onThisMachine(t,
		raidtest.PartitionedDisk(t, partition.TypeLinux), raidtest.PartitionedDisk(t, partition.TypeLinux))
	withJournal(m)
	dialer := &countingDialer{address: server.Listener.Addr().String()}
	m.o.Dialer = dialer
	m.o.Config.Update(func(c *config.Config) {
		c.EraseEvidenceURL, c.HTTPRequestTimeout = "http://evidence.example/", time.Minute
	})
	result, err := m.EraseMetadata(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, report := range result.(map[string]any) {
		if e := report.(diskReport).Evidence; e == nil || !e.Posted {
			t.Errorf("%s: got %+v, want posted evidence", path, e)
		}
	}
	if dialer.dials != 1 {
		t.Errorf("got %d connections, want 1", dialer.dials)
	}
	connections.AwaitClosed(t, "evidence")
}

// The outcome of a disk and its reason say what is known: an error before the erase began, parts that were left, or
// nothing.
func TestEvidenceOutcomes(t *testing.T) {
	d := block.Device{Path: "/dev/sda"}
	erased := map[string]erase.Report{"/dev/sda1": {Technique: erase.Overwrite}}
	left := map[string]string{"/dev/sda2": "protected"}
	for name, c := range map[string]struct {
		err     error
		report  diskReport
		outcome evidence.Outcome
		reason  string
	}{
		"failed before": {
			errors.New("broken"), diskReport{Untouched: left}, evidence.NotErased, "broken; /dev/sda2: protected",
		},
		"partial": {nil, diskReport{Erased: erased, Untouched: left}, evidence.Partial, "/dev/sda2: protected"},
		"erased":  {nil, diskReport{Erased: erased}, evidence.Erased, ""},
		"left":    {nil, diskReport{Untouched: left}, evidence.NotErased, "/dev/sda2: protected"},
		"nothing": {nil, diskReport{}, evidence.NotErased, "the step ended before the disk's turn"},
	} {
		log := newResults(nil, fullErase, eraseFlags{})
		log.add([]block.Device{d})
		log.record(d, c.report)
		if c.err != nil {
			log.fail(d, c.err)
		}
		if r := log.records(onThisMachine(t), nil)[0]; r.Outcome != c.outcome || r.Reason != c.reason {
			t.Errorf("%s: got %q because of %q, want %q because of %q", name, r.Outcome, r.Reason, c.outcome, c.reason)
		}
	}
}

// The file of a disk is named by its serial number, otherwise by its world wide name or kernel name.
func TestEvidenceNames(t *testing.T) {
	for want, d := range map[string]evidence.Disk{
		"erase/S1.json":   {Serial: " S1 ", WWN: "0x5", Path: "/dev/sda"},
		"erase/0x5.json":  {Serial: " . ", WWN: "0x5", Path: "/dev/sda"},
		"erase/sda.json":  {WWN: "..", Path: "/dev/sda"},
		"erase/a_-.json":  {Serial: "a/-"},
		"erase/zZ09.json": {Serial: "zZ09"},
	} {
		if got := evidenceName(d); got != want {
			t.Errorf("%+v: got %s, want %s", d, got, want)
		}
	}
}

// Without a journal, evidence is not stored, which is reported.
func TestEvidenceWithoutJournal(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	result, err := onThisMachine(t, disk).EraseMetadata(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	e := result.(map[string]any)[disk.Path].(diskReport).Evidence
	if e == nil || e.Envelope == nil || e.File != "" || e.Error != "not stored in the log archive: no journal" {
		t.Errorf("got %+v, want evidence that was not stored", e)
	}
}
