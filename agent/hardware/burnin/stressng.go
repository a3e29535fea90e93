package burnin

import (
	"fmt"
	"strings"
	"time"
)

// summary returns the content of the output file of a test of processors or memory: lines in the order and with the
// columns of those that stress-ng writes with --metrics-brief. The times of user and system are not known.
func summary(stressor string, workers int, operations int64, started time.Time, err error) []byte {
	took := time.Since(started).Seconds()
	passed, failed, end := workers, 0, "successful run"
	if err != nil {
		passed, failed, end = 0, workers, "unsuccessful run"
	}
	var b strings.Builder
	line := func(format string, args ...any) {
		fmt.Fprintf(&b, "ironroot: %s\n", fmt.Sprintf(format, args...))
	}
	line("info:  dispatching hogs: %d %s", workers, stressor)
	if err != nil {
		line("fail:  %s: %v", stressor, err)
	}
	line("metrc: %-13s %9s %9s %12s", "stressor", "bogo ops", "real time", "bogo ops/s")
	line("metrc: %-13s %9d %9.2f %12.2f", stressor, operations, took, float64(operations)/took)
	line("info:  passed: %d", passed)
	line("info:  failed: %d", failed)
	line("info:  %s completed in %.2fs", end, took)
	return []byte(b.String())
}
