//go:build linux

package network

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

const (
	floodNode        = "10.77.0.10"
	floodConductor   = "10.77.0.1"
	floodPeers       = 1000
	floodConnections = 5000
	floodWorkers     = 40
	floodRefusers    = 8
	floodRefused     = 100 // requests
	floodMemory      = 256 * rig.MiB
	// keptStrangers is the number of connections that the agent keeps open for peers without a token.
	keptStrangers = 256
	// ownedLimit is the maximum number of the agent's connections, including connections that are closing and
	// connections of peers with a token.
	ownedLimit = 512
	// openLimit is the maximum number of connections that strangers have open: the agent's, and connections that the
	// kernel accepts or is about to accept, 512 each.
	openLimit = ownedLimit + 2*512 + floodWorkers
	// unfinishedHeader is the size of incomplete headers, just below the limit of 16 KiB plus the 4 KiB that net/http
	// adds.
	unfinishedHeader = 19 << 10
	// commandTimeout is Ironic's time limit for a reply.
	commandTimeout = 60 * time.Second
)

// stranger returns the i-th address from which connections are held.
func stranger(i int) string { return fmt.Sprintf("10.77.%d.%d", 4+i/250, 1+i%250) }

// refuser returns the i-th address from which requests without the token are sent.
func refuser(i int) string { return fmt.Sprintf("10.77.8.%d", 1+i) }

// newConductor is an address that is new to the agent.
const newConductor = "10.77.9.1"

// TestFlood deploys to a machine with little memory while 1,000 addresses open 5,000 connections, and others send
// requests without the token. Commands are polled every second, as Ironic does. With TLS, half of the connections are
// in the middle of a handshake. Without TLS, three quarters of them send an incomplete header of almost the maximum
// size. The others are idle between two requests, which is allowed for two minutes: only the limits close them
// earlier.
func TestFlood(t *testing.T) {
	t.Parallel()
	t.Run("TLS", func(t *testing.T) { testFlood(t, true) })
	t.Run("plain", func(t *testing.T) { testFlood(t, false) })
}

func testFlood(t *testing.T, withTLS bool) {
	const mac = "52:54:00:e2:e0:77"
	s := rig.NewSite(t)
	addresses := []string{floodConductor + "/16", newConductor + "/16"}
	for i := range floodPeers {
		addresses = append(addresses, stranger(i)+"/16")
	}
	for i := range floodRefusers {
		addresses = append(addresses, refuser(i)+"/16")
	}
	netdev := s.Tap("flood", addresses...)
	s.Dnsmasq("--interface=flood", "--dhcp-range="+floodNode+","+floodNode+",1h")
	s.StartIronic(netip.MustParseAddr(floodConductor), mac, 5*time.Minute, func(o *conductor.Options) {
		o.PlainAgents = !withTLS
	})
	disk := rig.File(t, "disk", 5<<30, nil)
	image := rig.MBRImage(t, "image", 256*rig.MiB)
	flooded := make(chan struct{}) // closed when all connections were opened
	machine := qemu.Config{
		Memory: floodMemory, NICs: []qemu.NIC{{MAC: mac, Netdev: netdev}},
		Disks: []qemu.Disk{{File: disk, Serial: "disk"}},
	}
	if !withTLS {
		const conf = "[DEFAULT]\nenable_auto_tls = false\n"
		machine.Initrd = initramfsWith(s, cpio.StaticFile("etc/ironic-python-agent.d/plain.conf", conf, 0o644))
	}
	s.BootAs(machine, "ipa-insecure=1 ipa-api-url="+s.Ironic.URL())
	s.WaitAgent(t)
	answers(t, s) // from now on the agent knows the conductor's address

	record, err := s.Node.Command(rig.Soon(t), "standby.prepare_image", map[string]any{"image_info": map[string]any{
		"id": "image", "urls": []string{serveSlowly(t, s, image, flooded)}, "disk_format": "raw",
		"stream_raw_images": true,
		"os_hash_algo":      "sha256", "os_hash_value": rig.SumAll(t, image),
	}}, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &flood{site: s, withTLS: withTLS, half: make(chan struct{}), changed: make(chan struct{})}
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() {
		f.connect(ctx, t)
		f.settle(t)
		close(flooded)
	})
	parts.Go(func() {
		select {
		case <-f.half:
		case <-ctx.Done():
		}
		if status, err := f.list(ctx, newConductor, s.Node.Token()); err != nil || status != http.StatusOK {
			t.Errorf("conductor that is not known yet: got %d, %v, want 200", status, err)
		}
	})
	parts.Go(func() { f.refuse(ctx) })
	polls, longest := f.poll(t, record.ID)
	select {
	case <-flooded:
	default:
		t.Error("the deployment ended before the flood was complete")
	}
	f.check(t)
	t.Logf("%d polls, the longest took %v", polls, longest.Round(time.Millisecond))
	cancel()
	if got, want := rig.Sum(t, disk, 0, rig.SizeOf(t, image)), rig.SumAll(t, image); got != want {
		t.Errorf("the disk's SHA-256 is %s, want the image's, %s", got, want)
	}
	for _, line := range []string{"requests without a valid token not logged", "connections closed: over the limit"} {
		s.Follow(t, line) // logged at the end of each minute
	}
	if err := s.Node.CollectLogs(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	journal := testenv.Untar(t, s.Node.Logs())["journal"]
	for _, want := range []string{
		"node found", "requests without a valid token not logged", "connections closed: over the limit",
	} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal lacks %q", want)
		}
	}
}

