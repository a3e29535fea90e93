package status

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"ironroot/agent/fault"
)

const (
	testMiB = 1 << 20
	testGiB = 1 << 30
)

// tracked starts a tracker that logs nothing.
func tracked(b *Board, what, device string) Tracker {
	return b.Track(slog.New(slog.DiscardHandler), what, device)
}

func trackedAside(b *Board, what, device string) Tracker {
	return b.TrackAside(slog.New(slog.DiscardHandler), what, device)
}

// after advances the clock of the bubble and sets the progress of a tracker.
func after(d time.Duration, t Tracker, done, total int64) {
	time.Sleep(d)
	t.Set(done, total)
}

func beginErase(b *Board, items ...Item) *Plan {
	b.Begin("clean.execute_clean_step", "erase_devices")
	return b.Plan(items)
}

// twelve is a plan of twelve disks of 1 GiB.
func twelve() (items []Item) {
	for i := range 12 {
		items = append(items, Item{fmt.Sprintf("/dev/sd%c", 'a'+i), testGiB})
	}
	return items
}

var summaries = []struct {
	name string
	do   func(b *Board)
	want string
}{
	{"before the first command", func(*Board) {}, noStep},
	{"work outside of commands", func(b *Board) {
		tracked(b, "running benchmarks", "machine").Set(1, 2)
	}, noStep},
	{"a command without work", func(b *Board) { b.Begin("clean.get_clean_steps", "") }, noStep},
	{"a step", func(b *Board) { b.Begin("clean.execute_clean_step", "erase_pstore") }, "erase_pstore: running"},
	{"a step that has ended", func(b *Board) {
		b.Begin("clean.execute_clean_step", "erase_pstore")
		time.Sleep(1234 * time.Millisecond)
		b.End(nil)
	}, "erase_pstore: done in 1.2s"},
	{"an image", func(b *Board) {
		b.Begin("deploy.execute_deploy_step", "write_image")
		w := tracked(b, "writing image", "/dev/sda")
		w.SetPhase("connect", 1, 0, 0)
		time.Sleep(10 * time.Second)
		w.SetUnwritten(100 * testMiB)
		w.SetPhase("transfer", 1, 1000*testMiB, 2000*testMiB)
	}, "write_image: 45%, writing image to /dev/sda, 100.0 MiB/s, 10s left"},
	{"an image that was just requested", func(b *Board) {
		b.Begin("standby.prepare_image", "")
		tracked(b, "writing image", "/dev/sda").SetPhase("connect", 1, 0, 0)
	}, "prepare_image: writing image to /dev/sda, connect"},
	{"a second attempt", func(b *Board) {
		b.Begin("deploy.execute_deploy_step", "write_image")
		w := tracked(b, "writing image", "/dev/sda")
		w.SetPhase("transfer", 1, 90*testMiB, 100*testMiB)
		w.SetPhase("connect", 2, 0, 100*testMiB)
		time.Sleep(time.Second)
		w.SetPhase("transfer", 2, 20*testMiB, 100*testMiB)
	}, "write_image: 20%, writing image to /dev/sda, 20.0 MiB/s, 4s left, attempt 2"},
	{"an image of unknown length", func(b *Board) {
		b.Begin("deploy.execute_deploy_step", "write_image")
		after(2*time.Second, tracked(b, "writing image", "/dev/sda"), 30*testMiB, 0)
	}, "write_image: writing image to /dev/sda, 15.0 MiB/s"},
	{"after the image", func(b *Board) {
		b.Begin("deploy.execute_deploy_step", "write_image")
		tracked(b, "writing image", "/dev/sda").EndWith("image of 2.0 GiB written to /dev/sda in 43s (47.6 MiB/s)")
	}, "write_image: 100%, image of 2.0 GiB written to /dev/sda in 43s (47.6 MiB/s)"},
	{"an image that was written", func(b *Board) {
		b.Begin("deploy.execute_deploy_step", "write_image")
		tracked(b, "writing image", "/dev/sda").EndWith("image of 2.0 GiB written to /dev/sda in 43s (47.6 MiB/s)")
		b.End(nil)
		b.Begin("standby.get_partition_uuids", "")
		b.End(nil)
		b.Begin("standby.power_off", "")
	}, "write_image: done, image of 2.0 GiB written to /dev/sda in 43s (47.6 MiB/s)"},
	{"an image that was not written", func(b *Board) {
		b.Begin("deploy.execute_deploy_step", "write_image")
		tracked(b, "writing image", "/dev/sda").End()
		b.End(errors.New("checksum\nof hunter2 differs"))
	}, "write_image: failed: checksum of *** differs"},
	{"an erase that has failed", func(b *Board) {
		beginErase(b, twelve()...)
		b.End(fault.BlockDeviceErase("erased: none; not erased: /dev/sda: device busy"))
	}, "erase_devices: failed: erased: none; not erased: /dev/sda: device busy"},
	{"an error without a text", func(b *Board) {
		b.Begin("clean.execute_clean_step", "erase_pstore")
		b.End(errors.New("\n"))
	}, "erase_pstore: failed: unknown error"},
	{"a download that has failed", func(b *Board) {
		b.Begin("deploy.execute_deploy_step", "write_image")
		refused := &url.Error{Op: "Get", URL: "http://server/path", Err: errors.New("refused")}
		b.End(fault.ImageWrite("/dev/sda", refused))
	}, "write_image: failed: server: refused"},
	{"the next step", func(b *Board) {
		beginErase(b, twelve()...).Finish("/dev/sda", Erased)
		b.End(nil)
		b.Begin("clean.execute_clean_step", "erase_pstore")
	}, "erase_pstore: running"},
	{"one disk", func(b *Board) {
		beginErase(b, Item{"/dev/sda", testGiB})
		after(5*time.Second, tracked(b, "erasing disk", "/dev/sda"), testGiB, 2*testGiB)
	}, "erase_devices: 50%, erasing disk /dev/sda, 204.8 MiB/s, 5s left"},
	{"one disk that is read back", func(b *Board) {
		beginErase(b, Item{"/dev/sda", testGiB})
		w := tracked(b, "erasing disk", "/dev/sda")
		w.Set(2*testGiB, 2*testGiB)
		w.End()
		r := trackedAside(b, "reading disk back", "/dev/sda")
		r.Set(0, 64*testMiB)
		after(3*time.Second, r, 12*testMiB, 64*testMiB)
	}, "erase_devices: 100%, reading disk back /dev/sda, 12.0 MiB of 64.0 MiB, 4.0 MiB/s, 13s left"},
	{"a drive that erases itself", func(b *Board) {
		beginErase(b, Item{"/dev/sda", testGiB})
		w, percent := tracked(b, "drive erasing itself", "/dev/sda"), 25.0
		time.Sleep(time.Hour)
		w.SetPercent("1h0m0s of about 4h0m0s, the drive's estimate", &percent)
	}, "erase_devices: 25%, drive erasing itself /dev/sda, 1h0m0s of about 4h0m0s, the drive's estimate, 3h0m left"},
	{"a disk that sanitizes itself before the step", func(b *Board) {
		b.Begin("clean.execute_clean_step", "erase_devices")
		w := trackedAside(b, "waiting for disk to sanitize itself", "/dev/sda")
		w.Set(0, testGiB)
		after(time.Minute, w, testGiB/4, testGiB)
	}, "erase_devices: waiting for disk to sanitize itself /dev/sda, 256.0 MiB of 1.0 GiB, 4.3 MiB/s, 3m0s left"},
	{"an overwrite after a secure erase that failed", func(b *Board) {
		beginErase(b, Item{"/dev/sda", testGiB})
		w, percent := tracked(b, "drive erasing itself", "/dev/sda"), 60.0
		time.Sleep(time.Second)
		w.SetPercent("", &percent)
		w.End()
		w = tracked(b, "erasing disk", "/dev/sda")
		w.Set(0, testGiB)
		after(time.Second, w, testGiB/10, testGiB)
	}, "erase_devices: 9%, erasing disk /dev/sda, 102.4 MiB/s, 9s left, attempt 2"},
	{"several disks", func(b *Board) {
		p := beginErase(b, twelve()...)
		p.Finish("/dev/sda", Erased)
		p.Finish("/dev/sdb", Failed)
		p.Finish("/dev/sdc", Untouched)
		d, e, f := tracked(b, "erasing disk", "/dev/sdd"), tracked(b, "erasing disk", "/dev/sde"),
			tracked(b, "erasing disk", "/dev/sdf")
		time.Sleep(2 * time.Second)
		d.Set(testGiB/2, testGiB)
		e.Set(testGiB/4, testGiB)
		f.Set(testGiB, testGiB)
		f.End()
		trackedAside(b, "reading disk back", "/dev/sdf").Set(0, 64*testMiB)
		time.Sleep(time.Second)
		d.Set(testGiB/2, testGiB)
	}, "erase_devices: 25%, 1 of 11 disks done, 1 failed, 320.0 MiB/s, 26s left: /dev/sdd 50%, /dev/sde 25%, " +
		"/dev/sdf reading disk back 0 bytes of 64.0 MiB; 6 waiting"},
	{"more disks than fit", func(b *Board) {
		beginErase(b, twelve()...)
		for _, i := range twelve() {
			after(2*time.Second, tracked(b, "erasing disk", i.Device), testGiB/2, testGiB)
		}
	}, "erase_devices: 50%, 0 of 12 disks done, 3.0 GiB/s, 2s left: /dev/sda 50%, /dev/sdb 50%, /dev/sdc 50%, " +
		"/dev/sdd 50%, /dev/sde 50%, /dev/sdf 50%, /dev/sdg 50%, /dev/sdh 50%, /dev/sdi 50%, " +
		"/dev/sdj 50%, and 2 more"},
	{"disks that are erased", func(b *Board) {
		p := beginErase(b, twelve()[:4]...)
		p.Finish("/dev/sda", Erased)
		p.Finish("/dev/sdb", Erased)
		p.Finish("/dev/sdc", MetadataErased)
		p.Finish("/dev/sdd", Untouched)
		time.Sleep(2*time.Hour + 3*time.Minute + 4*time.Second)
		b.End(nil)
	}, "erase_devices: done, 2 disks erased, 1 disk with metadata erased, 1 disk left untouched in 2h3m"},
	{"all disks are done, the command is not", func(b *Board) {
		p := beginErase(b, twelve()[:2]...)
		p.Finish("/dev/sda", Erased)
		p.Finish("/dev/sdb", Failed)
	}, ""},
	{"parts of a disk", func(b *Board) {
		p := beginErase(b, Item{"/dev/sda", 4 * testGiB})
		p.Split("/dev/sda", []Item{{"/dev/sda1", testGiB}, {"/dev/sda2", 0}, {"/dev/sda", 2 * testGiB}})
		w := tracked(b, "erasing disk", "/dev/sda1")
		w.Set(testGiB, testGiB)
		w.End()
		w = tracked(b, "erasing disk", "/dev/sda2")
		w.Set(1, 1)
		w.End()
		after(time.Second, tracked(b, "erasing disk", "/dev/sda"), testGiB/2, testGiB)
	}, "erase_devices: 50%, erasing disk /dev/sda, 512.0 MiB/s, 1s left"},
	{"a disk that the kernel does not release", func(b *Board) {
		p := beginErase(b, twelve()[:2]...)
		after(2*time.Second, tracked(b, "erasing disk", "/dev/sda"), testGiB/2, testGiB)
		p.Finish("/dev/sda", Failed)
	}, "erase_devices: 25%, 0 of 2 disks done, 1 failed; 1 waiting"},
	{"work and a plan of an earlier command", func(b *Board) {
		p := beginErase(b, twelve()...)
		w := tracked(b, "erasing disk", "/dev/sda")
		b.End(errors.New("aborted"))
		b.Begin("clean.execute_clean_step", "erase_devices_metadata")
		p.Finish("/dev/sdb", Erased)
		w.EndWith("nothing")
	}, "erase_devices_metadata: running"},
	{"several trackers without a plan", func(b *Board) {
		b.Begin("clean.execute_clean_step", "update")
		tracked(b, "hardware manager", "acme").SetPercent("writing", nil)
		tracked(b, "hardware manager", "other")
	}, "update: hardware manager acme writing, hardware manager other"},
}

