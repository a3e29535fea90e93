package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/agent"
	"ironroot/initramfs"
	"ironroot/release"
	"ironroot/release/oci"
)

// imageCmd builds a kernel and an initramfs for each architecture.
type imageCmd struct {
	Out      string   `short:"o" default:"build" help:"Directory of the results."`
	Name     string   `help:"Stem of the files' names; ipa-ironroot-ARCH when not given."`
	Arch     []string `enum:"amd64,arm64" placeholder:"ARCH" help:"Architectures of the images, joined by commas: ${enum} (default: amd64, with --oci both)."`
	OCI      bool     `name:"oci" help:"Write an OCI image layout with the images of all architectures, too."`
	Kernel   string   `type:"existingfile" help:"A kernel of your own instead of the package's."`
	Modules  string   `type:"existingdir" help:"Directory with the modules of --kernel."`
	Config   string   `name:"kernel-config" type:"existingfile" help:"Configuration file of --kernel, which determines how firmware may be compressed."`
	Package  string   `help:"Debian package of the kernel; linux-image-ARCH when not given."`
	Groups   string   `name:"module-groups" default:"server" help:"Groups of modules to take in, joined by commas; none for none."`
	Shell    bool     `default:"true" negatable:"" help:"Take in u-root's shell, for people."`
	Firmware string   `type:"existingdir" help:"Directory with firmware that is preferred to that of Debian's packages."`
	NoFW     bool     `name:"no-firmware" help:"Leave out firmware."`
	Manager  []string `sep:"none" type:"existingdir" placeholder:"DIR" help:"Directory of a Go package with a hardware manager to compile in. May be repeated."`
	Root     []string `name:"manager-root" sep:"none" placeholder:"DIR" help:"Userland with managers that need a libc or an interpreter: a directory, an OCI image layout, a tarball of docker save, or oci://REFERENCE. May be repeated."`
	Calls    []string `name:"manager-calls" sep:"none" placeholder:"NAME=CALL,..." help:"System calls that the executable NAME may make besides those of every manager. They can let it escape its confinement. May be repeated."`
	Keys     string   `name:"authorized-keys" type:"existingfile" help:"File with public keys of operators, as authorized_keys of OpenSSH. They may log in to the ramdisk as root by SSH."`
	Rescue   string   `name:"rescue-root" placeholder:"DIR" help:"Userland of a rescue, from the same sources as --manager-root. Without it, the user of a rescue has the commands of u-root."`
	CAFile   []string `name:"ca-file" sep:"none" type:"existingfile" placeholder:"FILE" help:"File with certificate authorities that the ramdisk trusts instead of those of Debian's package ca-certificates, PEM. May be repeated."`
	File     []string `sep:"none" placeholder:"HOST:GUEST" help:"Extra file or directory to add. May be repeated."`
	Cache    string   `help:"Directory for downloads and build results; ironroot in the user's cache directory when not given."`
	archiveFlags
	signFlags
}

// imageName is the stem of the names of all files, without the architecture.
const imageName = "ipa-ironroot"

// Run builds the images.
func (c *imageCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := c.complete(); err != nil {
		return err
	}
	sign, err := c.signer()
	if err != nil {
		return err
	}
	source, err := findSource(ctx)
	if err != nil {
		return err
	}
	layout := oci.Options{}
	for _, arch := range c.Arch {
		report, err := c.build(ctx, arch, source)
		if err != nil {
			return err
		}
		if err := sign(report.Kernel, report.Initramfs, report.Tarball); err != nil {
			return err
		}
		layout.Images = append(layout.Images, oci.Image{Arch: arch, Files: []string{report.Kernel, report.Initramfs}})
	}
	if !c.OCI {
		return nil
	}
	path, err := c.writeLayout(layout, source)
	if err != nil {
		return err
	}
	return sign(path)
}

// complete sets defaults and returns an error for flags that contradict each other.
func (c *imageCmd) complete() error {
	if len(c.Arch) == 0 {
		c.Arch = []string{"amd64"}
		if c.OCI {
			c.Arch = []string{"amd64", "arm64"}
		}
	}
	slices.Sort(c.Arch)
	c.Arch = slices.Compact(c.Arch)
	if len(c.Arch) == 1 {
		return nil
	}
	for flag, value := range map[string]string{"name": c.Name, "kernel": c.Kernel, "package": c.Package} {
		if value != "" {
			return fmt.Errorf("--%s %s with architectures %s: want one --arch", flag, value, strings.Join(c.Arch, ", "))
		}
	}
	return nil
}

// writeLayout writes the images of all architectures as an OCI layout and returns its path.
func (c *imageCmd) writeLayout(o oci.Options, source release.Source) (string, error) {
	name := cmp.Or(c.Name, imageName)
	o.Tag, o.Created = agent.Version, source.Date
	o.Annotations = map[string]string{
		"org.opencontainers.image.title": name, "org.opencontainers.image.version": agent.Version,
	}
	if source.Commit != "" && !source.Modified {
		o.Annotations["org.opencontainers.image.revision"] = source.Commit
	}
	path := filepath.Join(c.Out, name+".oci")
	digest, err := oci.Write(path, o)
	if err != nil {
		return "", err
	}
	var files []string
	for _, image := range o.Images {
		files = append(files, image.Files...)
	}
	if err := billOf(source).WriteLayout(path, digest, files); err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(os.Stderr, "%s with digest sha256:%s\n", path, digest)
	return path, err
}

// build builds the image of one architecture.
func (c *imageCmd) build(ctx context.Context, arch string, source release.Source) (initramfs.Report, error) {
	calls, err := managerCalls(c.Calls)
	if err != nil {
		return initramfs.Report{}, err
	}
	return initramfs.Build(ctx, initramfs.Options{
		Arch: arch, Out: c.Out, Name: c.Name, Kernel: c.Kernel, Modules: c.Modules, Package: c.Package,
		ModuleGroups: strings.Split(c.Groups, ","), Shell: c.Shell, Firmware: c.Firmware,
		NoFirmware: c.NoFW, KernelConfig: c.Config, Debian: c.options(),
		AuthorizedKeys: c.Keys, RescueRoot: c.Rescue, CAFiles: c.CAFile,
		Files: c.File, Managers: c.Manager, ManagerRoots: c.Root, ManagerCalls: calls,
		CacheDir: c.Cache, Progress: os.Stderr,
		Bill: billOf(source),
	})
}

// managerCalls parses the values of --manager-calls.
func managerCalls(values []string) (map[string][]string, error) {
	calls := map[string][]string{}
	for _, value := range values {
		name, list, _ := strings.Cut(value, "=")
		if name == "" || list == "" {
			return nil, fmt.Errorf("--manager-calls %q: want NAME=CALL,CALL", value)
		}
		calls[name] = append(calls[name], strings.Split(list, ",")...)
	}
	return calls, nil
}
