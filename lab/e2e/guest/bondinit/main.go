//go:build linux

// Command bondinit is the /init of the machine at the other end of a node's two cables: the switch's side of an LACP
// bond (IEEE 802.3ad) with VLAN 100 and Ironic on it. It prints how the node is reached: "HEARTBEAT URL", "LACP PORTS
// PARTNER", "REACHED ADDRESS" for each address in the kernel parameter node and, after one cable was cut, "STILL
// REACHED ADDRESS".
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/lab/conductor"
	"ironroot/uinit/boot"
)

// linkTimeout limits the wait for the node's cables, which takes seconds on an idle host.
const linkTimeout = 5 * time.Minute

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		<-m.Settled
		err := run(ctx, m)
		if err != nil {
			fmt.Printf("FAILED %v\n", err)
		}
		return err
	})
}

func run(ctx context.Context, m *boot.Machine) error {
	if err := cable(); err != nil {
		return err
	}
	ironic, err := conductor.New(conductor.Options{Addr: "192.0.2.1:6385", TLS: true})
	if err != nil {
		return err
	}
	node := ironic.AddNode(conductor.NodeSpec{Name: "bonded", MACs: strings.Split(m.Params["macs"], ",")})
	node.SetState(conductor.DeployWait)
	if err := node.WaitAgent(ctx); err != nil {
		return err
	}
	url, _ := node.Callback()
	fmt.Printf("HEARTBEAT %s\n", url)
	if err := reach(ctx, "REACHED", m.Params["node"]); err != nil {
		return err
	}
	if err := aggregated(ctx); err != nil {
		return err
	}
	first, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(first); err != nil {
		return err
	}
	return reach(ctx, "STILL REACHED", m.Params["node"])
}

// cable creates the bond of both cards and its VLAN.
func cable() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "bond0"
	bond := netlink.NewLinkBond(attrs)
	bond.Mode, bond.Miimon, bond.LacpRate = netlink.BOND_MODE_802_3AD, 100, netlink.BOND_LACP_RATE_FAST
	if err := netlink.LinkAdd(bond); err != nil {
		return fmt.Errorf("bond: %w", err)
	}
	for _, name := range []string{"eth0", "eth1"} {
		card, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetMasterByIndex(card, bond.Index)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	attrs = netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = "bond0.100", bond.Index
	vlan := &netlink.Vlan{LinkAttrs: attrs, VlanId: 100}
	if err := netlink.LinkAdd(vlan); err != nil {
		return fmt.Errorf("VLAN: %w", err)
	}
	for _, text := range []string{"192.0.2.1/24", "2001:db8:7::1/64"} {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if address.IP.To4() == nil {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(vlan, address); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	for _, link := range []netlink.Link{bond, vlan} {
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("%s: %w", link.Attrs().Name, err)
		}
	}
	return nil
}

// aggregated waits until both cables are ports of one aggregator, and prints the partner. The second port can join
// after the node was reached through the first. The driver sends no notifications, so its state is polled.
func aggregated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := os.ReadFile("/proc/net/bonding/bond0")
		if err != nil {
			return err
		}
		ports := field(string(status), "Number of ports:")
		if ports == "2" {
			fmt.Printf("LACP %s %s\n", ports, field(string(status), "Partner Mac Address:"))
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("got %s ports in the aggregator, want 2: %w", ports, ctx.Err())
		}
	}
}

// field returns the value of a field of the bonding driver's report.
func field(report, name string) string {
	_, rest, _ := strings.Cut(report, name)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// reach connects to the agent at each address, and prints word and address. A connection takes longer if a neighbour
// is new or if a bond has just lost a member. While ports join or leave the bond, every solicitation of a neighbour can
// be lost; the kernel then reports that there is no route, and the next attempt solicits again.
func reach(ctx context.Context, word, addresses string) error {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	for address := range strings.SplitSeq(addresses, ",") {
		conn, err := connect(ctx, net.JoinHostPort(address, "9999"))
		for errors.Is(err, unix.EHOSTUNREACH) {
			fmt.Printf("RETRY %v\n", err)
			conn, err = connect(ctx, net.JoinHostPort(address, "9999"))
		}
		if err != nil {
			return err
		}
		if err := conn.Close(); err != nil {
			return err
		}
		fmt.Printf("%s %s\n", word, address)
	}
	return nil
}

func connect(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: linkTimeout}
	return dialer.DialContext(ctx, "tcp", address)
}
