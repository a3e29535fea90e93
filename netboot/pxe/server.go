package pxe

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/netboot/server"
)

// Server is a running set of servers.
type Server struct {
	options  Options
	own      netip.Prefix
	source   *source
	attempts *attempts

	ctx     context.Context // its end stops the servers
	cancel  context.CancelFunc
	group   *goroutine.Group
	failure error       // what has stopped the servers; set by a goroutine of group
	closers []io.Closer // in the order of start

	closeOnce sync.Once
	closeErr  error
}

// The defaults of the times in Options. Servers reply late if they first check that nobody has the address: dnsmasq
// after 3 s.
const (
	searchTime     = 6 * time.Second
	searchInterval = time.Minute
	stallTime      = time.Minute
)

const tftpPort = 69

// Start starts the servers, in the network namespace of the process. They run until ctx ends or Close is called. If
// this package is to assign addresses, Start first searches for other DHCP servers, which takes 6 s; if there is one,
// the error is an *OtherServerError.
func Start(ctx context.Context, o Options) (*Server, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	own, err := address(o.Interface, o.Address)
	if err != nil {
		return nil, err
	}
	a := newAttempts(o.Log, o.stallTime)
	s := &Server{options: o, own: own, attempts: a, source: newSource(o, a), group: goroutine.NewGroup()}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (o *Options) setDefaults() {
	for _, log := range []**slog.Logger{&o.Log, &o.Details} {
		if *log == nil {
			*log = slog.New(slog.DiscardHandler)
		}
	}
	o.searchTime = cmp.Or(o.searchTime, searchTime)
	o.searchInterval = cmp.Or(o.searchInterval, searchInterval)
	o.stallTime = cmp.Or(o.stallTime, stallTime)
}

func (s *Server) start() error {
	if s.options.Addresses != nil {
		// Before this machine sends anything else.
		if err := s.search(s.ctx); err != nil {
			return err
		}
	}
	files := server.FilesConfig{
		Log: s.options.Details, Listen: netip.AddrPortFrom(s.own.Addr(), s.options.HTTPPort),
		Interface: s.options.Interface, Source: s.source, Requests: s.attempts,
	}
	web, err := server.ListenHTTP(s.ctx, files)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, web)
	s.source.setAddress(web.Addr().String())
	files.Listen = netip.AddrPortFrom(s.own.Addr(), tftpPort)
	transfers, err := server.ListenTFTP(s.ctx, files)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, transfers)
	if s.options.Addresses == nil {
		return s.startProxy()
	}
	return s.startDHCP()
}

// startProxy adds boot files to the addresses of the network's DHCP server, and reports that server.
func (s *Server) startProxy() error {
	proxy, err := server.ListenProxy(s.ctx, server.ProxyConfig{
		Log: s.options.Details, Interface: s.options.Interface, Address: s.own.Addr(),
		Boot: server.Boot{Files: s.source},
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, proxy)
	s.group.Go(func() error {
		s.report()
		return nil
	})
	return nil
}

// startDHCP assigns addresses, until another server does so.
func (s *Server) startDHCP() error {
	a := *s.options.Addresses
	hosts := map[string]server.Host{}
	for _, m := range s.options.Machines {
		hosts[m.MAC.String()] = server.Host{}
	}
	dhcp, err := server.ListenDHCP(s.ctx, server.DHCPConfig{
		Log: s.options.Details, Interface: s.options.Interface, Address: s.own, First: a.First, Last: a.Last,
		Fixed: hosts, Listed: true, Exclusive: true, Router: a.Router, DNS: a.DNS,
		Boot: &server.Boot{Files: s.source},
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, dhcp)
	s.group.Go(func() error {
		s.failure = s.watch()
		s.cancel()
		return nil
	})
	return nil
}

// URL returns the URL of the files. A machine's are in a directory with its MAC address as name.
func (s *Server) URL() string { return "http://" + s.source.address + "/" }

// Wait waits until the servers have ended. The error is the reason, nil if ctx of Start has ended or Close was called.
func (s *Server) Wait() error {
	<-s.ctx.Done()
	err := s.Close() // waits for group
	return errors.Join(s.failure, err)
}

// Close stops the servers.
func (s *Server) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Server) close() error {
	s.cancel()
	s.attempts.close()
	var errs []error
	for _, c := range slices.Backward(s.closers) {
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, s.group.Wait())...)
}

// search searches for other DHCP servers. The error is an *OtherServerError if one assigns addresses.
func (s *Server) search(ctx context.Context) error {
	found, err := server.Probe(ctx, s.options.Interface, s.options.searchTime)
	if err != nil {
		return err
	}
	for _, other := range found {
		if other.Addresses && other.Server != s.own.Addr() {
			return &OtherServerError{Interface: s.options.Interface, Server: other.Server}
		}
	}
	return ctx.Err()
}

// watch searches for other DHCP servers again and again, and returns an error when there is one.
func (s *Server) watch() error {
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case <-time.After(s.options.searchInterval):
		}
		err := s.search(s.ctx)
		var other *OtherServerError
		if errors.As(err, &other) {
			return err
		}
		if err != nil && s.ctx.Err() == nil {
			s.options.Log.Warn("other DHCP servers not searched for", "err", err)
		}
	}
}

// report logs what the network's own servers offer, because machines need it, or boot from it.
func (s *Server) report() {
	found, err := server.Probe(s.ctx, s.options.Interface, s.options.searchTime)
	if err != nil || s.ctx.Err() != nil {
		if s.ctx.Err() == nil {
			s.options.Log.Warn("DHCP server of the network not searched for", "err", err)
		}
		return
	}
	addresses := false
	for _, other := range found {
		addresses = addresses || other.Addresses
		if other.BootFile != "" {
			s.options.Log.Warn("another server offers a boot file, which machines can choose", "server", other.Server,
				"file", other.BootFile)
		}
	}
	if !addresses {
		s.options.Log.Warn("no DHCP server answers: machines get no address", "interface", s.options.Interface,
			"waited", s.options.searchTime)
	}
}
