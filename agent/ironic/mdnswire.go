package ironic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

const (
	mdnsTimeout        = 3 * time.Second // limits the wait for a service
	mdnsRepeatInterval = time.Second
	mdnsMaxLinks       = 64
	mdnsMaxPacket      = 9000 // RFC 6762, 17
	mdnsMaxText        = 64   // entries of a TXT record
	mdnsMaxAddr        = 16   // addresses of a host
)

// askService queries an instance of a service on all interfaces concurrently and waits for a complete response. It
// also queries interfaces that become usable meanwhile, and repeats all queries every second (RFC 6762, 5.2). Queries
// use an ephemeral port, so that responders answer by unicast to this socket (RFC 6762, 6.7). A response must have
// the random id of its query. askService fails after wait.
func askService(
	ctx context.Context, wait time.Duration, instance string, interfaces []string, changed func() <-chan struct{},
) (service, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	name, err := dnsmessage.NewName(instance)
	if err != nil {
		return service{}, err
	}
	a := search{name: name, answers: make(chan service), open: map[socketKey]*question{}}
	defer a.close()
	again := time.NewTicker(mdnsRepeatInterval)
	defer again.Stop()
	for {
		change := changed()
		if err := a.askAll(ctx, interfaces); err != nil {
			return service{}, err
		}
		select {
		case s := <-a.answers:
			return s, nil
		case <-change:
		case <-again.C:
			a.repeat()
		case <-ctx.Done():
			return service{}, fmt.Errorf("no response to %d queries: %w",
				len(a.open), errors.Join(append(a.failed, ctx.Err())...))
		}
	}
}

// search is the search for one service.
type search struct {
	name    dnsmessage.Name
	answers chan service
	open    map[socketKey]*question
	failed  []error // of the interfaces that cannot be queried now
}

// socketKey identifies the socket of a query by interface and protocol.
type socketKey struct {
	link    int
	network string
}

// askAll queries all interfaces that have not been queried yet.
func (a *search) askAll(ctx context.Context, interfaces []string) error {
	links, err := mdnsLinks(interfaces)
	if err != nil {
		return err
	}
	a.failed = nil
	for _, link := range links[:min(len(links), mdnsMaxLinks)] {
		for _, network := range []string{"udp4", "udp6"} {
			key := socketKey{link.Index, network}
			if a.open[key] != nil {
				continue
			}
			q, err := a.ask(ctx, link, network)
			if err != nil {
				a.failed = append(a.failed, fmt.Errorf("%s, %s: %w", link.Name, network, err))
				continue
			}
			a.open[key] = q
			goroutine.Go(func() error {
				q.listen(ctx, a.answers)
				return nil
			}, nil)
		}
	}
	return nil
}

func (a *search) ask(ctx context.Context, link net.Interface, network string) (*question, error) {
	conn, group, err := openMDNS(ctx, link, network)
	if err != nil {
		return nil, err
	}
	q := &question{conn: conn, group: group, link: link, name: a.name, id: uint16(rand.Uint32())}
	if err := q.send(a.name, dnsmessage.TypeSRV, dnsmessage.TypeTXT); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return q, nil
}

// repeat repeats all queries, because packets can get lost.
func (a *search) repeat() {
	for _, q := range a.open {
		_ = q.send(a.name, dnsmessage.TypeSRV, dnsmessage.TypeTXT) // the first query was sent successfully
	}
}

func (a *search) close() {
	for _, q := range a.open {
		_ = q.conn.Close() // ends its reader
	}
}

// mdnsLinks returns the interfaces that are up and support multicast. If addresses is not empty, it returns only those
// with one of the addresses.
func mdnsLinks(addresses []string) ([]net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	const need = net.FlagUp | net.FlagMulticast
	return slices.DeleteFunc(all, func(link net.Interface) bool {
		if link.Flags&need != need || link.Flags&net.FlagLoopback != 0 {
			return true
		}
		own, err := link.Addrs()
		return len(addresses) > 0 && (err != nil || !slices.ContainsFunc(own, func(a net.Addr) bool {
			prefix, err := netip.ParsePrefix(a.String())
			return err == nil && slices.Contains(addresses, prefix.Addr().String())
		}))
	}), nil
}

// openMDNS opens a socket that sends multicast packets by link.
func openMDNS(ctx context.Context, link net.Interface, network string) (net.PacketConn, net.Addr, error) {
	group := &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: mdnsPort}
	set := func(fd int) error {
		return errors.Join(unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF,
			&unix.IPMreqn{Ifindex: int32(link.Index)}),
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 255))
	}
	if network == "udp6" {
		group = &net.UDPAddr{IP: net.ParseIP("ff02::fb"), Port: mdnsPort, Zone: link.Name}
		set = func(fd int) error {
			return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, link.Index),
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255))
		}
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = set(int(fd)) })
		return errors.Join(err, failed)
	}}
	conn, err := lc.ListenPacket(ctx, network, ":0")
	return conn, group, err
}

