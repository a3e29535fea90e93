package status

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"ironroot/agent/advice"
	"ironroot/agent/fault"
)

// Job describes a command that does long work: one that executes a step, or one with a Tracker.
type Job struct {
	Name    string // of the step, or of the command without its extension
	Started time.Time
	Ended   time.Time // zero = it is running
	Failure string    // "" = none
	Results []string  // what it has done so far
	Planned Planned
	Work    []Progress // of its trackers, by device
}

// Planned is the progress of work on several devices as a whole.
type Planned struct {
	Devices     int     // 0 = nothing was planned
	Waiting     int     // devices that are neither worked on nor finished
	Done, Total float64 // sizes, without the devices that were left untouched
	Rate        float64 // of Done per second, 0 = unknown
	Finished    map[Outcome]int
}

// Item is a device of a plan. Size is its part of the work: bytes to write, or 1 for each device if the work does not
// depend on the device's size.
type Item struct {
	Device string
	Size   int64
}

// Outcome is the result of a command on a device of its plan.
type Outcome string

// The outcomes. The text completes "3 disks".
const (
	Erased         Outcome = "erased"
	PartlyErased   Outcome = "partly erased"
	MetadataErased Outcome = "with metadata erased"
	Tested         Outcome = "tested"
	Untouched      Outcome = "left untouched"
	Failed         Outcome = "failed"
)

// outcomes lists all outcomes in the order in which they are shown.
var outcomes = []Outcome{Erased, PartlyErased, MetadataErased, Tested, Untouched, Failed}

// job is the state of a Job. The board's lock guards it.
type job struct {
	Job

	command int // its number
	items   []*item
	parts   map[string]*part // by device of their trackers
}

// item is a device of the plan.
type item struct {
	Item

	outcome Outcome // "" until it is finished
	parts   []*part
}

// done returns how much of the item's size is done.
func (i *item) done() float64 {
	if i.outcome != "" && i.outcome != Failed && i.outcome != Untouched {
		return float64(i.Size)
	}
	done := 0.0
	for _, p := range i.parts {
		done += p.done
	}
	return min(done, float64(i.Size))
}

// part is the work on a device or a partition of it.
type part struct {
	item    *item
	size    float64
	done    float64
	tracker *tracker // the latest one
	attempt int      // of the tracker, or of several trackers if the later ones began again
	begun   int      // attempts that were given up because a tracker began again
}

// newJob starts the job of the latest command. The caller holds the lock.
func (b *Board) newJob(name string) {
	b.job = &job{Job: Job{Name: name, Started: time.Now()}, command: b.command, parts: map[string]*part{}}
}

// beginWork returns the number of the running command, 0 if none runs. The command then has a job.
func (b *Board) beginWork() int {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.command == 0 || !b.state.Command.Ended.IsZero() {
		return 0
	}
	if b.job == nil || b.job.command != b.command {
		name := b.state.Command.Name
		b.newJob(name[strings.LastIndex(name, ".")+1:])
	}
	return b.command
}

// endJob ends the job of the latest command, if it has one. The caller holds the lock.
func (b *Board) endJob(err error) {
	if b.job == nil || b.job.command != b.command {
		return
	}
	if b.job.Ended = time.Now(); err != nil {
		b.job.Failure = cmp.Or(b.line(failureText(err)), "unknown error")
	}
}

// failureText describes the error of a command, without the fixed text of its type: the line about it is short.
func failureText(err error) string {
	if request := (*url.Error)(nil); errors.As(err, &request) {
		return advice.Brief(err)
	}
	return cmp.Or(fault.From(err).Details, err.Error())
}

// addResult adds to the results of a command. The caller holds the lock.
func (b *Board) addResult(command int, result string) {
	if result != "" && b.job != nil && b.job.command == command {
		b.job.Results = append(b.job.Results, b.line(result))
	}
}

// Plan is the plan of a command. Methods of a nil Plan do nothing.
type Plan struct {
	board   *Board
	command int
}

