//go:build linux

package ironic

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTranscript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newTranscript()
		log.Line("INSTANCE-UP before")
		mark := log.mark()
		time.AfterFunc(time.Second, func() { log.Line("noise") })
		time.AfterFunc(2*time.Second, func() { log.Line("INSTANCE-UP after") })
		groups, err := log.follow(t.Context(), mark, regexp.MustCompile(`INSTANCE-UP (\S+)\s`))
		if err != nil || groups[1] != "after" {
			t.Errorf("got %q, %v, want the line behind the mark", groups, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := log.follow(ctx, 0, regexp.MustCompile("never")); err == nil ||
			!strings.Contains(err.Error(), "INSTANCE-UP after") {
			t.Errorf("got error %v, want one that shows the end of the console", err)
		}
		if got, want := log.tail(2), "noise\nINSTANCE-UP after"; got != want {
			t.Errorf("tail: got %q, want %q", got, want)
		}
	})
}
