package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vbauerster/mpb/v8"
)

// at returns a time that is some seconds after a fixed one.
func at(seconds int) time.Time {
	return time.Date(2026, 11, 27, 1, 2, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func TestNode(t *testing.T) {
	for name, c := range map[string]struct {
		node  Node
		label string
		text  string
		want  int // percentage, -1 for an unknown one
		rests bool
	}{
		"erase": {
			Node{
				UUID: "1", Name: "rack-1", State: "clean wait", Target: "available", Step: "erase_devices",
				Progress: "erase_devices: 43%, 3 of 12 disks done",
			}, "rack-1", "clean wait, erase_devices: 43%, 3 of 12 disks done", 43, false,
		},
		"line of the step before": {
			Node{
				UUID: "1", State: "clean wait", Target: "available", Step: "erase_pstore",
				Progress: "erase_devices: done, 3 disks erased in 2h3m",
			}, "1", "clean wait, erase_pstore", -1, false,
		},
		"step without a percentage": {
			Node{State: "clean wait", Target: "available", Step: "erase_pstore", Progress: "erase_pstore: running"},
			"", "clean wait, erase_pstore: running", -1, false,
		},
		"step that has ended": {
			Node{State: "deploying", Target: "active", Step: "write_image", Progress: "write_image: done, image"},
			"", "deploying, write_image: done, image", 100, false,
		},
		"step that has failed": {
			Node{State: "clean failed", Target: "available", Progress: "erase_devices: failed: a: done"},
			"", "clean failed, erase_devices: failed: a: done", -1, true,
		},
		"step before the one that has failed": {
			Node{
				State: "clean failed", Target: "available", Progress: "erase_devices: done, 1 disk erased in 1s",
				LastError: "no such step", Heartbeat: at(0), UpdatedAt: at(1),
			},
			"", "clean failed, erase_devices: done, 1 disk erased in 1s, no such step", -1, true,
		},
		"aborted step of a node that rests": {
			Node{State: "manageable", Progress: "erase_devices: 43%, 3 of 12 disks done, 2h3m left"},
			"", "manageable", -1, true,
		},
		"aborted step of a node that failed": {
			Node{
				State: "clean failed", Target: "manageable", Progress: "erase_devices: 43%, 2h3m left",
				LastError: "aborted",
			},
			"", "clean failed, aborted", -1, true,
		},
		"inspection after an aborted step": {
			Node{
				State: "inspecting", Target: "manageable", Progress: "erase_devices: 43%, 2h3m left",
				Heartbeat: at(60), UpdatedAt: at(61),
			},
			"", "inspecting", -1, false,
		},
		"inspection, waiting": {
			Node{State: "inspect wait", Target: "manageable", Progress: "erase_devices: 43%, 2h3m left"},
			"", "inspect wait", -1, false,
		},
		"inspection that has failed": {
			Node{
				State: "inspect failed", Target: "manageable", Progress: "erase_devices: failed: disk is broken",
				LastError: "timeout",
			},
			"", "inspect failed, timeout", -1, true,
		},
		"result": {
			Node{State: "active", Progress: "write_image: done, image of 2.0 GiB written"},
			"", "active, write_image: done, image of 2.0 GiB written", 100, true,
		},
		"absurd percentage": {
			Node{State: "clean wait", Target: "available", Progress: "x: 999%"}, "", "clean wait, x: 999%", 100, false,
		},
		"result of an earlier heartbeat": {
			Node{
				State: "deploying", Target: "active", Step: "write_image", Progress: "write_image: done, image",
				Heartbeat: at(0), UpdatedAt: at(60),
			},
			"", "deploying, write_image", -1, false,
		},
		"heartbeat that Ironic has handled": {
			Node{
				State: "wait call-back", Target: "active", Step: "write_image", Progress: "write_image: 5%",
				Heartbeat: at(60), UpdatedAt: at(61),
			},
			"", "wait call-back, write_image: 5%", 5, false,
		},
		"result of an earlier operation, no step yet": {
			Node{State: "deploying", Target: "active", Progress: "erase_devices: done, 1 disk erased in 1s"},
			"", "deploying", -1, false,
		},
		"result that was known when the node rested": {
			Node{
				State: "clean wait", Target: "available", Step: "erase_devices",
				Progress: "erase_devices: done, 1 disk erased in 1s", Stale: true,
			},
			"", "clean wait, erase_devices", -1, false,
		},
		"result of a node that rests for long": {
			Node{State: "active", Progress: "write_image: done, image", Heartbeat: at(0), UpdatedAt: at(60)},
			"", "active, write_image: done, image", 100, true,
		},
		"ramdisk without a step": {
			Node{State: "clean wait", Target: "available", Progress: "waiting for the first step"},
			"", "clean wait, waiting for the first step", -1, false,
		},
		"ramdisk without a step, step of Ironic": {
			Node{State: "cleaning", Target: "available", Step: "erase_devices", Progress: "waiting for the first step"},
			"", "cleaning, erase_devices", -1, false,
		},
		"ramdisk without a step, node that rests": {
			Node{State: "manageable", Progress: "waiting for the first step"}, "", "manageable", -1, true,
		},
		"failure without a heartbeat": {
			Node{
				State: "clean failed", Target: "available", Progress: "erase_devices: done, 1 disk erased in 1s",
				LastError: "timeout", Heartbeat: at(0), UpdatedAt: at(600),
			},
			"", "clean failed, timeout", -1, true,
		},
		"failure": {
			Node{State: "clean failed", Target: "available", LastError: "disk is broken"},
			"", "clean failed, disk is broken", -1, true,
		},
	} {
		n := c.node
		percent, known := n.Percent()
		if !known {
			percent = -1
		}
		if n.Label() != c.label || text(&n) != c.text || percent != c.want || n.Rests() != c.rests {
			t.Errorf("%s: got %q, %q, %d, rests %v, want %q, %q, %d, %v",
				name, n.Label(), text(&n), percent, n.Rests(), c.label, c.text, c.want, c.rests)
		}
	}
}

// script is a source whose requests are answered one after the other; the last answer repeats.
type script struct {
	answers []answer
	at      int
}

type answer struct {
	nodes []Node
	err   error
}

func (s *script) next() answer {
	a := s.answers[min(s.at, len(s.answers)-1)]
	s.at++
	return a
}

func (s *script) Node(context.Context, string) (Node, error) {
	a := s.next()
	if a.err != nil {
		return Node{}, a.err
	}
	return a.nodes[0], nil
}

func (s *script) Nodes(context.Context) ([]Node, error) {
	a := s.next()
	return a.nodes, a.err
}

func one(state, target, progress string) answer {
	return answer{nodes: []Node{{UUID: "u", Name: "n", State: state, Target: target, Progress: progress}}}
}

// The nodes are shown until they rest. A failed node fails the command, requests that fail are repeated.
//
// Parity: T12 (ironroot watch)
func TestRun(t *testing.T) {
	down, gone := answer{err: errors.New("no route")}, answer{err: ErrNotFound}
	failed := one("clean failed", "available", "")
	failed.nodes[0].LastError = "disk is\x07 broken"
	rests := one("available", "", "")
	// A result of the last operation, which is there when the next one begins at the same time as the heartbeat.
	beat := func(a answer, step string, heartbeat, updated int) answer {
		n := &a.nodes[0]
		n.Step, n.Heartbeat, n.UpdatedAt = step, at(heartbeat), at(updated)
		return a
	}
	const done = "write_image: done, image written"
	erasing := func(percent int) answer {
		return one("clean wait", "available", fmt.Sprintf("erase_devices: %d%%", percent))
	}
	for _, c := range []struct {
		name    string
		names   []string
		answers []answer
		want    []string
		err     string
	}{
		{"until it rests", []string{"n"}, []answer{erasing(1), erasing(1), erasing(50), rests}, []string{
			"00:00:00 n: clean wait, erase_devices: 1%", "00:00:10 n: clean wait, erase_devices: 50%",
			"00:00:15 n: available",
		}, ""},
		{"a result of the operation before", nil, []answer{
			beat(one("active", "", done), "", 10, 5),
			beat(one("deploying", "active", done), "write_image", 10, 11),
			beat(one("deploying", "active", "write_image: 1%"), "write_image", 12, 11),
			beat(one("deploying", "active", done), "write_image", 14, 11),
		}, []string{
			"00:00:05 n: deploying, write_image", "00:00:10 n: deploying, write_image: 1%",
			"00:00:15 n: deploying, write_image: done, image written",
		}, "context deadline exceeded"},
		{"a failure", []string{"n"}, []answer{erasing(1), failed}, []string{
			"00:00:00 n: clean wait, erase_devices: 1%", "00:00:05 n: clean failed, disk is? broken",
		}, "node n: clean failed: disk is\x07 broken"},
		{"Ironic is restarted", []string{"n"}, []answer{erasing(1), down, down, rests}, []string{
			"00:00:00 n: clean wait, erase_devices: 1%",
			"00:00:05 Ironic cannot be reached, still trying: node n: no route", "00:00:15 n: available",
		}, ""},
		{"Ironic is down", []string{"n"}, []answer{down}, nil, "node n: no route"},
		{"the node is deleted", []string{"n"}, []answer{erasing(1), gone}, []string{
			"00:00:00 n: clean wait, erase_devices: 1%",
		}, "node n: node not found"},
		{"all nodes, until interrupted", nil, []answer{erasing(1), rests, erasing(2)}, []string{
			"00:00:00 n: clean wait, erase_devices: 1%", "00:00:10 n: clean wait, erase_devices: 2%",
		}, "context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var out bytes.Buffer
				err := Run(ctx, Options{
					Source: &script{answers: c.answers}, Display: NewLines(&out), Names: c.names,
					Interval: 5 * time.Second,
				})
				if fmt.Sprint(err) != c.err && (err != nil || c.err != "") {
					t.Errorf("got error %v, want %q", err, c.err)
				}
				var got []string
				for line := range strings.Lines(out.String()) {
					got = append(got, strings.TrimSpace(line))
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// On a terminal each node has a bar with its percentage, which is removed with the node. Control characters are not
// printed.
func TestBars(t *testing.T) {
	var out bytes.Buffer
	b := newBars(mpb.WithOutput(&out), mpb.WithAutoRefresh())
	nodes := []Node{
		{
			UUID: "1", Name: "first\x07", State: "clean wait", Target: "available",
			Progress: "erase_devices: 50%, disk\x07",
		},
		{
			UUID: "2", Name: "second-node", State: "deploying", Target: "active", Step: "write_image",
			Progress: "write_image: done, " + strings.Repeat("x", 200),
		},
	}
	b.Show(nodes)
	b.Note("a note\x07")
	b.Close()
	frame := lastFrame(out.String())
	want := "first?      [==========>-----------] clean wait, erase_devices: 50%, disk?\n" +
		"second-node [======================] deploying, write_image: done, xxxxxxxxxx...\n"
	if diff := cmp.Diff(want, frame); diff != "" || !strings.Contains(out.String(), "a note?\n") {
		t.Errorf("got %q, the last frame differs (-want +got):\n%s", out.String(), diff)
	}
	if strings.Contains(out.String(), "\x07") {
		t.Error("a control character of a node's name was printed")
	}
}