// Parity: T12 (text)
func TestSummary(t *testing.T) {
	for _, c := range summaries {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBoard("1", hunter2)
				c.do(b)
				if got := b.Summary(); got != c.want {
					t.Errorf("got\n%s\nwant\n%s", got, c.want)
				}
			})
		})
	}
	var none *Board
	none.Plan(twelve()).Finish("/dev/sda", Erased)
	none.Track(slog.New(slog.DiscardHandler), "writing image", "/dev/sda").EndWith("written")
	if got := none.Summary(); got != "" {
		t.Errorf("without a board: got %q, want nothing", got)
	}
}

// A summary has the latest progress, also between two updates of the screen, and does not wait for a tracker whose log
// cannot be written.
func TestSummaryIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard("1", nil)
		beginErase(b, twelve()[:2]...)
		w := tracked(b, "erasing disk", "/dev/sda").(*tracker)
		changed := b.Changed()
		w.Set(testGiB/2, testGiB)
		const want = "erase_devices: 25%, 0 of 2 disks done: /dev/sda 50%; 1 waiting"
		if got := b.Summary(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		select {
		case <-changed:
			t.Error("the summary changed the board")
		default:
		}
		w.mu.Lock()
		if got := b.Summary(); got != want {
			t.Errorf("with a busy tracker: got %q, want %q", got, want)
		}
		w.mu.Unlock()
	})
}

