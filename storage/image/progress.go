package image

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Phase names what a Write is doing.
type Phase string

// The phases of a Write, in order. A retry begins with PhaseConnect.
const (
	PhaseWaiting  Phase = "waiting"  // not begun
	PhaseConnect  Phase = "connect"  // request to the server
	PhasePrepare  Phase = "prepare"  // of a qcow2 image: read its tables, zero its holes
	PhaseTransfer Phase = "transfer" // bytes arrive and are written
	PhaseFinish   Phase = "finish"   // checksum, first MiB, flush
	PhaseDone     Phase = "done"
	PhaseFailed   Phase = "failed"
)

// Progress counts what a Write does. It is safe for concurrent use. The zero value is ready for use.
type Progress struct {
	read, total atomic.Int64
	readWritten atomic.Int64 // bytes of read whose content is on the device
	written     atomic.Int64
	attempt     atomic.Int64
	started     atomic.Int64 // Unix nanoseconds
	phase       atomic.Pointer[Phase]
}

// Snapshot is Progress at one moment.
type Snapshot struct {
	Phase   Phase
	Attempt int   // 1 for the first transfer
	Read    int64 // bytes of the source that have arrived in this attempt
	Total   int64 // bytes of the source, 0 if unknown
	Written int64 // bytes that were written to the device in this attempt
	// Unwritten is the number of bytes of Read whose content is not on the device yet, give or take a few MiB. At the
	// end of the source, it is at least 1 until the write has succeeded.
	Unwritten int64
	Elapsed   time.Duration // since Write began
}

// Percent returns the part of the source that has arrived, 0 to 100, and false if the length is unknown.
func (s Snapshot) Percent() (int, bool) {
	if s.Total <= 0 {
		return 0, false
	}
	return int(min(s.Read, s.Total) * 100 / s.Total), true
}

// String returns one line for a log or a console.
func (s Snapshot) String() string {
	const mib = 1 << 20
	text := fmt.Sprintf("%s: %d MiB", s.Phase, s.Read/mib)
	if percent, ok := s.Percent(); ok {
		text = fmt.Sprintf("%s: %d of %d MiB (%d %%)", s.Phase, s.Read/mib, s.Total/mib, percent)
	}
	if s.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", s.Attempt)
	}
	return text
}

// Snapshot returns the current state.
func (p *Progress) Snapshot() Snapshot {
	s := Snapshot{
		Phase: PhaseWaiting, Attempt: int(p.attempt.Load()),
		Read: p.read.Load(), Total: p.total.Load(), Written: p.written.Load(),
	}
	if phase := p.phase.Load(); phase != nil {
		s.Phase = *phase
	}
	if s.Phase != PhaseDone {
		s.Unwritten = max(s.Read-p.readWritten.Load(), 0)
		if s.Total > 0 && s.Read >= s.Total {
			s.Unwritten = max(s.Unwritten, 1)
		}
	}
	if started := p.started.Load(); started != 0 {
		s.Elapsed = time.Since(time.Unix(0, started))
	}
	return s
}

func (p *Progress) begin() {
	p.started.Store(time.Now().UnixNano())
	p.attempt.Store(0)
	p.restart(PhaseConnect)
}

// restart begins a new attempt.
func (p *Progress) restart(phase Phase) {
	p.attempt.Add(1)
	p.read.Store(0)
	p.written.Store(0)
	p.readWritten.Store(0)
	p.enter(phase)
}

func (p *Progress) enter(phase Phase) { p.phase.Store(&phase) }
