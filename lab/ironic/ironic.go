//go:build linux

// Package ironic runs a real, unmodified OpenStack Ironic for tests: the version of Debian trixie (29.0, API 1.96), of
// bookworm (21.4, API 1.82), or of sid. It runs in a cached chroot built by mmdebstrap, and in its own network
// namespace together with the machines that it manages.
//
// Ironic runs as one process without a message bus (standalone, no authentication, SQLite). Its hardware type redfish
// uses the BMC of package lab/bmc, which controls QEMU machines. The test process serves DHCP (package
// netboot/server) and HTTP; dnsmasq serves TFTP. Machines boot from the network with the iPXE of QEMU's network
// cards, or by PXE with the PXELINUX or GRUB that Ironic configures. They boot from virtual media with an ISO that
// Ironic builds. Stop ends everything; the end of the process does so too.
//
// Limits: requires root, /dev/net/tun, mmdebstrap and its archive keyring; amd64; UEFI and BIOS. Ironic does not manage
// Secure Boot.
package ironic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ironroot/internal/webserver"
	"ironroot/lab/bmc"
	"ironroot/lab/netns"
	"ironroot/netboot/server"
)

// Addresses within the namespace, which is not reachable from outside.
const (
	address  = "172.30.0.1"
	apiURL   = "http://" + address + ":6385"
	filesURL = "http://" + address + ":8080"
	bmcURL   = "http://" + address + ":8000"
	bridge   = "br0"
)

// Options configures an Ironic.
type Options struct {
	// Dir is the existing directory for the files of Ironic, the machines and their logs.
	Dir string
	// CacheDir is the directory for the chroot; "" means ironroot in the user's cache directory.
	CacheDir string
	// Suite is the release of Debian that provides Ironic; "" means Trixie.
	Suite string
	// KernelParams are added to the ramdisk's command line.
	KernelParams string
	// PXE makes DHCP offer boot loaders for PXE instead of Ironic's iPXE script.
	PXE bool
	// Config is appended to ironic.conf. Its options override earlier ones.
	Config string
	// Log receives log messages; nil discards them.
	Log *slog.Logger
	// Progress receives the output of the chroot's build; nil discards it.
	Progress io.Writer
}

// Ironic is a running Ironic with its network, BMC and file server.
type Ironic struct {
	options Options
	log     *slog.Logger
	ns      *netns.Namespace
	chroot  string
	http    *http.Client // connects from within the namespace
	process *process
	bmc     *bmc.Server
	dhcp    *server.DHCP

	mu      sync.Mutex
	nodes   []*Node
	closers []func() error // in the order of creation
}

// Start builds the chroot if it is not in the cache, and starts Ironic with its servers. ctx limits the start only.
func Start(ctx context.Context, o Options) (*Ironic, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Suite == "" {
		o.Suite = Trixie
	}
	i := &Ironic{options: o, log: o.Log, bmc: bmc.NewServer(o.Log)}
	if err := i.start(ctx); err != nil {
		return nil, fmt.Errorf("start of Ironic: %w", errors.Join(err, i.Stop()))
	}
	return i, nil
}

