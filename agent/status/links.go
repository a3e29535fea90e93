package status

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ironroot/netboot/lldp"
	"ironroot/netboot/snapshot"
	"ironroot/storage/sysfs"
)

// Source is the network that a board displays.
type Source interface {
	Links() []snapshot.Link
	Changed() <-chan struct{} // closed at the next change
	LLDP() map[string]lldp.Frame
}

// Follow updates the board's links from the network until ctx ends.
func (b *Board) Follow(ctx context.Context, n Source) {
	files := sysfs.Reader{}
	for {
		changed := n.Changed()
		known := n.Links()
		b.setNetwork(hostname(), nameServers("/etc/resolv.conf"), known,
			describe(known, n.LLDP(), func(link string) int {
				return linkSpeed(&files, filepath.Join("/sys/class/net", link))
			}))
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// describe converts links with their LLDP frames and speeds.
func describe(all []snapshot.Link, frames map[string]lldp.Frame, speedOf func(link string) int) []Link {
	var links []Link
	for _, known := range all {
		l := Link{
			Name: known.Name, MAC: known.MAC.String(), Up: known.Up, Carrier: known.Carrier,
			Neighbour: known.History.Neighbour, VLANs: frames[known.Name].VLANs(),
			Trouble: trouble(known),
		}
		if l.Carrier {
			l.Speed = speedOf(l.Name)
		}
		for _, prefix := range known.Addresses {
			if prefix.Addr().IsGlobalUnicast() {
				l.Addresses = append(l.Addresses, prefix)
			}
		}
		links = append(links, l)
	}
	return links
}

// trouble returns a short description of a link's failure, "" without one.
func trouble(l snapshot.Link) string {
	asked := l.History.DHCP
	switch {
	case asked.Rejected != "":
		return asked.Rejected
	case l.Err != nil && l.Lease == nil && asked.Sent > 1:
		return fmt.Sprintf("%v to %d requests", l.Err, asked.Sent)
	case l.Err != nil:
		return l.Err.Error()
	}
	return ""
}

// linkSpeed returns the current speed of the link with the sysfs directory dir in Mbit/s, 0 if the driver does not
// report it.
func linkSpeed(files *sysfs.Reader, dir string) int {
	text, err := files.Read(filepath.Join(dir, "speed"))
	if err != nil {
		return 0
	}
	mbps, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil || mbps < 0 { // -1 is the kernel's "unknown"
		return 0
	}
	return mbps
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// nameServers reads the resolver's file (resolv.conf(5)).
func nameServers(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // the file does not exist before the first lease
	}
	var servers []string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			servers = append(servers, words[1])
		}
	}
	return servers
}
