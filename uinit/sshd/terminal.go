//go:build linux

package sshd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// windowSize is the size of a client's window (RFC 4254, section 6.7).
type windowSize struct{ Columns, Rows, Width, Height uint32 }

// terminal is a pseudo-terminal. All methods work with nil.
type terminal struct {
	kind          string // as in terminfo(5)
	name          string // path of the device
	master, slave *os.File

	closing sync.Once
}

// openTerminal opens the pseudo-terminal that a client requests. It reports whether that succeeded.
func (s *session) openTerminal(payload []byte) bool {
	var request struct {
		Kind                         string
		Columns, Rows, Width, Height uint32
		Modes                        []byte
	}
	if ssh.Unmarshal(payload, &request) != nil {
		return false
	}
	const maxKind = 64
	if request.Kind == "" || len(request.Kind) > maxKind || !plainValue.MatchString(request.Kind) {
		request.Kind = "dumb"
	}
	t, err := newTerminal()
	if err == nil {
		size := windowSize{request.Columns, request.Rows, request.Width, request.Height}
		err = errors.Join(t.resize(size), t.setModes(request.Modes))
	}
	if err != nil {
		t.close()
		s.server.log.Warn("terminal not opened", "user", s.user.Name, "address", s.conn.peer, "err", err)
		return false
	}
	t.kind, s.terminal = request.Kind, t
	return true
}

// newTerminal opens a pseudo-terminal whose device belongs to root and the group tty, see pts(4).
func newTerminal() (*terminal, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	t := &terminal{master: os.NewFile(uintptr(fd), "/dev/ptmx")}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("unlock pseudo-terminal: %w", err)
	}
	t.name = fmt.Sprintf("/dev/pts/%d", number)
	// Not by its path, where another file system of this type could be mounted.
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER,
		unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.close()
		return nil, fmt.Errorf("open %s: %w", t.name, errno)
	}
	t.slave = os.NewFile(slave, t.name)
	const ttyGroup, mode = 5, 0o620
	if err := errors.Join(t.slave.Chown(0, ttyGroup), t.slave.Chmod(mode)); err != nil {
		t.close()
		return nil, fmt.Errorf("set owner and mode of %s: %w", t.name, err)
	}
	return t, nil
}

// control calls f with the descriptor of a file. [os.File.Fd] would make its reads block.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(err, inner)
}

// resize sets the size of the window, of which programs are notified by SIGWINCH.
func (t *terminal) resize(size windowSize) error {
	clip := func(n uint32) uint16 { return uint16(min(n, math.MaxUint16)) }
	return control(t.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{
			Row: clip(size.Rows), Col: clip(size.Columns), Xpixel: clip(size.Width), Ypixel: clip(size.Height),
		})
	})
}

// setModes sets the modes of the client's own terminal.
func (t *terminal) setModes(encoded []byte) error {
	return control(t.slave, func(fd int) error {
		termios, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return fmt.Errorf("get modes: %w", err)
		}
		termios.Iflag |= unix.IUTF8 // clients that do not know the mode use UTF-8, too
		applyModes(termios, encoded)
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, termios); err != nil {
			return fmt.Errorf("set modes: %w", err)
		}
		return nil
	})
}

// The modes of a terminal by their number (RFC 4254, section 8, and RFC 8160), with the indices and bits of Linux.
var (
	characters = map[byte]int{
		1: unix.VINTR, 2: unix.VQUIT, 3: unix.VERASE, 4: unix.VKILL, 5: unix.VEOF, 6: unix.VEOL, 7: unix.VEOL2,
		8: unix.VSTART, 9: unix.VSTOP, 10: unix.VSUSP, 12: unix.VREPRINT, 13: unix.VWERASE, 14: unix.VLNEXT,
		16: unix.VSWTC, 18: unix.VDISCARD,
	}
	inputModes = map[byte]uint32{
		30: unix.IGNPAR, 31: unix.PARMRK, 32: unix.INPCK, 33: unix.ISTRIP, 34: unix.INLCR, 35: unix.IGNCR,
		36: unix.ICRNL, 37: unix.IUCLC, 38: unix.IXON, 39: unix.IXANY, 40: unix.IXOFF, 41: unix.IMAXBEL,
		42: unix.IUTF8,
	}
	localModes = map[byte]uint32{
		50: unix.ISIG, 51: unix.ICANON, 52: unix.XCASE, 53: unix.ECHO, 54: unix.ECHOE, 55: unix.ECHOK,
		56: unix.ECHONL, 57: unix.NOFLSH, 58: unix.TOSTOP, 59: unix.IEXTEN, 60: unix.ECHOCTL, 61: unix.ECHOKE,
	}
	outputModes = map[byte]uint32{
		70: unix.OPOST, 71: unix.OLCUC, 72: unix.ONLCR, 73: unix.OCRNL, 74: unix.ONOCR, 75: unix.ONLRET,
	}
)

// applyModes applies the modes in a request for a pseudo-terminal. Unknown modes are ignored. After a number whose
// argument has an unknown length, the rest is ignored.
func applyModes(termios *unix.Termios, encoded []byte) {
	const end, firstUnknown, argument = 0, 160, 4
	const disabled = 255 // a character that is not used
	for len(encoded) > argument && encoded[0] != end && encoded[0] < firstUnknown {
		mode, value := encoded[0], binary.BigEndian.Uint32(encoded[1:])
		encoded = encoded[1+argument:]
		if index, ok := characters[mode]; ok {
			if termios.Cc[index] = byte(value); value == disabled {
				termios.Cc[index] = 0
			}
		}
		set(&termios.Iflag, inputModes[mode], value != 0)
		set(&termios.Lflag, localModes[mode], value != 0)
		set(&termios.Oflag, outputModes[mode], value != 0)
	}
}

// set sets or clears bits.
func set(flags *uint32, bits uint32, on bool) {
	if *flags &^= bits; on {
		*flags |= bits
	}
}

// streams returns the streams of a process on the terminal.
func (t *terminal) streams() *streams { return &streams{in: terminalInput{t}, out: t.master} }

// close closes the terminal: the kernel sends SIGHUP to its processes.
func (t *terminal) close() {
	if t == nil {
		return
	}
	t.closing.Do(func() {
		_ = t.master.Close() // what was not read is lost
		if t.slave != nil {
			_ = t.slave.Close()
		}
	})
}

// terminalInput is the input of a terminal.
type terminalInput struct{ terminal *terminal }

// Write implements [io.Writer].
func (i terminalInput) Write(p []byte) (int, error) { return i.terminal.master.Write(p) }

// Close sends the character that ends the input of a process.
func (i terminalInput) Close() error {
	const endOfFile = 4 // VEOF
	_, err := i.terminal.master.Write([]byte{endOfFile})
	return err
}
