package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"testing"

	"github.com/pin/tftp/v3"

	"ironroot/internal/test/testenv/nettest"
)

// The servers answer on their interface, and not on another one of this machine, even at the same address. The peer has
// both networks, and a route to the address by either of them.
func TestFilesOfOneInterface(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	listen := netip.MustParseAddr("192.0.2.1")
	for name, addresses := range map[string][2]string{
		"net0": {"192.0.2.1/24", "192.0.2.2/24"}, "net1": {"198.51.100.1/24", "198.51.100.2/24"},
	} {
		l.Cable(name, addresses[1])
		nettest.Configure(t, name, addresses[0])
	}
	root := directory(t, []byte("content"))
	for name, refused := range map[string]bool{"net0": false, "net1": true} {
		config := FilesConfig{Listen: netip.AddrPortFrom(listen, 0), Interface: name, Root: root}
		web, err := ListenHTTP(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		files, err := ListenTFTP(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: l.Dial}}
		var got []byte
		response, err := client.Get(web.URL("sub/file"))
		if err == nil {
			got, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) != refused || !refused && string(got) != "content" {
			t.Errorf("bound to %s: http: got %q and %v, want refused %t", name, got, err, refused)
		}
		if refused {
			// The client of the library does not learn that the port is closed.
			l.Peer(func() error {
				conn, dialErr := net.Dial("udp", files.Addr().String())
				if dialErr != nil {
					return dialErr
				}
				defer conn.Close()
				if _, dialErr = conn.Write([]byte("\x00\x01sub/file\x00octet\x00")); dialErr == nil {
					_, err = conn.Read(make([]byte, 1))
				}
				return dialErr
			})
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("bound to %s: tftp: got %v, want %v", name, err, syscall.ECONNREFUSED)
			}
		} else if text := receive(t, l, files.Addr().Port()); text != "content" {
			t.Errorf("bound to %s: tftp: got %q", name, text)
		}
		if err := errors.Join(web.Close(), files.Close()); err != nil {
			t.Error(err)
		}
	}
	for _, err := range []error{
		listenError(ListenHTTP(t.Context(), FilesConfig{Listen: loopback, Interface: "absent", Root: root})),
		listenError(ListenTFTP(t.Context(), FilesConfig{Listen: loopback, Interface: "absent", Root: root})),
	} {
		if !errors.Is(err, syscall.ENODEV) {
			t.Errorf("absent interface: got %v, want %v", err, syscall.ENODEV)
		}
	}
}

func listenError[S any](_ S, err error) error { return err }

// receive fetches a file by TFTP from the peer.
func receive(t *testing.T, l *nettest.Lab, port uint16) string {
	t.Helper()
	client, err := tftp.NewClient(net.JoinHostPort("192.0.2.1", strconv.Itoa(int(port))))
	if err != nil {
		t.Fatal(err)
	}
	var transfer io.WriterTo
	l.Peer(func() error {
		transfer, err = client.Receive("sub/file", "octet")
		return err
	})
	var body bytes.Buffer
	if _, err := transfer.WriteTo(&body); err != nil {
		t.Error(err)
	}
	return body.String()
}
