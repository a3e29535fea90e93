package image

import "testing"

func TestSnapshotText(t *testing.T) {
	for want, s := range map[string]Snapshot{
		"transfer: 512 of 1024 MiB (50 %)": {Phase: PhaseTransfer, Attempt: 1, Read: 512 * mib, Total: 1024 * mib},
		"transfer: 3 MiB, attempt 2":       {Phase: PhaseTransfer, Attempt: 2, Read: 3 * mib},
		"waiting: 0 MiB":                   new(Progress).Snapshot(),
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
