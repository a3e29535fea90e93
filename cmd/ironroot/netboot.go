package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"ironroot/initramfs/netloaders"
	"ironroot/netboot/pxe"
)

// netbootCmd boots the ramdisk on the machines of a network.
type netbootCmd struct {
	Interface  string   `short:"i" required:"" placeholder:"NAME" help:"Interface to the network whose machines boot. Other networks get no answers."`
	APIURL     string   `name:"api-url" placeholder:"URL" help:"URL of Ironic's API, which becomes the kernel parameter ipa-api-url."`
	Append     string   `placeholder:"TEXT" help:"Further kernel parameters of all machines. Other users of this computer can read them: secrets belong into --machines."`
	Machines   string   `type:"existingfile" placeholder:"FILE" help:"File with a line for each machine: its MAC address, then the kernel parameters that only it gets. Only listed machines are served."`
	MAC        []string `name:"mac" placeholder:"MAC" help:"MAC address of a machine without parameters of its own. May be repeated. Only listed machines are served."`
	Range      string   `placeholder:"FIRST-LAST" help:"Addresses to hand out to listed machines. Without it, this command hands out none: the DHCP server of the network does."`
	Router     string   `placeholder:"ADDRESS" help:"Router that machines get with an address of --range."`
	DNS        []string `name:"dns" placeholder:"ADDRESS" help:"Name server that machines get with an address of --range. May be repeated."`
	Dir        string   `name:"dir" default:"build" help:"Directory of the results of ironroot image: NAME-ARCH.kernel and NAME-ARCH.initramfs, for amd64, arm64 or both."`
	Name       string   `default:"ipa-ironroot" help:"Stem of their names, before the architecture."`
	Kernel     string   `type:"existingfile" placeholder:"FILE" help:"Kernel for x86-64, instead of the one in --dir."`
	Initramfs  string   `type:"existingfile" placeholder:"FILE" help:"Initramfs for --kernel."`
	SecureBoot bool     `help:"Start UEFI machines by Debian's signed shim and GRUB, also if Secure Boot is enabled. The default, iPXE, is faster and has no signature."`
	Loaders    string   `type:"existingdir" placeholder:"DIR" help:"Directory with boot loaders of your own, by the names that docs/netboot.md lists. Others come from Debian's packages."`
	Address    string   `placeholder:"ADDRESS" help:"Address of this computer to serve from, if the interface has several."`
	HTTPPort   uint16   `name:"http-port" default:"8069" help:"Port of the HTTP server."`
	Verbose    bool     `short:"v" help:"Log each message and request, not only one line for each start of a machine."`
	archiveFlags

	out io.Writer
}

// Help describes the command.
func (netbootCmd) Help() string {
	return `Boots the ramdisk on the machines of a network: BIOS and UEFI, by PXE, iPXE and UEFI HTTP boot. The
network's own DHCP server keeps its configuration; this command adds the boot files to its answers (proxy DHCP).

Examples:
  ironroot netboot -i eth1 --api-url https://ironic.example:6385
      all machines on the network of eth1 that boot from the network
  ironroot netboot -i eth1 --api-url https://ironic.example:6385 --machines machines.txt
      those in machines.txt, for example "52:54:00:12:34:56 ipa-agent-token=SECRET"
  ironroot netboot -i eth1 --api-url https://192.0.2.1:6385 --range 192.0.2.100-192.0.2.120 --mac 52:54:00:12:34:56
      on a network without a DHCP server

It needs the ports 67, 69, 4011 (UDP) and --http-port (TCP), and so root. It logs one line for each start of a machine,
until it is interrupted. docs/netboot.md tells more.`
}

// Run serves until it is interrupted.
func (c *netbootCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return c.serve(ctx)
}

func (c *netbootCmd) serve(ctx context.Context) error {
	out := c.out
	if out == nil {
		out = os.Stdout
	}
	log := slog.New(slog.NewTextHandler(out, nil))
	options, err := c.configure()
	if err != nil {
		return err
	}
	options.Log = log
	if c.Verbose {
		options.Details = log
	}
	if options.Loaders, err = c.loaders(ctx, options); err != nil {
		return err
	}
	server, err := pxe.Start(ctx, options)
	if err != nil {
		return advise(err)
	}
	log.Info("waiting for machines", "interface", c.Interface, "url", server.URL(), "machines", c.describe(options))
	return advise(server.Wait())
}

// describe returns which machines are served.
func (c *netbootCmd) describe(o pxe.Options) string {
	if len(o.Machines) == 0 {
		return "all"
	}
	return fmt.Sprintf("%d listed", len(o.Machines))
}

