package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// DHCPConfig describes one subnet and what its machines are told.
type DHCPConfig struct {
	Log         *slog.Logger
	Interface   string       // the only interface that is served
	Address     netip.Prefix // the server's own address on it, with the length of the subnet
	First, Last netip.Addr   // the pool, both ends included; invalid: fixed leases only
	Fixed       map[string]Host
	Lease       time.Duration // 0 = one hour
	Router      netip.Addr    // invalid = none
	Routes      []Route       // classless static routes (option 121)
	DNS         []netip.Addr
	NTP         []netip.Addr
	Domain      string
	MTU         int
	Boot        *Boot // nil = no boot file
}

// Host is what one machine, known by its MAC address in lower case with colons, gets.
type Host struct {
	Address  netip.Addr // invalid = from the pool
	Hostname string
	Script   string // iPXE script's URL, "" = the one of Boot
}

// Route is a classless static route (RFC 3442).
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Boot names the boot files: a first-stage file by TFTP for firmware, and the script for iPXE.
type Boot struct {
	Server netip.Addr // TFTP server; invalid = the DHCP server itself
	BIOS   string     // for BIOS clients, "" = undionly.kpxe
	UEFI   string     // for UEFI clients on x86-64, "" = snponly.efi
	ARM64  string     // for UEFI clients on arm64, "" = snponly-arm64.efi
	Script string     // URL of the script that clients whose user class is iPXE get
}

// Lease is one address in use.
type Lease struct {
	MAC      net.HardwareAddr
	Address  netip.Addr
	Expires  time.Time
	Hostname string
}

// DHCP is a running DHCPv4 server.
type DHCP struct{}

// ListenDHCP starts a DHCPv4 server that runs until ctx ends or Close is called. Its socket is made before it returns.
func ListenDHCP(ctx context.Context, config DHCPConfig) (*DHCP, error) {
	return nil, errors.New("dhcp server: not written yet")
}

// Leases returns the leases that have not expired, ordered by address.
func (d *DHCP) Leases() []Lease { return nil }

// SetHost sets what one machine gets from its next message on.
func (d *DHCP) SetHost(mac net.HardwareAddr, host Host) {}

// Close stops the server.
func (d *DHCP) Close() error { return nil }

// Request is one file that was asked for by TFTP or HTTP.
type Request struct {
	Protocol string // "tftp" or "http"
	Client   string // address and port
	Method   string // HTTP method; "" for TFTP
	Path     string
	Range    string // HTTP Range header
	Status   int    // HTTP status; for TFTP 200, 404 or 500
	Bytes    int64  // body bytes sent
	Duration time.Duration
	Err      error
}

// FilesConfig describes a file server.
type FilesConfig struct {
	Log     *slog.Logger
	Listen  netip.AddrPort // port 0 takes a free one
	Root    string         // only regular files below this folder are served; links do not lead out of it
	Request func(Request)  // called at the end of every request; nil = not
}

// TFTP is a running TFTP server.
type TFTP struct{}

// ListenTFTP starts a read-only TFTP server.
func ListenTFTP(ctx context.Context, config FilesConfig) (*TFTP, error) {
	return nil, errors.New("tftp server: not written yet")
}

// Addr returns where the server listens.
func (t *TFTP) Addr() netip.AddrPort { return netip.AddrPort{} }

// Close stops the server.
func (t *TFTP) Close() error { return nil }

// HTTP is a running HTTP file server.
type HTTP struct{}

// ListenHTTP starts an HTTP file server with byte ranges and strong entity tags.
func ListenHTTP(ctx context.Context, config FilesConfig) (*HTTP, error) {
	return nil, errors.New("http server: not written yet")
}

// Addr returns where the server listens.
func (h *HTTP) Addr() netip.AddrPort { return netip.AddrPort{} }

// URL returns the URL of a file below the root.
func (h *HTTP) URL(path string) string { return "http://" + h.Addr().String() + "/" + path }

// Close stops the server.
func (h *HTTP) Close() error { return nil }

// Script describes an iPXE script that boots a kernel and initramfs.
type Script struct {
	Kernel  string   // URL
	Initrds []string // URLs, loaded in this order
	Cmdline string
	Retries int // how often a failed download is tried again, 0 = 5
}

// Render returns the text of the script.
func (s Script) Render() ([]byte, error) { return nil, errors.New("ipxe script: not written yet") }
