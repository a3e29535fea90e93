package status

import (
	"fmt"
	"strings"
	"time"
)

const (
	// maxSummary limits a summary, in characters.
	maxSummary = 250
	// maxActive limits the devices that a summary names, in characters.
	maxActive = 140
	// maxJobName limits the name of a job in a summary, in characters.
	maxJobName = 60
)

// noStep is the summary before the first step.
const noStep = "waiting for the first step"

// Summary describes the latest command that does long work in one line of at most 250 characters: what it is doing, or
// its result. Before the first it says so, which replaces the line of an earlier boot in Ironic. The line has the
// latest progress, also between two changes of the board. It begins with the name of the step. A percentage right after
// it is the command's as a whole:
//
//	write_image: 43%, writing image to /dev/sda, 112.3 MiB/s, 2m10s left
//	erase_devices: 43%, 3 of 12 disks done, 1.2 GiB/s, 2h3m left: /dev/sdd 80%, /dev/sde 12%; 7 waiting
//	write_image: done, image of 2.0 GiB written to /dev/sda in 43s (47.6 MiB/s)
//	erase_devices: failed: erased: none; not erased: /dev/sda: device busy
//
// Between the end of the last device and the end of the command it is "". If the command ends while Ironic handles a
// heartbeat, Ironic can keep that heartbeat's line instead of the result.
//
// Secrets that have become known since the parts of the line were stored are redacted, too.
func (b *Board) Summary() string {
	if b == nil {
		return ""
	}
	b.mu.Lock()
	var trackers []*tracker
	for _, w := range b.work {
		trackers = append(trackers, w.tracker)
	}
	b.mu.Unlock()
	for _, t := range trackers {
		t.refresh()
	}
	return cut(b.line(b.State().Job.summary()), maxSummary)
}

func (j *Job) summary() string {
	text := cut(j.Name, maxJobName) + ": "
	switch {
	case j.Name == "":
		return noStep
	case j.Ended.IsZero() && j.complete():
		return ""
	case j.Ended.IsZero():
		return text + j.running()
	case j.Failure != "":
		return text + "failed: " + j.Failure
	}
	return text + "done" + j.result()
}

// complete reports whether all planned devices are done and nothing is worked on.
func (j *Job) complete() bool {
	return j.Planned.Devices > 0 && j.Planned.ended() == j.Planned.Devices && len(j.Work) == 0
}

// ended returns the number of devices that have an outcome.
func (p *Planned) ended() int {
	count := 0
	for _, n := range p.Finished {
		count += n
	}
	return count
}

// result describes what a job has done, and how long it took.
func (j *Job) result() string {
	if len(j.Results) > 0 {
		return ", " + strings.Join(j.Results, ", ")
	}
	return j.Planned.finished() + " in " + duration(j.Ended.Sub(j.Started))
}

// finished lists the outcomes, as ", 3 disks erased, 1 disk failed".
func (p *Planned) finished() string {
	text := ""
	for _, o := range outcomes {
		if n := p.Finished[o]; n > 0 {
			text += fmt.Sprintf(", %s %s", disks(n), o)
		}
	}
	return text
}

// Percent returns the percentage of planned work, and false if nothing was planned. It is 100 only if everything is
// done.
func (p *Planned) Percent() (int, bool) {
	if p.Total <= 0 {
		return 0, false
	}
	return int(p.Done / p.Total * 100), true
}

// running describes what a job is doing.
func (j *Job) running() string {
	if j.Planned.Devices > 1 {
		return j.several()
	}
	percent, known := j.Planned.Percent()
	var words []string
	if len(j.Work) == 1 {
		p := &j.Work[0]
		if written, ok := p.written(); ok && !known && !p.Aside {
			percent, known = int(written*100), true
		}
		words = p.words()
	} else {
		for i := range j.Work {
			words = append(words, strings.Join(j.Work[i].words(), " "))
		}
	}
	if len(j.Work) == 0 && len(j.Results) > 0 {
		percent, known, words = 100, true, j.Results
	}
	if known {
		words = append([]string{fmt.Sprintf("%d%%", percent)}, words...)
	}
	if len(words) == 0 {
		return "running"
	}
	return strings.Join(words, ", ")
}

