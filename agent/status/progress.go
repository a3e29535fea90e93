package status

import (
	"log/slog"
	"sync"
	"time"
)

// Progress is the progress of long work, as the screen and the log show it.
type Progress struct {
	What    string // "writing image"
	Device  string // "/dev/sda"
	Phase   string // of the work, "" if it has none
	Attempt int    // 0 and 1 are the first
	Done    int64  // bytes
	Total   int64  // bytes, 0 = unknown
	Rate    int64  // recent bytes per second, 0 = unknown
	// Unwritten is the number of bytes of Done that were received and are not on the device yet.
	Unwritten int64
	Parts     bool // Done, Total and Rate count parts of the work, not bytes
	Aside     bool // does not count for the progress of the command: waiting for a disk, reading it back
}

// Percent returns 0 to 100, and false while the total is unknown.
func (p *Progress) Percent() (int, bool) {
	if p.Total <= 0 {
		return 0, false
	}
	return int(float64(min(p.Done, p.Total)) / float64(p.Total) * 100), true
}

// written returns the part of the work whose bytes are on the device, 0 to 1, and false while the total is unknown.
func (p *Progress) written() (float64, bool) {
	if p.Total <= 0 {
		return 0, false
	}
	return float64(min(max(p.Done-p.Unwritten, 0), p.Total)) / float64(p.Total), true
}

// Left returns the estimated remaining time, and false if it is unknown.
func (p *Progress) Left() (time.Duration, bool) {
	if p.Total <= 0 || p.Rate <= 0 {
		return 0, false
	}
	seconds := float64(max(p.Total-p.Done, 0)) / float64(p.Rate)
	return time.Duration(seconds) * time.Second, true
}

// RateText returns the rate as a size per second, "-" if unknown.
func (p *Progress) RateText() string {
	if p.Rate <= 0 || p.Parts {
		return "-"
	}
	return Rate(p.Rate, time.Second)
}

// attrs returns the progress as attributes of a log line.
func (p *Progress) attrs() []any {
	attrs := []any{"device", p.Device}
	if p.Phase != "" {
		attrs = append(attrs, "phase", p.Phase)
	}
	if percent, known := p.Percent(); known {
		attrs = append(attrs, "percent", percent)
	}
	if !p.Parts {
		attrs = append(attrs, "MiB", p.Done>>20)
	}
	if p.Rate > 0 && !p.Parts {
		attrs = append(attrs, "rate", p.RateText())
	}
	if left, known := p.Left(); known {
		attrs = append(attrs, "left", left)
	}
	if p.Attempt > 1 {
		attrs = append(attrs, "attempt", p.Attempt)
	}
	return attrs
}

const (
	// A line is logged after logInterval if the progress is at least logPercent, ...
	logInterval = 5 * time.Second
	logPercent  = 5
	// ... and after maxLogInterval in any case, to show that slow work is running.
	maxLogInterval = time.Minute
	// boardInterval is the interval in which the board is updated.
	boardInterval = time.Second
)

// Tracker receives the progress of one operation at any rate. It is safe for concurrent use.
type Tracker interface {
	// Set sets the progress in bytes. An unknown total is 0.
	Set(done, total int64)
	// SetPhase is Set for work with phases and attempts. A new attempt resets the rate.
	SetPhase(phase string, attempt int, done, total int64)
	// SetPercent is Set for work whose size is not known in bytes. The message describes what it does, and can be
	// foreign text. The percentage is limited to 0 to 100; nil is unknown.
	SetPercent(message string, percent *float64)
	// SetUnwritten sets how many of the bytes of the next Set or SetPhase are not on the device yet.
	SetUnwritten(bytes int64)
	// End ends the work, whether it succeeded or not.
	End()
	// EndWith is End, and adds what the work has done to the result of the command, unless that is "".
	EndWith(result string)
}

// Trackers start trackers. *Board implements it, also a nil one.
type Trackers interface {
	// Track starts a Tracker for work on a device.
	Track(log *slog.Logger, what, device string) Tracker
	// TrackAside is Track for work that does not count for the progress of the command.
	TrackAside(log *slog.Logger, what, device string) Tracker
	// Plan announces the devices of the running command: see [Board.Plan].
	Plan(items []Item) *Plan
}

