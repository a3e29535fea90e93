package testenv

import (
	"testing"
	"testing/synctest"
	"time"
)

// limited is a test whose package has a time limit.
type limited struct {
	*testing.T
	end time.Time
}

func (l limited) Deadline() (time.Time, bool) { return l.end, true }

// A context ends before the time limit of the package.
func TestContext(t *testing.T) {
	for _, tt := range []struct{ limit, all, want time.Duration }{
		{time.Minute, time.Hour, time.Minute},
		{time.Hour, time.Hour, 59 * time.Minute},
		{time.Hour, 10 * time.Second, 9 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			started := time.Now()
			<-Context(limited{t, started.Add(tt.all)}, tt.limit).Done()
			if took := time.Since(started); took != tt.want {
				t.Errorf("%v of %v: got the end after %v, want %v", tt.limit, tt.all, took, tt.want)
			}
		})
	}
}