// several describes work on several devices.
func (j *Job) several() string {
	p := &j.Planned
	failed, untouched := p.Finished[Failed], p.Finished[Untouched]
	var words []string
	if percent, known := p.Percent(); known {
		words = append(words, fmt.Sprintf("%d%%", percent))
	}
	words = append(words, fmt.Sprintf("%d of %s done", p.ended()-failed-untouched, disks(p.Devices-untouched)))
	if failed > 0 {
		words = append(words, fmt.Sprintf("%d failed", failed))
	}
	if rate := j.rate(); rate > 0 {
		words = append(words, Rate(rate, time.Second))
	}
	if left, known := j.left(); known {
		words = append(words, duration(left)+" left")
	}
	text := strings.Join(words, ", ")
	if active := j.active(); active != "" {
		text += ": " + active
	}
	if p.Waiting > 0 {
		text += fmt.Sprintf("; %d waiting", p.Waiting)
	}
	return text
}

// active lists the devices that are worked on, and how many more there are.
func (j *Job) active() string {
	text := ""
	for i := range j.Work {
		word := j.Work[i].short()
		if len(text)+len(word) > maxActive && i > 0 {
			return fmt.Sprintf("%s, and %d more", text, len(j.Work)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += word
	}
	return text
}

// rate returns the bytes per second of all devices together, 0 if unknown.
func (j *Job) rate() (rate int64) {
	for _, p := range j.Work {
		if !p.Parts && !p.Aside {
			rate += p.Rate
		}
	}
	return rate
}

// left estimates the time until the planned work is done: by the rate of all devices together, but at least until the
// slowest device that is being worked on.
func (j *Job) left() (time.Duration, bool) {
	p := &j.Planned
	if p.Rate <= 0 {
		return 0, false
	}
	seconds := min((p.Total-p.Done)/p.Rate, maxLeft.Seconds())
	longest := time.Duration(seconds * float64(time.Second))
	for _, p := range j.Work {
		if left, known := p.Left(); known && !p.Aside {
			longest = max(longest, left)
		}
	}
	return longest, true
}

// maxLeft limits an estimated time, which a rate of almost nothing makes absurd.
const maxLeft = 1000 * time.Hour

// words describes work in detail, without its percentage.
func (p *Progress) words() []string {
	words := []string{p.title()}
	if p.Aside && p.Total > 0 {
		words = append(words, p.amount())
	}
	if p.Phase != "" && (p.Rate <= 0 || p.Parts) {
		words = append(words, p.Phase)
	}
	if p.Rate > 0 && !p.Parts {
		words = append(words, p.RateText())
	}
	if left, known := p.Left(); known {
		words = append(words, duration(left)+" left")
	}
	if p.Attempt > 1 {
		words = append(words, fmt.Sprintf("attempt %d", p.Attempt))
	}
	return words
}

// title names the work with its device: where an image goes to, otherwise what the work is about.
func (p *Progress) title() string {
	if strings.HasSuffix(p.What, " image") {
		return p.What + " to " + p.Device
	}
	return strings.TrimSpace(p.What + " " + p.Device)
}

// short describes one of several devices, with its percentage.
func (p *Progress) short() string {
	text := p.Device
	switch written, known := p.written(); {
	case p.Aside:
		text += " " + p.What
		if p.Total > 0 {
			text += " " + p.amount()
		}
	case known:
		text += fmt.Sprintf(" %d%%", int(written*100))
	case p.Phase != "":
		text += " " + p.Phase
	}
	if p.Attempt > 1 {
		text += fmt.Sprintf(" (attempt %d)", p.Attempt)
	}
	return text
}

// amount returns the bytes that are done and the total, as "12.0 MiB of 64.0 MiB".
func (p *Progress) amount() string { return Size(p.Done) + " of " + Size(p.Total) }

func disks(n int) string {
	if n == 1 {
		return "1 disk"
	}
	return fmt.Sprintf("%d disks", n)
}

// duration formats a time, without seconds from one hour on.
func duration(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
}

// cut shortens a text to a number of characters.
func cut(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-3]) + "..."
	}
	return text
}