// tracker is the Tracker of a board. It updates the board and the log at a limited rate. It is safe
// for concurrent use.
type tracker struct {
	board   *Board
	log     *slog.Logger
	command int // the command that the work belongs to, see Board; 0 for none

	mu        sync.Mutex
	p         Progress
	shown     time.Time // last update of the board
	shownDone int64
	logged    time.Time
	percent   int // of the last log line
}

// Track implements [Trackers].
func (b *Board) Track(log *slog.Logger, what, device string) Tracker {
	return b.track(log, Progress{What: what, Device: device})
}

// TrackAside implements [Trackers].
func (b *Board) TrackAside(log *slog.Logger, what, device string) Tracker {
	return b.track(log, Progress{What: what, Device: device, Aside: true})
}

func (b *Board) track(log *slog.Logger, p Progress) *tracker {
	now := time.Now()
	t := &tracker{board: b, log: log, command: b.beginWork(), p: p, shown: now, logged: now}
	t.show()
	return t
}

// Set implements [Tracker].
func (t *tracker) Set(done, total int64) { t.SetPhase("", 0, done, total) }

// SetPhase implements [Tracker].
func (t *tracker) SetPhase(phase string, attempt int, done, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if attempt != t.p.Attempt || done < t.p.Done {
		t.p.Rate, t.shownDone, t.percent, t.shown = 0, 0, 0, now
	}
	t.p.Phase, t.p.Attempt, t.p.Done, t.p.Total = phase, attempt, done, total
	if since := now.Sub(t.shown); since >= boardInterval {
		fresh := int64(float64(done-t.shownDone) / since.Seconds())
		if t.p.Rate > 0 {
			fresh = (3*t.p.Rate + fresh) / 4 // smoothed, for readability
		}
		t.p.Rate, t.shown, t.shownDone = fresh, now, done
		t.show()
	}
	percent, _ := t.p.Percent()
	since := now.Sub(t.logged)
	if since >= maxLogInterval || since >= logInterval && (total <= 0 || percent >= t.percent+logPercent) {
		t.logged, t.percent = now, percent
		t.log.Info(t.p.What, t.p.attrs()...)
	}
}

// partsPerPercent is the number of parts that SetPercent counts: enough for the rate of work that takes a week.
const partsPerPercent = 1e7

// SetPercent implements [Tracker].
func (t *tracker) SetPercent(message string, percent *float64) {
	if t.board != nil {
		message = t.board.line(message)
	}
	var done, total int64
	if percent != nil {
		done, total = int64(min(max(*percent, 0), 100)*partsPerPercent), 100*partsPerPercent
	}
	t.mu.Lock()
	t.p.Parts = true
	t.mu.Unlock()
	t.SetPhase(message, 0, done, total)
}

// SetUnwritten implements [Tracker].
func (t *tracker) SetUnwritten(bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.Unwritten = bytes
}

// End implements [Tracker].
func (t *tracker) End() { t.EndWith("") }

// EndWith implements [Tracker].
func (t *tracker) EndWith(result string) {
	if t.board == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.board.change()
	defer t.board.commit()
	t.board.count(t)
	t.board.addResult(t.command, result)
	delete(t.board.work, t.p.Device)
}

// show updates the board. The caller holds the lock of a tracker that others know.
func (t *tracker) show() {
	if t.board == nil {
		return
	}
	t.board.change()
	defer t.board.commit()
	t.board.count(t)
	t.board.work[t.p.Device] = work{t.p, t}
}

// refresh stores the latest progress on the board, which is up to boardInterval old, and notifies nobody. If the
// tracker is busy, for example because its log cannot be written, the board keeps what it has.
func (t *tracker) refresh() {
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	t.board.mu.Lock()
	defer t.board.mu.Unlock()
	if t.board.work[t.p.Device].tracker == t {
		t.board.count(t)
		t.board.work[t.p.Device] = work{t.p, t}
	}
}
