//go:build linux

package login

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/uinit/account"
	"ironroot/uinit/worker"
)

// childName is the name of this program in the process of the prompts.
const childName = "login"

// Child does the work of the process of the prompts and ends, if this process was started as one. Otherwise it returns.
// Every program that calls Start must call it first.
func Child() {
	if os.Args[0] == childName {
		worker.Exit(run())
	}
}

// run shows the prompts. It returns only after an error.
func run() error {
	worker.CatchSignals()
	c := new(config)
	if err := worker.ReadInput(c); err != nil {
		return err
	}
	log := worker.Logger()
	slog.SetDefault(log) // of contained panics
	group := goroutine.NewGroup()
	turn := make(chan struct{}, 1)
	for _, path := range c.Terminals {
		p := &prompt{path: path, accounts: c.Accounts, log: log.With("device", path), turn: turn, delay: failureDelay}
		group.Go(func() error { return p.run() })
	}
	return group.Wait()
}

const (
	// failureDelay is the pause after a failed login, as that of login(1).
	failureDelay = 3 * time.Second
	// passwordTime limits the time to enter a password, in which the terminal does not show what is entered.
	passwordTime = time.Minute
	// reopenPause is the pause before a terminal that failed is opened again.
	reopenPause = 5 * time.Second
)

// prompt is the prompt of one terminal.
type prompt struct {
	path     string
	accounts account.List
	log      *slog.Logger
	turn     chan struct{} // has capacity for the check of one password: each takes memory and the processor
	delay    time.Duration
	failed   int  // logins
	broken   bool // the terminal could not be used, which was logged
}

// run asks and starts shells forever.
func (p *prompt) run() error {
	for {
		err := goroutine.Catch(p.once)
		if err == nil {
			p.broken = false
			continue
		}
		if !p.broken {
			p.log.Warn("login prompt interrupted, retrying", "err", err)
		}
		p.broken = true
		time.Sleep(reopenPause)
	}
}

// once asks until a user has logged in, and runs the shell. The terminal is opened each time: the kernel hangs it up
// when a shell ends.
func (p *prompt) once() error {
	t, err := openTerminal(p.path)
	if err != nil {
		return err
	}
	defer t.close()
	for {
		user, ok, err := p.ask(t)
		if err != nil {
			return err
		}
		if ok {
			return p.shell(t, user)
		}
	}
}

// ask asks for a user and a password. ok is false if they are wrong.
func (p *prompt) ask(t *terminal) (user account.Account, ok bool, err error) {
	name, err := t.question("\r\nironroot login: ", true, 0)
	if err != nil || len(name) == 0 {
		return user, false, err
	}
	given, err := t.question("Password: ", false, passwordTime)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return user, false, t.write("\r\nno password entered in time\r\n")
	}
	if err != nil {
		return user, false, err
	}
	p.turn <- struct{}{}
	ok = p.accounts.MatchesPassword(string(name), given)
	<-p.turn
	clear(given)
	user, known := p.accounts.Find(string(name))
	if ok {
		p.log.Info("user logged in", "user", user.Name, "method", "password")
		return user, true, nil
	}
	p.failed++
	shown := "(unknown)" // it can be a password
	if known {
		shown = user.Name
	}
	p.log.Warn("login failed", "user", shown, "count", p.failed)
	time.Sleep(p.delay)
	return user, false, t.write("login incorrect\r\n")
}

// shell runs the user's shell until it ends.
func (p *prompt) shell(t *terminal, user account.Account) error {
	if err := t.blocking(); err != nil {
		return err
	}
	var process *os.Process
	var err error
	for _, dir := range []string{user.Home, "/"} { // the home directory can be missing
		process, err = os.StartProcess(user.Shell, []string{user.LoginShell()}, &os.ProcAttr{
			Dir: dir, Env: append(user.Environment(), "TERM=linux"), Files: []*os.File{t.file, t.file, t.file},
			Sys: &syscall.SysProcAttr{Chroot: user.Root, Credential: user.Credential(), Setsid: true, Setctty: true},
		})
		if err == nil {
			break
		}
	}
	if err != nil {
		p.log.Warn("session not started", "user", user.Name, "err", err)
		time.Sleep(p.delay)
		return t.write("start " + user.Shell + ": " + err.Error() + "\r\n")
	}
	state, err := process.Wait()
	p.log.Info("session ended", "user", user.Name, "status", fmt.Sprint(state))
	return err
}

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

// readLine reads a line without its end. What exceeds maxLine is dropped.
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