// configure returns the options without loaders.
func (c *netbootCmd) configure() (pxe.Options, error) {
	o := pxe.Options{Interface: c.Interface, HTTPPort: c.HTTPPort, SecureBoot: c.SecureBoot}
	var err error
	if o.Systems, err = c.systems(); err != nil {
		return o, err
	}
	if o.Machines, err = c.machines(); err != nil {
		return o, err
	}
	if c.Address != "" {
		if o.Address, err = netip.ParseAddr(c.Address); err != nil {
			return o, fmt.Errorf("--address: %w", err)
		}
	}
	o.Addresses, err = c.addresses()
	return o, err
}

// systems finds the kernels.
func (c *netbootCmd) systems() (map[string]pxe.System, error) {
	parameters := c.Append
	if c.APIURL != "" {
		api, err := url.Parse(c.APIURL)
		if err != nil || api.Host == "" || strings.ContainsAny(c.APIURL, " \t\r\n\"") {
			return nil, fmt.Errorf("--api-url %s: want a URL such as https://ironic.example:6385", c.APIURL)
		}
		parameters = "ipa-api-url=" + c.APIURL + " " + c.Append
	}
	if (c.Kernel == "") != (c.Initramfs == "") {
		return nil, errors.New("--kernel and --initramfs: want both")
	}
	files := pxe.Files{Dir: c.Dir, Name: c.Name, Kernel: c.Kernel, Initramfs: c.Initramfs}
	systems, err := files.Systems(parameters)
	if err == nil && len(systems) == 0 {
		err = fmt.Errorf("no kernel %s-ARCH.kernel in %s: build one (ironroot image), or name one (--kernel)",
			c.Name, c.Dir)
	}
	return systems, err
}

// machines returns the listed machines.
func (c *netbootCmd) machines() ([]pxe.Machine, error) {
	var machines []pxe.Machine
	for _, text := range c.MAC {
		mac, err := net.ParseMAC(text)
		if err != nil {
			return nil, fmt.Errorf("--mac: %w", err)
		}
		machines = append(machines, pxe.Machine{MAC: mac})
	}
	if c.Machines == "" {
		return machines, nil
	}
	file, err := os.Open(c.Machines)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	listed, err := pxe.ParseMachines(file)
	if err != nil {
		return nil, fmt.Errorf("--machines %s: %w", c.Machines, err)
	}
	if len(listed) == 0 {
		return nil, fmt.Errorf("--machines %s: no machine is listed", c.Machines)
	}
	return append(machines, listed...), nil
}

// addresses returns the addresses to hand out, nil for none.
func (c *netbootCmd) addresses() (*pxe.Addresses, error) {
	if c.Range == "" {
		if c.Router != "" || len(c.DNS) > 0 {
			return nil, errors.New("--router and --dns: want --range, too; otherwise another DHCP server tells them")
		}
		return nil, nil
	}
	first, last, _ := strings.Cut(c.Range, "-")
	a := &pxe.Addresses{}
	for text, to := range map[string]*netip.Addr{first: &a.First, last: &a.Last} {
		var err error
		if *to, err = netip.ParseAddr(strings.TrimSpace(text)); err != nil {
			return nil, fmt.Errorf("--range %s: want FIRST-LAST, such as 192.0.2.100-192.0.2.120", c.Range)
		}
	}
	var err error
	if c.Router != "" {
		if a.Router, err = netip.ParseAddr(c.Router); err != nil {
			return nil, fmt.Errorf("--router: %w", err)
		}
	}
	for _, text := range c.DNS {
		server, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--dns: %w", err)
		}
		a.DNS = append(a.DNS, server)
	}
	return a, nil
}

// loaders reads the boot loaders, from the operator's directory or from Debian's packages.
func (c *netbootCmd) loaders(ctx context.Context, o pxe.Options) (map[string][]byte, error) {
	names := pxe.LoaderNames(slices.Sorted(maps.Keys(o.Systems)), c.SecureBoot)
	options := c.options()
	options.Progress = os.Stderr
	loaders, err := netloaders.Read(ctx, names, c.Loaders, options)
	if err != nil {
		return nil, fmt.Errorf("%w (--loaders takes boot loaders from a directory)", err)
	}
	return loaders, nil
}

// advise adds what to do about an error.
func advise(err error) error {
	var other *pxe.OtherServerError
	advice := ""
	switch {
	case errors.As(err, &other):
		advice = "stop that server, or omit --range to let it hand out the addresses"
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "ss -lnpu and ss -lnpt show the program that has the port: stop it, or choose another --http-port"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		advice = "run it as root, or with the capabilities CAP_NET_BIND_SERVICE and CAP_NET_RAW"
	default:
		return err
	}
	return failed{fmt.Errorf("%w; %s", err, advice)}
}
