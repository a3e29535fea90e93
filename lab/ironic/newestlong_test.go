//go:build linux && long

package ironic

import "testing"

// TestRealIronicNewest is TestRealIronicLifecycle with the newest Ironic of Debian.
//
// Parity: T13 (newest)
func TestRealIronicNewest(t *testing.T) { lifecycle(t, Sid) }
