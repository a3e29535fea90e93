package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// ISCSITarget is a target of Debian's tgt, a program that needs nothing of the kernel. Its disk is unit 1.
type ISCSITarget struct {
	Name string // "iqn.…"
	Disk string // file
	// User and Secret belong to the initiator, TargetUser and TargetSecret to the target; "" is no CHAP.
	User, Secret, TargetUser, TargetSecret string

	Address  netip.AddrPort // if it is not set, StartISCSI chooses one of the loopback interface
	Launcher Launcher       // nil starts the program in the namespace of the test

	t       testing.TB
	cmd     *exec.Cmd     // nil while it is stopped
	ended   chan struct{} // closed when the program has ended
	socket  string
	control int
}

// Launcher starts programs, for example in a network namespace.
type Launcher interface {
	// Start starts a program and returns a function that waits for its end.
	Start(cmd *exec.Cmd) (wait func() error, err error)
}

// iscsiTargets counts the programs of this process, which need different numbers.
var iscsiTargets atomic.Int32

// StartISCSI starts a target. It is stopped at the end of the test.
func StartISCSI(t testing.TB, target ISCSITarget) *ISCSITarget {
	t.Helper()
	Root(t)
	Programs(t, "tgtd", "tgtadm")
	if !target.Address.IsValid() {
		target.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(Port(t)))
	}
	target.t, target.control = t, int(iscsiTargets.Add(1))
	target.socket = filepath.Join(t.TempDir(), "tgtd")
	t.Cleanup(target.Stop)
	target.Start()
	return &target
}

// Start starts the program after Stop, with the same disk and address.
func (s *ISCSITarget) Start() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.lasting(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(s.lasting(), "tgtd", "-f", "-C", strconv.Itoa(s.control), "--iscsi",
		"portal="+s.Address.String())
	cmd.Env = append(os.Environ(), "TGT_IPC_SOCKET="+s.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	wait, err := s.launch(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = wait() // the program is killed
	}()
	s.cmd, s.ended = cmd, ended
	for { // until it accepts requests
		err := s.admin("--mode", "target", "--op", "new", "--tid", "1", "-T", s.Name)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			s.t.Fatal(errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
	requests := [][]string{{"--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"}}
	if s.Disk != "" {
		requests = append(requests,
			[]string{"--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", s.Disk})
	}
	account := func(user, secret string, more ...string) {
		if user != "" {
			requests = append(requests,
				[]string{"--mode", "account", "--op", "new", "--user", user, "--password", secret},
				append([]string{"--mode", "account", "--op", "bind", "--tid", "1", "--user", user}, more...))
		}
	}
	account(s.User, s.Secret)
	account(s.TargetUser, s.TargetSecret, "--outgoing")
	for _, request := range requests {
		if err := s.admin(request...); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *ISCSITarget) launch(cmd *exec.Cmd) (wait func() error, err error) {
	if s.Launcher == nil {
		return cmd.Wait, cmd.Start()
	}
	return s.Launcher.Start(cmd)
}

// Stop kills the program, which closes all connections.
func (s *ISCSITarget) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // it may have ended already
		<-s.ended
	}
	s.cmd = nil
}

// Sessions returns the description of the target's sessions.
func (s *ISCSITarget) Sessions() string {
	out, err := s.command("--mode", "conn", "--op", "show", "--tid", "1").CombinedOutput()
	if err != nil {
		s.t.Fatalf("tgtadm: %v: %s", err, out)
	}
	return string(out)
}

// lasting returns the context of the test, which does not end before the target is stopped.
func (s *ISCSITarget) lasting() context.Context { return context.WithoutCancel(s.t.Context()) }

func (s *ISCSITarget) command(args ...string) *exec.Cmd {
	all := append([]string{"-C", strconv.Itoa(s.control), "--lld", "iscsi"}, args...)
	cmd := exec.CommandContext(s.lasting(), "tgtadm", all...)
	cmd.Env = append(os.Environ(), "TGT_IPC_SOCKET="+s.socket)
	return cmd
}

func (s *ISCSITarget) admin(args ...string) error {
	out, err := s.command(args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("tgtadm %v: %w: %s", args, err, out)
	}
	return nil
}
