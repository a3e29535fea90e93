//go:build linux

package sshd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/uinit/account"
)

// sftpName is the name of this program in the process of an SFTP session.
const sftpName = "sftp-server"

// hangupTime is the time for which the processes of a session can continue after its client has gone.
const hangupTime = 10 * time.Second

// exitNotRun is the exit status of a command that could not be started.
const exitNotRun = 127

// session is a session of a client (RFC 4254, section 6): one process.
type session struct {
	server  *server
	conn    *connection
	user    account.Account
	channel ssh.Channel

	// Requests are handled one after another, so these need no lock.
	environment []string
	terminal    *terminal // nil without a pseudo-terminal

	mu      sync.Mutex
	started bool
	process *os.Process // nil before it is started and once it has ended
	streams *streams    // of the process; nil before it is started
}

// admit counts a session, and returns "". If there are too many it counts none, and returns which limit was reached.
func (s *server) admit(c *connection) string {
	if s.sessions.Add(1) > int64(s.Limits.Sessions) {
		s.sessions.Add(-1)
		return "too many sessions"
	}
	if !c.begin() {
		s.sessions.Add(-1) // before the reply: the client may open another session at once
		return "too many sessions of this connection"
	}
	return ""
}

// open serves a session until its channel is closed.
func (s *server) open(c *connection, user account.Account, newChannel ssh.NewChannel) {
	if reason := s.admit(c); reason != "" {
		_ = newChannel.Reject(ssh.ResourceShortage, reason) // fails only if the connection has ended
		return
	}
	defer s.sessions.Add(-1)
	defer c.done()
	channel, requests, err := newChannel.Accept()
	if err != nil {
		return // the connection has ended
	}
	session := &session{server: s, conn: c, user: user, channel: channel}
	for request := range requests {
		ok := session.handle(request)
		if request.WantReply {
			_ = request.Reply(ok, nil) // fails only if the connection has ended
		}
		session.mu.Lock()
		run := ok && !session.started && slices.Contains([]string{"shell", "exec", "subsystem"}, request.Type)
		session.mu.Unlock()
		if run {
			session.run(request)
		}
	}
	session.hangUp()
}

// handle handles a request of the client and reports whether it is granted. Requests that start a process are checked
// only.
func (s *session) handle(request *ssh.Request) bool {
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()
	switch request.Type {
	case "env":
		var variable struct{ Name, Value string }
		return !started && ssh.Unmarshal(request.Payload, &variable) == nil &&
			s.setVariable(variable.Name, variable.Value)
	case "pty-req":
		return !started && s.terminal == nil && s.openTerminal(request.Payload)
	case "window-change":
		var size windowSize
		return s.terminal != nil && ssh.Unmarshal(request.Payload, &size) == nil && s.terminal.resize(size) == nil
	case "signal":
		var signal struct{ Name string }
		return ssh.Unmarshal(request.Payload, &signal) == nil && s.signal(signals[signal.Name])
	case "shell":
		return !started
	case "exec":
		_, ok := payloadText(request)
		return !started && ok
	case "subsystem":
		name, ok := payloadText(request)
		return !started && ok && name == "sftp"
	}
	return false // agent and X11 forwarding, and others
}

// payloadText returns the only field of a request.
func payloadText(request *ssh.Request) (string, bool) {
	var payload struct{ Text string }
	err := ssh.Unmarshal(request.Payload, &payload)
	return payload.Text, err == nil
}

const (
	maxVariables = 32   // number of variables that a client can set
	maxValue     = 1024 // bytes of a value
)

// allowedVariable matches the variables that a client can set: variables of the language. Others, such as LD_PRELOAD,
// would change what programs do.
var allowedVariable = regexp.MustCompile(`^(LANG|LANGUAGE|LC_[A-Z]{1,32})$`)

// plainValue matches values of these variables, and names of terminals.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9_.@:+-]*$`)

func (s *session) setVariable(name, value string) bool {
	if len(s.environment) >= maxVariables || len(value) > maxValue || !allowedVariable.MatchString(name) ||
		!plainValue.MatchString(value) {
		return false
	}
	s.environment = append(s.environment, name+"="+value)
	return true
}

// signals are the signals that a client can send, and the names of those that end a process.
var signals = map[string]syscall.Signal{
	"ABRT": unix.SIGABRT, "ALRM": unix.SIGALRM, "FPE": unix.SIGFPE, "HUP": unix.SIGHUP, "ILL": unix.SIGILL,
	"INT": unix.SIGINT, "KILL": unix.SIGKILL, "PIPE": unix.SIGPIPE, "QUIT": unix.SIGQUIT, "SEGV": unix.SIGSEGV,
	"TERM": unix.SIGTERM, "USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2,
}

