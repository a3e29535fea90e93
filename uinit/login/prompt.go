//go:build linux

package login

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

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
		p := &prompt{
			path: path, accounts: c.Accounts, log: log.With("device", path), turn: turn, delay: failureDelay,
			limit: passwordTime,
		}
		group.Go(func() error { return p.run() })
	}
	return group.Wait()
}

const (
	// failureDelay is the pause after a failed login, as in login(1).
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
	delay    time.Duration // after a failed login
	limit    time.Duration // to enter a password
	failed   int           // logins
	broken   bool          // the terminal could not be used, which was logged
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
	given, err := t.question("Password: ", false, p.limit)
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
			Sys: &syscall.SysProcAttr{Chroot: user.Root, Setsid: true, Setctty: true},
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