// Plan announces the devices that the running command works on, before it begins with the first. The progress of
// trackers for these devices then counts for the command as a whole.
func (b *Board) Plan(items []Item) *Plan {
	command := b.beginWork()
	if command == 0 {
		return nil
	}
	b.change()
	defer b.commit()
	for _, i := range items {
		i := &item{Item: i}
		b.job.items = append(b.job.items, i)
		b.job.addPart(i, i.Device, i.Size)
	}
	return &Plan{b, command}
}

func (j *job) addPart(i *item, device string, size int64) {
	p := &part{item: i, size: float64(size)}
	i.parts = append(i.parts, p)
	j.parts[device] = p
}

// item calls change for an item of the plan, unless another command runs by now.
func (p *Plan) item(device string, change func(*job, *item)) {
	if p == nil {
		return
	}
	p.board.change()
	defer p.board.commit()
	j := p.board.job
	if j.command != p.command {
		return
	}
	if i := slices.IndexFunc(j.items, func(i *item) bool { return i.Device == device }); i >= 0 {
		change(j, j.items[i])
	}
}

// Split declares the parts of a device, with their sizes by device path. By default it has one, with its own path.
func (p *Plan) Split(device string, parts []Item) {
	p.item(device, func(j *job, i *item) {
		delete(j.parts, device)
		i.parts = nil
		for _, part := range parts {
			j.addPart(i, part.Device, part.Size)
		}
	})
}

// Finish records what was done to a device.
func (p *Plan) Finish(device string, o Outcome) {
	p.item(device, func(_ *job, i *item) { i.outcome = o })
}

// count adds the progress of a tracker to its part of the plan. Within an attempt it never falls. The caller holds the
// locks of the board and of the tracker.
func (b *Board) count(t *tracker) {
	if b.job == nil || b.job.command != t.command || t.p.Aside {
		return
	}
	p := b.job.parts[t.p.Device]
	written, known := t.p.written()
	if p == nil || !known {
		return
	}
	done := written * p.size
	again := p.tracker != nil && p.tracker != t && done < p.done
	if again {
		p.begun += max(p.attempt, 1)
		p.attempt = 0
	}
	if attempt := max(t.p.Attempt, 1); again || attempt > p.attempt {
		p.attempt, p.done = attempt, done
	}
	p.tracker, p.done = t, max(p.done, done)
}

// attempted returns the progress of work, with the number of its attempt if the work began again. The caller holds the
// lock.
func (b *Board) attempted(w work) Progress {
	if b.job != nil && b.job.command == w.tracker.command && !w.Aside {
		if p := b.job.parts[w.Device]; p != nil && p.begun > 0 {
			w.Attempt = p.begun + p.attempt
		}
	}
	return w.Progress
}

// describeJob returns a copy of the latest job. The caller holds the lock.
func (b *Board) describeJob() Job {
	if b.job == nil {
		return Job{}
	}
	j := b.job.Job
	j.Results = slices.Clone(j.Results)
	if !j.Ended.IsZero() {
		j.Planned = b.job.planned(nil)
		return j
	}
	active := map[*item]bool{}
	rate := 0.0
	for _, device := range slices.Sorted(maps.Keys(b.work)) {
		w := b.work[device]
		if w.tracker.command != b.job.command {
			continue
		}
		p := b.job.parts[device]
		if p != nil && p.item.outcome != "" {
			continue // the kernel is still busy with a device that was given up
		}
		if p != nil {
			active[p.item] = true
			if w.Total > 0 && !w.Aside {
				rate += float64(w.Rate) / float64(w.Total) * p.size
			}
		}
		j.Work = append(j.Work, b.attempted(w))
	}
	j.Planned = b.job.planned(active)
	j.Planned.Rate = rate
	return j
}

// planned summarizes the plan. active are the devices that are worked on.
func (j *job) planned(active map[*item]bool) Planned {
	p := Planned{Devices: len(j.items), Finished: map[Outcome]int{}}
	for _, i := range j.items {
		if i.outcome == Untouched {
			p.Finished[Untouched]++
			continue
		}
		p.Done, p.Total = p.Done+i.done(), p.Total+float64(i.Size)
		switch {
		case i.outcome != "":
			p.Finished[i.outcome]++
		case !active[i]:
			p.Waiting++
		}
	}
	return p
}