// signal sends a signal to the process group of the session. It reports whether there is one.
func (s *session) signal(number syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The process has not been waited for, so its number does not belong to another group.
	return number != 0 && s.process != nil && unix.Kill(-s.process.Pid, number) == nil
}

// hangUp ends the processes of a session whose client has gone. Those that were detached from it continue.
func (s *session) hangUp() {
	s.terminal.close() // the kernel sends SIGHUP
	s.mu.Lock()
	if s.streams != nil {
		_ = s.streams.close() // the pipes of a process that has ended are closed
	}
	s.mu.Unlock()
	if !s.signal(unix.SIGHUP) {
		return
	}
	goroutine.AfterTime(hangupTime, func() { s.signal(unix.SIGKILL) })
}

// run starts the process of a session. Its output and end are then sent to the client.
func (s *session) run(request *ssh.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	text, _ := payloadText(request) // was checked
	streams, err := s.start(request.Type, text)
	if err != nil {
		s.server.log.Warn("session not started", "user", s.user.Name, "address", s.conn.peer, "kind", request.Type,
			"err", err)
		_, _ = fmt.Fprintf(s.channel.Stderr(), "ironroot: %v\r\n", err) // fails only if the connection has ended
		s.exit(exitNotRun)
		return
	}
	s.server.log.Info("session started", "user", s.user.Name, "address", s.conn.peer, "kind", request.Type)
	s.streams = streams
	process := s.process
	goroutine.Go(func() error {
		defer s.channel.Close() //nolint:errcheck // fails only if it is closed
		group := goroutine.NewGroup()
		group.Go(func() error { return streams.copy(s.channel) })
		state, err := s.wait(process)
		if s.terminal == nil {
			_ = streams.in.Close() // nobody reads it
		}
		if err := errors.Join(err, group.Wait()); err != nil {
			s.server.log.Debug("session interrupted", "user", s.user.Name, "address", s.conn.peer, "err", err)
		}
		if state != nil {
			s.report(state)
		}
		return nil
	}, nil)
}

// wait waits for the process. Until it returns, the process can get signals.
func (s *session) wait(process *os.Process) (*os.ProcessState, error) {
	var err error
	for err = unix.EINTR; errors.Is(err, unix.EINTR); { // waits, but keeps the number of the process
		err = unix.Waitid(unix.P_PID, process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("wait for process %d: %w", process.Pid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = nil
	return process.Wait()
}

// report sends the end of the process to the client.
func (s *session) report(state *os.ProcessState) {
	s.server.log.Info("session ended", "user", s.user.Name, "address", s.conn.peer, "status", state.String())
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		s.exit(state.ExitCode())
		return
	}
	for name, number := range signals {
		if number == status.Signal() {
			_, _ = s.channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Name     string
				CoreDump bool
				Message  string
				Language string
			}{name, status.CoreDump(), "", ""})) // fails only if the connection has ended
			return
		}
	}
	const signalBase = 128 // as shells do
	s.exit(signalBase + int(status.Signal()))
}

// exit sends the exit status to the client and closes the session.
func (s *session) exit(status int) {
	_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
	_ = s.channel.Close() // both fail only if the connection has ended
}

// streams are the ends of the process's streams that belong to the server.
type streams struct {
	in       io.WriteCloser
	out, err io.ReadCloser // err is nil with a terminal
}

// copy copies between the process and the client until the process has closed its output.
func (p *streams) copy(channel ssh.Channel) error {
	goroutine.Go(func() error { // ends with the channel
		_, err := io.Copy(p.in, channel)
		if err == nil {
			err = p.in.Close() // the client has sent everything
		} else { // the process reads no more
			_, err = io.Copy(io.Discard, channel)
		}
		return err
	}, func(error) {})
	group := goroutine.NewGroup()
	group.Go(func() error { return copyOut(channel, p.out) })
	if p.err != nil {
		group.Go(func() error { return copyOut(channel.Stderr(), p.err) })
	}
	return errors.Join(group.Wait(), channel.CloseWrite())
}

// copyOut copies output of the process, and closes the stream: a process whose client has gone gets SIGPIPE.
func copyOut(to io.Writer, from io.ReadCloser) error {
	_, err := io.Copy(to, from)
	if errors.Is(err, unix.EIO) {
		err = nil // nobody has the terminal open
	}
	return errors.Join(err, from.Close())
}
