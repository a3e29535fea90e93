//go:build linux

package login

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is an open terminal.
type terminal struct {
	file   *os.File
	before *unix.Termios // the modes to restore
}

// openTerminal opens a terminal for prompts. Without O_NONBLOCK, a serial port could wait for a carrier.
func openTerminal(path string) (*terminal, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	t := &terminal{file: os.NewFile(uintptr(fd), path)}
	if err := t.control(func(fd int) (err error) {
		t.before, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("get modes of %s: %w", path, err), t.file.Close())
	}
	return t, nil
}

// close restores the modes and closes the terminal.
func (t *terminal) close() {
	_ = t.control(func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, t.before) }) // it can be hung up
	_ = t.file.Close()
}

// control calls f with the descriptor. [os.File.Fd] would make reads block.
func (t *terminal) control(f func(fd int) error) error {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(err, inner)
}

// blocking prepares the terminal for a shell: reads block, and the modes are the usual ones.
func (t *terminal) blocking() error {
	if err := t.setModes(true); err != nil {
		return err
	}
	return t.control(func(fd int) error { return unix.SetNonblock(fd, false) })
}

// setModes sets the modes for lines, with or without echo. Input that was not read is discarded.
func (t *terminal) setModes(echo bool) error {
	modes := *t.before
	modes.Iflag = unix.BRKINT | unix.ICRNL | unix.IXON | unix.IMAXBEL | unix.IUTF8
	modes.Oflag = unix.OPOST | unix.ONLCR
	modes.Lflag = unix.ISIG | unix.ICANON | unix.ECHONL | unix.IEXTEN
	if echo {
		modes.Lflag = unix.ISIG | unix.ICANON | unix.IEXTEN |
			unix.ECHO | unix.ECHOE | unix.ECHOK | unix.ECHOCTL | unix.ECHOKE
	}
	if err := t.control(func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETSF, &modes) }); err != nil {
		return fmt.Errorf("set modes: %w", err)
	}
	return nil
}

func (t *terminal) write(text string) error {
	_, err := t.file.WriteString(text)
	return err
}

// question shows a text and reads a line. Without a limit, it waits forever.
func (t *terminal) question(text string, echo bool, limit time.Duration) ([]byte, error) {
	if err := t.setModes(echo); err != nil {
		return nil, err
	}
	if err := t.write(text); err != nil {
		return nil, err
	}
	var end time.Time
	if limit > 0 {
		end = time.Now().Add(limit)
	}
	if err := t.file.SetReadDeadline(end); err != nil {
		return nil, err
	}
	return readLine(t.file)
}

// maxLine limits a line in bytes. The kernel's limit is larger.
const maxLine = 600

// readLine reads a line without its end. Bytes beyond maxLine are dropped.
func readLine(r io.Reader) ([]byte, error) {
	var line []byte
	buffer := make([]byte, 1)
	for {
		n, err := r.Read(buffer)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		if buffer[0] == '\n' {
			return bytes.TrimSuffix(line, []byte("\r")), nil
		}
		if len(line) < maxLine {
			line = append(line, buffer[0])
		}
	}
}