// question is a query on one interface with the records received so far.
type question struct {
	conn  net.PacketConn
	group net.Addr
	link  net.Interface
	name  dnsmessage.Name
	id    uint16

	found     service
	addresses map[string][]netip.Addr // by host in lower case
	asked     bool                    // the host's addresses were queried
}

// send queries records of a name.
func (q *question) send(name dnsmessage.Name, kinds ...dnsmessage.Type) error {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: q.id}}
	for _, kind := range kinds {
		m.Questions = append(m.Questions, dnsmessage.Question{Name: name, Type: kind, Class: dnsmessage.ClassINET})
	}
	data, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = q.conn.WriteTo(data, q.group)
	return err
}

// listen reads responses until the service is complete or the context ends.
func (q *question) listen(ctx context.Context, answers chan<- service) {
	defer goroutine.AfterContext(ctx, func() { _ = q.conn.SetReadDeadline(time.Unix(1, 0)) })()
	buffer := make([]byte, mdnsMaxPacket)
	for ctx.Err() == nil {
		n, _, err := q.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		complete := false
		err = goroutine.Catch(func() error { // a packet that causes a panic is dropped
			complete = q.take(buffer[:n])
			return nil
		})
		if err != nil || !complete {
			continue
		}
		select {
		case answers <- q.result():
		case <-ctx.Done():
		}
		return
	}
}

// take adds the records of a packet and reports whether the service is complete.
func (q *question) take(packet []byte) bool {
	if err := q.parse(packet); err != nil || q.found.host == "" || q.found.text == nil {
		return false
	}
	host := strings.ToLower(q.found.host)
	if !strings.HasSuffix(host, ".local.") || len(q.addresses[host]) > 0 {
		return true
	}
	if target, err := dnsmessage.NewName(q.found.host); err == nil && !q.asked && q.conn != nil {
		q.asked = q.send(target, dnsmessage.TypeA, dnsmessage.TypeAAAA) == nil
	}
	return false
}

func (q *question) result() service {
	q.found.addresses = q.addresses[strings.ToLower(q.found.host)]
	return q.found
}

// parse reads the records of a response that belong to the query.
func (q *question) parse(packet []byte) error {
	var p dnsmessage.Parser
	header, err := p.Start(packet)
	if err != nil {
		return err
	}
	if !header.Response || header.ID != q.id || header.RCode != dnsmessage.RCodeSuccess {
		return errors.New("packet is not a response to the query")
	}
	if err := p.SkipAllQuestions(); err != nil {
		return err
	}
	if err := q.records(p.AnswerHeader, p.SkipAnswer, &p); err != nil {
		return err
	}
	if err := p.SkipAllAuthorities(); err != nil {
		return err
	}
	return q.records(p.AdditionalHeader, p.SkipAdditional, &p)
}

// records reads all records of a section.
func (q *question) records(
	next func() (dnsmessage.ResourceHeader, error), skip func() error, p *dnsmessage.Parser,
) error {
	for {
		header, err := next()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err != nil {
			return err
		}
		mine := strings.EqualFold(header.Name.String(), q.name.String())
		switch {
		case mine && header.Type == dnsmessage.TypeSRV:
			err = q.srv(p)
		case mine && header.Type == dnsmessage.TypeTXT:
			err = q.txt(p)
		case header.Type == dnsmessage.TypeA:
			var r dnsmessage.AResource
			if r, err = p.AResource(); err == nil {
				q.address(header, netip.AddrFrom4(r.A))
			}
		case header.Type == dnsmessage.TypeAAAA:
			var r dnsmessage.AAAAResource
			if r, err = p.AAAAResource(); err == nil {
				q.address(header, netip.AddrFrom16(r.AAAA).Unmap())
			}
		default:
			err = skip()
		}
		if err != nil {
			return err
		}
	}
}

func (q *question) srv(p *dnsmessage.Parser) error {
	r, err := p.SRVResource()
	if err == nil && q.found.host == "" && r.Port != 0 {
		q.found.host, q.found.port = r.Target.String(), int(r.Port)
	}
	return err
}

// txt reads key=value entries (RFC 6763, 6.3). The first entry of a key takes precedence.
func (q *question) txt(p *dnsmessage.Parser) error {
	r, err := p.TXTResource()
	if err != nil || q.found.text != nil {
		return err
	}
	q.found.text = map[string]string{}
	for _, entry := range r.TXT[:min(len(r.TXT), mdnsMaxText)] {
		key, value, ok := strings.Cut(entry, "=")
		if _, known := q.found.text[key]; ok && key != "" && !known {
			q.found.text[key] = value
		}
	}
	return nil
}

// address stores an address of a host. A link-local address gets the zone of the receiving interface.
func (q *question) address(header dnsmessage.ResourceHeader, address netip.Addr) {
	if address.Is6() && address.IsLinkLocalUnicast() {
		address = address.WithZone(q.link.Name)
	}
	host := strings.ToLower(header.Name.String())
	if q.addresses == nil {
		q.addresses = map[string][]netip.Addr{}
	}
	list := q.addresses[host]
	if len(list) < mdnsMaxAddr && len(q.addresses) < mdnsMaxAddr && !slices.Contains(list, address) {
		q.addresses[host] = append(list, address)
	}
}
