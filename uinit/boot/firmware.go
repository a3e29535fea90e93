//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/agent/journal"
	"ironroot/internal/goroutine"
)

// maxRecord is the kernel's limit for a record of /dev/kmsg, in bytes.
const maxRecord = 8 << 10

// maxMissing limits the number of files in missingFirmware.
const maxMissing = 256

// missingFirmware collects the firmware files that drivers requested and that do not exist.
type missingFirmware struct {
	known map[string]bool
	fresh []string // not reported yet, each "FILE (DRIVER)"
}

// add records the file of a kernel message.
func (m *missingFirmware) add(message string) {
	file, ok := journal.MissingFirmware(message)
	if !ok || m.known[file] || len(m.known) >= maxMissing {
		return
	}
	if m.known == nil {
		m.known = map[string]bool{}
	}
	m.known[file] = true
	m.fresh = append(m.fresh, file)
}

// take returns the files that were not reported yet.
func (m *missingFirmware) take() []string {
	fresh := m.fresh
	m.fresh = nil
	slices.Sort(fresh)
	return fresh
}

// watchFirmware reports firmware files that drivers requested and the kernel did not find: all files in one message
// when the devices have settled, and each later file once.
func (b *boot) watchFirmware(ctx context.Context, settled <-chan struct{}) {
	select {
	case <-settled:
	case <-ctx.Done():
		return
	}
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		b.log.Debug("kernel log not readable, missing firmware not reported", "err", err)
		return
	}
	defer f.Close() //nolint:errcheck // only read
	var missing missingFirmware
	if err := readMessages(f, missing.add); err != nil { // from the oldest message to the latest
		b.log.Debug("kernel log not readable, missing firmware not reported", "err", err)
		return
	}
	b.reportFirmware(&missing)
	goroutine.AfterContext(ctx, func() { _ = f.Close() })
	for text := range kernelMessages(f) {
		missing.add(text)
		b.reportFirmware(&missing)
	}
}

// readMessages calls f for each message that /dev/kmsg contains now.
func readMessages(kmsg *os.File, f func(text string)) error {
	raw, err := kmsg.SyscallConn()
	if err != nil {
		return err
	}
	return readRecords(func(buffer []byte) (n int, err error) {
		closed := raw.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buffer)
			return true // do not wait
		})
		return n, errors.Join(err, closed)
	}, math.MaxInt, func(record []byte) {
		text, _ := kernelMessage(record)
		f(text)
	})
}

// reportFirmware logs the files that were not reported yet, and shows all of them on the screen.
func (b *boot) reportFirmware(missing *missingFirmware) {
	files := missing.take()
	if len(files) == 0 {
		return
	}
	b.log.Warn("firmware missing", "files", strings.Join(files, ", "))
	if board := b.board.Load(); board != nil {
		known := slices.Sorted(maps.Keys(missing.known))
		board.Problem("firmware", fmt.Errorf("firmware missing: %s", strings.Join(known, ", ")))
	}
}