// serveSlowly serves a file and returns its URL. The second half is limited to 1 MiB/s until the flood is complete.
func serveSlowly(t *testing.T, s *rig.Site, path string, flooded <-chan struct{}) string {
	t.Helper()
	l, err := s.NS.Listen(t.Context(), "tcp4", floodConductor+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: rig.OperationTimeout}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		image, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer image.Close()
		http.ServeContent(w, r, "", time.Time{},
			&slowFile{file: image, slow: rig.SizeOf(t, path) / 2, flooded: flooded, gone: r.Context().Done()})
	})
	go func() { _ = server.Serve(l) }() // ends with the test
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + l.Addr().String() + "/" + filepath.Base(path)
}

// slowFile is a file that is slow after an offset.
type slowFile struct {
	file          *os.File // not embedded: net would send it with sendfile(2)
	at, slow      int64
	flooded, gone <-chan struct{}
}

func (f *slowFile) Seek(offset int64, whence int) (int64, error) {
	at, err := f.file.Seek(offset, whence)
	f.at = at
	return at, err
}

func (f *slowFile) Read(p []byte) (int, error) {
	if f.at >= f.slow {
		p = p[:min(len(p), 32<<10)]
		select {
		case <-time.After(time.Second / 32):
		case <-f.flooded:
		case <-f.gone:
		}
	}
	n, err := f.file.Read(p)
	f.at += int64(n)
	return n, err
}

// flood is the strangers' load on the agent.
type flood struct {
	site    *rig.Site
	withTLS bool
	half    chan struct{} // closed when half of the connections were opened

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	counts  floodCounts
}

// floodCounts are numbers of connections as seen by the strangers.
type floodCounts struct {
	made            int
	open, maxOpen   int // not closed by the agent; possibly accepted only by the kernel
	heard           int // on which the agent replied, so that it has accepted them
	owned, maxOwned int // the heard ones that the agent has not closed
	answered        int // on which it replied to a request
	refused         int // requests with a wrong token
}

func (c floodCounts) String() string {
	return fmt.Sprintf("%d connections, %d answered at all, %d requests answered; %d open, at most %d at a time; "+
		"%d owned by the agent, at most %d at a time; %d requests refused", c.made, c.heard, c.answered, c.open,
		c.maxOpen, c.owned, c.maxOwned, c.refused)
}

// count changes the counts and wakes settle.
func (f *flood) count(change func(*floodCounts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.counts)
	f.counts.maxOpen = max(f.counts.maxOpen, f.counts.open)
	f.counts.maxOwned = max(f.counts.maxOwned, f.counts.owned)
	close(f.changed)
	f.changed = make(chan struct{})
}

// settle waits until the agent has closed all connections except those that it keeps, and has refused requests. Without
// limits, idle peers would be closed too, but only after two minutes. Refusers may have to wait for the end of the
// flood.
func (f *flood) settle(t *testing.T) {
	limit := time.After(commandTimeout)
	for {
		f.mu.Lock()
		counts, changed := f.counts, f.changed
		f.mu.Unlock()
		if counts.open <= keptStrangers && counts.refused >= floodRefused {
			t.Logf("after the flood: %v", counts)
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Errorf("after the flood: %v, want at most %d open and at least %d refused", counts,
				keptStrangers, floodRefused)
			return
		}
	}
}

// check fails the test if the flood was too small, or if there were more connections than the limits at any time.
func (f *flood) check(t *testing.T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts.made < floodConnections*9/10 || f.counts.heard == 0 || f.counts.refused < floodRefused {
		t.Errorf("the flood was too weak: %v", f.counts)
	}
	if f.counts.maxOwned > ownedLimit || f.counts.maxOpen > openLimit {
		t.Errorf("got %v, want at most %d owned and %d open at any time", f.counts, ownedLimit, openLimit)
	}
}

// tls returns the settings to verify the agent.
func (f *flood) tls() *tls.Config {
	_, certificate := f.site.Node.Callback()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(certificate))
	return &tls.Config{RootCAs: roots, ServerName: floodNode, MinVersion: tls.VersionTLS13}
}

func (f *flood) dial(ctx context.Context, from string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: commandTimeout}
	return d.DialContext(ctx, "tcp4", fmt.Sprintf("%s:%d", floodNode, rig.AgentPort))
}