func (i *Ironic) start(ctx context.Context) (err error) {
	if i.chroot, err = chroot(ctx, i.options.CacheDir, i.options.Suite, i.options.Progress); err != nil {
		return err
	}
	for _, dir := range []string{
		"http/pxelinux.cfg", "tftp", "tftp-master", "images", "master", "state", "tmp", "locks", "certs",
		"deploylogs", "log", "vm",
	} {
		if err := os.MkdirAll(i.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(i.path("ironic.conf"), []byte(configuration(i.options)), 0o644); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(i.chroot, espImage), i.path("http/esp.img")); err != nil {
		return err
	}
	if i.ns, err = netns.New(); err != nil {
		return err
	}
	i.onStop(i.ns.Close)
	i.http = &http.Client{Transport: &http.Transport{DialContext: i.ns.DialContext}, Timeout: 2 * time.Minute}
	if err := i.ns.Bridge(bridge, address+"/24"); err != nil {
		return err
	}
	if err := i.ns.Do(i.serve); err != nil {
		return err
	}
	if i.options.PXE {
		if err := i.serveTFTP(); err != nil {
			return err
		}
	}
	return i.run(ctx)
}

// serve starts the servers of this process. It is called within the namespace.
func (i *Ironic) serve() error {
	own := netip.MustParseAddr(address)
	background := context.Background()
	loaders := server.Loaders{BIOS: "pxelinux.0", UEFI: "bootx64.efi", Script: filesURL + "/boot.ipxe"}
	if i.options.PXE {
		loaders.Script = loaders.BIOS // QEMU's BIOS machines have iPXE instead of PXE, which fetches Script
	}
	var err error
	i.dhcp, err = server.ListenDHCP(background, server.DHCPConfig{
		Log: i.log, Interface: bridge, Address: netip.PrefixFrom(own, 24),
		First: netip.MustParseAddr("172.30.0.100"), Last: netip.MustParseAddr("172.30.0.200"),
		Router: own, Boot: &server.Boot{Files: loaders},
	})
	if err != nil {
		return err
	}
	i.onStop(i.dhcp.Close)
	files, err := server.ListenHTTP(background, server.FilesConfig{
		Log: i.log, Listen: netip.AddrPortFrom(own, 8080), Root: i.path("http"),
	})
	if err != nil {
		return err
	}
	i.onStop(files.Close)
	listener, err := (&net.ListenConfig{}).Listen(background, "tcp", address+":8000")
	if err != nil {
		return err
	}
	redfish := &http.Server{Handler: i.bmc, ReadHeaderTimeout: time.Minute}
	i.onStop(webserver.Serve(background, webserver.Listener(listener), redfish, nil).Close)
	return nil
}

// tftpLog is the log file of dnsmasq.
const tftpLog = "tftp.log"

// serveTFTP starts a TFTP server for the files that Ironic writes for boot loaders.
func (i *Ironic) serveTFTP() error {
	dnsmasq, err := i.inChroot(tftpLog, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0",
		"--user=root", "--bind-interfaces", "--listen-address="+address, "--enable-tftp",
		"--tftp-root="+inside+"/tftp", "--log-facility=-")
	if err != nil {
		return err
	}
	i.onStop(dnsmasq.stop)
	return nil
}

// Fetched reports whether a file was sent completely by TFTP. The path is relative to the server's root.
func (i *Ironic) Fetched(path string) (bool, error) {
	log, err := os.ReadFile(i.path("log/" + tftpLog))
	return strings.Contains(string(log), "sent "+inside+"/tftp/"+path+" to "), err
}

// run creates the database, starts Ironic and waits until its conductor has registered the hardware type.
func (i *Ironic) run(ctx context.Context) error {
	begin := time.Now()
	sync, err := i.inChroot("dbsync.log", "ironic-dbsync", "--config-file", inside+"/ironic.conf", "create_schema")
	if err != nil {
		return err
	}
	if err := sync.wait(ctx); err != nil {
		return fmt.Errorf("ironic-dbsync: %w\n%s", err, tail(i.path("log/dbsync.log"), 20))
	}
	if i.process, err = i.inChroot("ironic.out", "ironic", "--config-file", inside+"/ironic.conf"); err != nil {
		return err
	}
	i.onStop(i.process.stop)
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	for {
		var drivers struct{ Drivers []struct{ Name string } }
		if err := i.call(ctx, http.MethodGet, "/v1/drivers", nil, &drivers); err == nil && len(drivers.Drivers) > 0 {
			i.log.Info("Ironic is up", "duration", time.Since(begin).Round(time.Second))
			return nil
		}
		select {
		case <-time.After(300 * time.Millisecond): // Ironic sends no notification that it is ready
		case <-i.process.ended:
			return fmt.Errorf("it ended: %w\n%s", i.process.err, i.Logs(30))
		case <-ctx.Done():
			return fmt.Errorf("its conductor does not come up: %w\n%s", ctx.Err(), i.Logs(30))
		}
	}
}

// path returns the path on the host of a file in Options.Dir.
func (i *Ironic) path(name string) string { return filepath.Join(i.options.Dir, name) }

func (i *Ironic) onStop(f func() error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closers = append(i.closers, f)
}

// Stop ends the machines, Ironic and its servers, and removes the network. The files stay. It may be called more than
// once.
func (i *Ironic) Stop() error {
	i.mu.Lock()
	nodes, closers := i.nodes, i.closers
	i.nodes, i.closers = nil, nil
	i.mu.Unlock()
	var errs []error
	for _, node := range nodes {
		errs = append(errs, node.system.Close())
	}
	for n := len(closers) - 1; n >= 0; n-- {
		errs = append(errs, closers[n]())
	}
	return errors.Join(errs...)
}

// Logs returns the last lines of Ironic's log without debug messages and API requests. The complete log is
// log/ironic.log in Options.Dir.
func (i *Ironic) Logs(lines int) string {
	data, err := os.ReadFile(i.path("log/ironic.log"))
	if err != nil {
		return tail(i.path("log/ironic.out"), lines) // Ironic failed before it opened its log
	}
	var kept []string
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, " DEBUG ") && !strings.Contains(line, "eventlet.wsgi.server") {
			kept = append(kept, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(kept[max(0, len(kept)-lines):], "\n")
}

// Version returns the version of Debian's package of Ironic, for example "1:29.0.5-0+deb13u3", and the newest API
// version of the running Ironic, for example "1.96".
func (i *Ironic) Version(ctx context.Context) (debian, api string, err error) {
	out, err := exec.CommandContext(ctx, "chroot", i.chroot, "dpkg-query", "-W", "-f", "${Version}", "python3-ironic").
		Output()
	if err != nil {
		return "", "", fmt.Errorf("dpkg-query in %s: %w", i.chroot, err)
	}
	var root struct {
		Version struct {
			Newest string `json:"version"`
		} `json:"default_version"`
	}
	err = i.call(ctx, http.MethodGet, "/", nil, &root)
	return string(out), root.Version.Newest, err
}

// StopDHCP stops the DHCP server. Machines without a configured address can no longer get one.
func (i *Ironic) StopDHCP() error { return i.dhcp.Close() }

// Publish makes a file available to machines and returns its URL. The name must not be in use.
func (i *Ironic) Publish(file, name string) (url string, err error) {
	to := i.path("http/" + name)
	if err := os.Link(file, to); err != nil {
		if err := copyFile(file, to); err != nil {
			return "", err
		}
	}
	return filesURL + "/" + name, nil
}

// tail returns the last lines of a file, or the error if it cannot be read.
func tail(name string, lines int) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