// A secret that became known after the text was stored is not sent.
func TestSummaryHidesLateSecrets(t *testing.T) {
	secret := ""
	b := NewBoard("1", cleaning(func(text string) string {
		if secret == "" {
			return text
		}
		return strings.ReplaceAll(text, secret, "***")
	}))
	b.Begin("deploy.execute_deploy_step", "write_image")
	// The limit of the text's length is within the secret.
	b.End(errors.New(strings.Repeat("x", maxSummary-len("write_image: failed: ")-5) + "hunter2-hunter2"))
	secret = "hunter2-hunter2"
	if got := b.Summary(); strings.Contains(got, "hu") || !strings.Contains(got, "***") {
		t.Errorf("got %q, want the secret masked", got)
	}
}

var leading = regexp.MustCompile(`^erase_devices: (\d+)%, `)

// simulation is an erase of several disks, some of them at a time.
type simulation struct {
	board   *Board
	plan    *Plan
	disks   []*simulated
	passes  int64
	written int64
	total   int64
}

// simulated is a disk of a simulation.
type simulated struct {
	Item

	done    int64 // bytes of all passes
	tracker Tracker
	ended   bool
}

func newSimulation(r *rand.Rand) *simulation {
	s := &simulation{board: NewBoard("1", nil), passes: 1 + r.Int64N(3)}
	var items []Item
	for i := range 2 + r.IntN(7) {
		size := int64(testMiB) << r.IntN(14)
		items = append(items, Item{fmt.Sprintf("/dev/disk%d", i), size})
		s.disks = append(s.disks, &simulated{Item: items[i]})
		s.total += size * s.passes
	}
	s.plan = beginErase(s.board, items...)
	return s
}

