//go:build linux

package e2e

import (
	"cmp"
	"context"
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

// site is a namespace at the other end of a machine's cables, with Ironic and the servers that a test starts. The
// machine has no other network.
type site struct {
	t       *testing.T
	ns      *netns.Namespace
	ironic  *conductor.Conductor
	node    *conductor.Node
	machine *qemu.Machine
}

func newSite(t *testing.T) *site { return &site{t: t, ns: newNamespace(t)} }

// tap creates the host's end of a cable with addresses, and returns QEMU's option for the cable.
func (s *site) tap(name string, addresses ...string) (netdev string) {
	s.t.Helper()
	if err := s.ns.Tap(name, addresses...); err != nil {
		s.t.Fatal(err)
	}
	return "tap,ifname=" + name + ",script=no,downscript=no,vnet_hdr=off"
}

// dnsmasq serves DHCP and router advertisements in the namespace.
func (s *site) dnsmasq(args ...string) {
	s.t.Helper()
	testenv.Programs(s.t, "dnsmasq")
	all := append([]string{
		"--no-daemon", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping", "--dhcp-authoritative",
		"--user=root", "--group=root", "--log-dhcp", "--dhcp-leasefile=" + filepath.Join(s.t.TempDir(), "leases"),
	}, args...)
	s.run("dnsmasq", all...)
}

// run starts a program in the namespace. It is killed at the end of the test.
func (s *site) run(name string, args ...string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), name, args...)
	if cmd.Err != nil {
		cmd.Path, cmd.Err = filepath.Join("/usr/sbin", name), nil
	}
	cmd.Stdout, cmd.Stderr = s.t.Output(), s.t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	wait, err := s.ns.Start(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = wait()             // it was killed
	})
}

// startIronic starts a conductor at an address of the namespace. heartbeats is the heartbeat timeout that it sends to
// the agent.
func (s *site) startIronic(
	address netip.Addr, mac string, heartbeats time.Duration, change ...func(*conductor.Options),
) {
	s.t.Helper()
	options := conductor.Options{
		Addr: netip.AddrPortFrom(address, 0).String(), TLS: true, HeartbeatTimeout: heartbeats,
		CommandTimeout: operationTimeout, Dial: s.ns.Dial,
	}
	for _, f := range change {
		f(&options)
	}
	err := s.ns.Do(func() (err error) {
		s.ironic, err = conductor.New(options)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = s.ironic.Close()
		for _, text := range s.ironic.Violations() {
			s.t.Errorf("the agent violated the protocol: %s", text)
		}
	})
	s.node = s.ironic.AddNode(conductor.NodeSpec{Name: "site", MACs: []string{mac}})
	s.node.SetState(conductor.DeployWait)
}

// boot starts the machine with the ramdisk and the address of Ironic.
func (s *site) boot(parameters string, nics ...qemu.NIC) {
	s.t.Helper()
	s.bootAs(qemu.Config{NICs: nics}, "ipa-insecure=1 ipa-api-url="+s.ironic.URL()+" "+parameters)
}

// bootAs starts a machine with the ramdisk. Empty fields of c are set.
func (s *site) bootAs(c qemu.Config, parameters string) {
	s.t.Helper()
	testenv.Programs(s.t, "qemu-system-x86_64")
	c.Name, c.Dir, c.Memory, c.NetNS = s.t.Name(), s.t.TempDir(), cmp.Or(c.Memory, 384*mib), s.ns.Path()
	c.Kernel = testenv.Build(s.t, "ipa-ironroot-amd64.kernel")
	if c.Initrd == "" {
		c.Initrd = testenv.Build(s.t, "ipa-ironroot-amd64.initramfs")
	}
	c.Append = "console=ttyS0,115200n8 loglevel=4 ipa-debug=1 ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 " +
		qemu.KernelHints + " " + parameters
	machine, err := qemu.Start(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.machine = machine
	s.t.Cleanup(func() {
		_ = machine.Stop() // it may have ended already
		console, err := os.ReadFile(filepath.Join(machine.Dir(), "console.log"))
		if err != nil || strings.Contains(string(console), "panic") ||
			strings.Contains(string(console), s.node.Token()) && s.node.Token() != "" {
			s.t.Errorf("the console shows a panic or the token, or is not there: %v", err)
		}
		if s.t.Failed() {
			s.t.Logf("the console ends with\n%s", machine.Console().Tail(80))
		}
	})
}

// waitAgent waits for the first heartbeat.
func (s *site) waitAgent(t *testing.T) {
	t.Helper()
	if err := s.node.WaitAgent(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// follow waits until the console matches an expression and returns its groups.
func (s *site) follow(t *testing.T, expression string) []string {
	t.Helper()
	match, err := s.machine.Console().Follow(soon(t), regexp.MustCompile(expression))
	if err != nil {
		t.Fatal(err)
	}
	return match.Groups
}

// answers runs a command through the callback URL, as Ironic does.
func (s *site) answers(t *testing.T) {
	t.Helper()
	record, err := s.node.Command(soon(t), "standby.get_partition_uuids", nil, true)
	if err != nil || record.Status != conductor.Succeeded {
		url, _ := s.node.Callback()
		t.Errorf("a command through %s: got %+v, %v, want success", url, record, err)
	}
}

// connects waits until an address of the machine accepts connections, because a new address is not usable at once.
func (s *site) connects(t *testing.T, address string) {
	t.Helper()
	ctx := soon(t)
	for {
		conn, err := s.ns.Dial(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: %v: %v", address, context.Cause(ctx), err)
		}
	}
}