// connect opens all connections and leaves them open until ctx ends.
func (f *flood) connect(ctx context.Context, t *testing.T) {
	hello := clientHello(t)
	var workers sync.WaitGroup
	for worker := range floodWorkers {
		workers.Go(func() {
			err := f.site.NS.Do(func() error {
				for i := worker; i < floodConnections && ctx.Err() == nil; i += floodWorkers {
					conn, err := f.dial(ctx, stranger(i%floodPeers))
					if err != nil {
						continue // the flood must be large, not complete
					}
					f.count(func(c *floodCounts) {
						c.open++
						if c.made++; c.made == floodConnections/2 {
							close(f.half)
						}
					})
					context.AfterFunc(ctx, func() { _ = conn.Close() })
					go f.hold(&heard{Conn: conn, flood: f}, i%4, hello)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
}

// heard is a connection that is counted when the agent sends anything, and when it closes the connection.
type heard struct {
	net.Conn
	flood *flood
	any   bool
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 && !h.any {
		h.any = true
		h.flood.count(func(c *floodCounts) { c.heard, c.owned = c.heard+1, c.owned+1 })
	}
	return n, err
}

// hold uses a connection in one of four ways until it is closed.
func (f *flood) hold(h *heard, way int, hello []byte) {
	var conn net.Conn = h
	if f.withTLS {
		conn = tls.Client(h, f.tls())
	}
	// Writes may fail, because the agent may have closed the connection.
	const line = "GET /v1/commands/ HTTP/1.1\r\nHost: agent\r\n"
	unfinished := line + "X-Filling: " + strings.Repeat("x", unfinishedHeader-len(line))
	switch {
	case way == 0:
		if _, err := io.WriteString(conn, line+"\r\n"); err != nil {
			break
		}
		if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			_ = answer.Body.Close() // short, and already read
			f.count(func(c *floodCounts) { c.answered++ })
		}
	case way == 1 || !f.withTLS:
		_, _ = io.WriteString(conn, unfinished)
	case way == 2:
		_, _ = h.Write(hello)
	default:
		_, _ = h.Write(hello[:len(hello)/2])
	}
	_, _ = io.Copy(io.Discard, h) // until it is closed
	f.count(func(c *floodCounts) {
		c.open--
		if h.any {
			c.owned--
		}
	})
	_ = h.Close()
}

// clientHello returns the first message of a TLS handshake.
func clientHello(t *testing.T) []byte {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	// The handshake is incomplete.
	go func() { _ = tls.Client(client, &tls.Config{ServerName: floodNode}).HandshakeContext(t.Context()) }()
	hello := make([]byte, 16<<10)
	n, err := server.Read(hello)
	if err != nil {
		t.Error(err)
	}
	return bytes.Clone(hello[:n])
}

// list requests the commands from an address. It retries as often as Ironic does if a connection fails.
func (f *flood) list(ctx context.Context, from, token string) (status int, err error) {
	base, _ := f.site.Node.Callback()
	client := f.client(from)
	defer client.CloseIdleConnections()
	for range 3 {
		if status, err = get(ctx, client, base, "/v1/commands/?agent_token="+url.QueryEscape(token)); err == nil {
			return status, nil
		}
	}
	return 0, err
}

func (f *flood) client(from string) *http.Client {
	return &http.Client{Timeout: commandTimeout, Transport: &http.Transport{
		TLSClientConfig: f.tls(),
		DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			err = f.site.NS.Do(func() error {
				conn, err = f.dial(ctx, from)
				return err
			})
			return conn, err
		},
	}}
}

func get(ctx context.Context, client *http.Client, base, path string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, errors.Join(err, answer.Body.Close())
}

// refuse sends requests without the token until ctx ends.
func (f *flood) refuse(ctx context.Context) {
	base, _ := f.site.Node.Callback()
	var workers sync.WaitGroup
	for i := range floodRefusers {
		workers.Go(func() {
			client := f.client(refuser(i))
			defer client.CloseIdleConnections()
			for n := 0; ctx.Err() == nil; n++ {
				path := fmt.Sprintf("/v1/commands/%d-%s?agent_token=wrong", n, strings.Repeat("x", 4<<10))
				if status, err := get(ctx, client, base, path); err == nil && status == http.StatusUnauthorized {
					f.count(func(c *floodCounts) { c.refused++ })
				}
			}
		})
	}
	workers.Wait()
}

// poll requests the commands every second until the one with the id has succeeded, within Ironic's time limit.
func (f *flood) poll(t *testing.T, id string) (polls int, longest time.Duration) {
	t.Helper()
	limit := time.Now().Add(10 * time.Minute)
	for time.Now().Before(limit) {
		ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
		started := time.Now()
		records, err := f.site.Node.Commands(ctx)
		cancel()
		took := time.Since(started)
		if err != nil {
			t.Errorf("poll %d failed after %v: %v", polls+1, took, err)
		}
		polls, longest = polls+1, max(longest, took)
		if err == nil && (len(records) == 0 || records[len(records)-1].ID != id) {
			t.Fatalf("poll %d: got %v, want the command last", polls, records)
		}
		if err == nil && records[len(records)-1].Status != conductor.Running {
			if last := records[len(records)-1]; last.Status != conductor.Succeeded {
				t.Errorf("prepare_image: got %s (%v), want %s", last.Status, last.Error, conductor.Succeeded)
			}
			return polls, longest
		}
		time.Sleep(time.Second)
	}
	t.Errorf("prepare_image did not end")
	return polls, longest
}