// step lets one of the disks that are worked on make progress.
func (s *simulation) step(r *rand.Rand, concurrency int) {
	var active []*simulated
	for _, d := range s.disks {
		if !d.ended && len(active) < concurrency {
			active = append(active, d)
		}
	}
	d, all := active[r.IntN(len(active))], int64(0)
	all = d.Size * s.passes
	time.Sleep(time.Second)
	switch {
	case d.tracker == nil:
		d.tracker = tracked(s.board, "erasing disk", d.Device)
		d.tracker.Set(0, all)
	case d.done < all:
		n := min(1+r.Int64N(all/4+1), all-d.done)
		d.done, s.written = d.done+n, s.written+n
		d.tracker.Set(d.done, all)
	case r.IntN(2) == 0:
		d.tracker.End()
		d.tracker = trackedAside(s.board, "reading disk back", d.Device)
		d.tracker.Set(r.Int64N(testMiB), testMiB)
	default:
		d.tracker.End()
		d.ended = true
		s.plan.Finish(d.Device, Erased)
	}
}

// The percentage of an erase of any disks with any concurrency never falls, is within 5 points of the bytes that were
// written, and is 100 only if all are.
//
// Parity: T12 (percentage of several disks)
func TestPercentageGrows(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s, concurrency, last := newSimulation(r), 1+r.IntN(4), 0
			for s.disks[len(s.disks)-1].done == 0 || s.written < s.total {
				s.step(r, concurrency)
				text := s.board.Summary()
				m := leading.FindStringSubmatch(text)
				if m == nil {
					t.Fatalf("seed %d: got %q, want a percentage", seed, text)
				}
				percent, _ := strconv.Atoi(m[1])
				if percent < last {
					t.Fatalf("seed %d: got %q after %d%%", seed, text, last)
				}
				last = percent
				if written := int(s.written * 100 / s.total); percent > written || percent < written-5 {
					t.Fatalf("seed %d: got %q, want %d%%", seed, text, written)
				}
			}
			if last != 100 {
				t.Errorf("seed %d: got %d%% at the end, want 100%%", seed, last)
			}
		})
	}
}

// A summary is one short, printable line without secrets, whatever the parts are called.
func FuzzSummary(f *testing.F) {
	f.Add("write_image", "writing image", "/dev/sda", "transfer", "checksum differs", int64(1), int64(2))
	f.Add("x\n", "\x1b[2J", "\xff", strings.Repeat("ö", 700), "hunter2", int64(-1), int64(1<<62))
	f.Fuzz(func(t *testing.T, step, what, device, phase, failure string, done, total int64) {
		b := NewBoard("1", hunter2)
		check := func() {
			text := b.Summary()
			if len([]rune(text)) > maxSummary || strings.ContainsFunc(text, unicode.IsControl) ||
				strings.Contains(text, "hunter2") {
				t.Errorf("got %q, want one line of %d characters without the secret", text, maxSummary)
			}
		}
		b.Begin("clean.execute_clean_step", step)
		p := b.Plan([]Item{{device, max(total, 0)}, {"/dev/sdb", max(done, 0)}})
		w := tracked(b, what, device)
		w.SetPhase(phase, int(done%100), done, total)
		check()
		p.Finish(device, Failed)
		w.EndWith(phase)
		check()
		b.End(errors.New(failure))
		check()
	})
}

// hunter2 masks one password.
var hunter2 = cleaning(func(text string) string { return strings.ReplaceAll(text, "hunter2", "***") })
