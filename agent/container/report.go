package container

import (
	"context"
	"errors"
	"log/slog"

	"ironroot/agent/fault"
	"ironroot/storage/image/fetch"
)

// Fault converts an error of Resolve or Prepare to a fault of the protocol. source is the reference of the image.
func Fault(source string, err error) error {
	var (
		own     *fault.Error
		timeout *fetch.TimeoutError
		slow    *fetch.SlowError
	)
	switch {
	case errors.As(err, &own), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, ErrReference):
		return fault.InvalidCommandParams("container image %s: %w", source, err)
	case errors.As(err, &timeout), errors.As(err, &slow):
		return fault.ImageDownloadTimeout(source, err)
	}
	return fault.ImageDownload(source, err)
}

// maxLoggedLines limits the lines of a program's output that are logged: they must not displace the agent's own lines.
const maxLoggedLines = 500

// OutputLog logs the output of a program in a container.
type OutputLog struct {
	Log   *slog.Logger
	Image string

	lines int
}

// Line logs a line, unless the program has written too many.
func (l *OutputLog) Line(line string) {
	l.lines++
	if l.lines <= maxLoggedLines {
		l.Log.Info("container output", "image", l.Image, "line", line)
	}
}

// End logs how many lines were omitted.
func (l *OutputLog) End() {
	if l.lines > maxLoggedLines {
		l.Log.Warn("container output truncated", "image", l.Image, "lines", l.lines, "logged", maxLoggedLines)
	}
}
