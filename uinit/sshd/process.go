//go:build linux

package sshd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"syscall"
)

// start starts the process of a session. s.mu must be held.
func (s *session) start(kind, text string) (*streams, error) {
	program, args := s.user.Shell, []string{s.user.LoginShell()}
	switch kind {
	case "exec":
		args = []string{path.Base(program), "-c", text}
	case "subsystem":
		program, args = "/proc/self/exe", []string{sftpName}
	}
	attributes := &syscall.SysProcAttr{Chroot: s.user.Root, Setsid: true}
	var ends *streams
	var files []*os.File // of the process
	var err error
	if s.terminal != nil {
		attributes.Setctty = true
		files, ends = []*os.File{s.terminal.slave, s.terminal.slave, s.terminal.slave}, s.terminal.streams()
	} else if files, ends, err = pipes(); err != nil {
		return nil, err
	}
	for _, dir := range []string{s.user.Home, "/"} { // the home directory can be missing, or not readable
		s.process, err = os.StartProcess(program, args, &os.ProcAttr{
			Dir: dir, Env: s.variables(), Files: files, Sys: attributes,
		})
		if err == nil {
			break
		}
	}
	for _, f := range files {
		_ = f.Close() // the process has its own
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), ends.close())
	}
	return ends, nil
}

// variables returns the environment of the process.
func (s *session) variables() []string {
	list := append(s.user.Environment(), s.environment...)
	remoteHost, remotePort, remoteErr := net.SplitHostPort(s.conn.RemoteAddr().String())
	localHost, localPort, localErr := net.SplitHostPort(s.conn.LocalAddr().String())
	if remoteErr == nil && localErr == nil {
		list = append(list, fmt.Sprintf("SSH_CLIENT=%s %s %s", remoteHost, remotePort, localPort),
			fmt.Sprintf("SSH_CONNECTION=%s %s %s %s", remoteHost, remotePort, localHost, localPort))
	}
	if s.terminal != nil {
		list = append(list, "TERM="+s.terminal.kind, "SSH_TTY="+s.terminal.name)
	}
	return list
}

// pipes returns the streams of a process without a terminal.
func pipes() (files []*os.File, ends *streams, err error) {
	var ours []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range append(files, ours...) {
				_ = f.Close() // nothing was written
			}
			return nil, nil, fmt.Errorf("pipe: %w", err)
		}
		if len(files) == 0 {
			files, ours = append(files, r), append(ours, w) // standard input
		} else {
			files, ours = append(files, w), append(ours, r)
		}
	}
	return files, &streams{in: ours[0], out: ours[1], err: ours[2]}, nil
}

// close closes all streams.
func (p *streams) close() error {
	err := errors.Join(p.in.Close(), p.out.Close())
	if p.err != nil {
		err = errors.Join(err, p.err.Close())
	}
	return err
}
