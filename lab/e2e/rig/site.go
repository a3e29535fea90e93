//go:build linux

package rig

import (
	"cmp"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/netns"
	"ironroot/lab/qemu"
)

// ClockTolerance is the tolerance for comparing clocks. A guest's clock can lose half of its seconds while the guest
// starts on a busy host. Right and wrong times differ by at least 20 minutes.
const ClockTolerance = 5 * time.Minute

// Site is a namespace at the other end of a machine's cables, with Ironic and the servers that a test starts. The
// machine has no other network.
type Site struct {
	T       *testing.T
	NS      *netns.Namespace
	Ironic  *conductor.Conductor
	Node    *conductor.Node
	Machine *qemu.Machine
}

// NewSite returns a site with a namespace of its own.
func NewSite(t *testing.T) *Site { return &Site{T: t, NS: NewNamespace(t)} }

// Tap creates the host's end of a cable with addresses, and returns QEMU's option for the cable.
func (s *Site) Tap(name string, addresses ...string) (netdev string) {
	s.T.Helper()
	if err := s.NS.Tap(name, addresses...); err != nil {
		s.T.Fatal(err)
	}
	return "tap,ifname=" + name + ",script=no,downscript=no,vnet_hdr=off"
}

// Dnsmasq serves DHCP and router advertisements in the namespace.
func (s *Site) Dnsmasq(args ...string) {
	s.T.Helper()
	testenv.Programs(s.T, "dnsmasq")
	all := append([]string{
		"--no-daemon", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping", "--dhcp-authoritative",
		"--user=root", "--group=root", "--log-dhcp", "--dhcp-leasefile=" + filepath.Join(s.T.TempDir(), "leases"),
	}, args...)
	s.Run("dnsmasq", all...)
}

// Run starts a program in the namespace. It is killed at the end of the test.
func (s *Site) Run(name string, args ...string) {
	s.T.Helper()
	cmd := exec.CommandContext(s.T.Context(), name, args...)
	if cmd.Err != nil {
		cmd.Path, cmd.Err = filepath.Join("/usr/sbin", name), nil
	}
	cmd.Stdout, cmd.Stderr = s.T.Output(), s.T.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	wait, err := s.NS.Start(cmd)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = wait()             // it was killed
	})
}

// StartIronic starts a conductor at an address of the namespace. heartbeats is the heartbeat timeout that it sends to
// the agent.
func (s *Site) StartIronic(
	address netip.Addr, mac string, heartbeats time.Duration, change ...func(*conductor.Options),
) {
	s.T.Helper()
	options := conductor.Options{
		Addr: netip.AddrPortFrom(address, 0).String(), TLS: true, HeartbeatTimeout: heartbeats,
		CommandTimeout: OperationTimeout, Dialer: s.NS,
	}
	for _, f := range change {
		f(&options)
	}
	err := s.NS.Do(func() (err error) {
		s.Ironic, err = conductor.New(options)
		return err
	})
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		_ = s.Ironic.Close()
		for _, text := range s.Ironic.Violations() {
			s.T.Errorf("the agent violated the protocol: %s", text)
		}
	})
	s.Node = s.Ironic.AddNode(conductor.NodeSpec{Name: "site", MACs: []string{mac}})
	s.Node.SetState(conductor.DeployWait)
}

// BootAs starts a machine with the ramdisk. Empty fields of c are set.
func (s *Site) BootAs(c qemu.Config, parameters string) {
	s.T.Helper()
	testenv.Programs(s.T, "qemu-system-x86_64")
	c.Name, c.Dir, c.Memory, c.NetNS = s.T.Name(), s.T.TempDir(), cmp.Or(c.Memory, 384*MiB), s.NS.Path()
	c.Kernel = testenv.Build(s.T, "ipa-ironroot-amd64.kernel")
	if c.Initrd == "" {
		c.Initrd = testenv.Build(s.T, "ipa-ironroot-amd64.initramfs")
	}
	c.Append = "console=ttyS0,115200n8 loglevel=4 ipa-debug=1 ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 " +
		qemu.KernelHints + " " + parameters
	machine, err := qemu.Start(s.T.Context(), c)
	if err != nil {
		s.T.Fatal(err)
	}
	s.Machine = machine
	s.T.Cleanup(func() {
		_ = machine.Stop() // it may have ended already
		console, err := os.ReadFile(filepath.Join(machine.Dir(), "console.log"))
		if err != nil || strings.Contains(string(console), "panic") ||
			strings.Contains(string(console), s.Node.Token()) && s.Node.Token() != "" {
			s.T.Errorf("the console shows a panic or the token, or is not there: %v", err)
		}
		if s.T.Failed() {
			s.T.Logf("the console ends with\n%s", machine.Console().Tail(80))
		}
	})
}

// WaitAgent waits for the first heartbeat.
func (s *Site) WaitAgent(t *testing.T) {
	t.Helper()
	if err := s.Node.WaitAgent(Soon(t)); err != nil {
		t.Fatal(err)
	}
}

// Follow waits until the console matches an expression and returns its groups.
func (s *Site) Follow(t *testing.T, expression string) []string {
	t.Helper()
	match, err := s.Machine.Console().Follow(Soon(t), regexp.MustCompile(expression))
	if err != nil {
		t.Fatal(err)
	}
	return match.Groups
}
