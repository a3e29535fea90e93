// Command ironroot is the operator's side of a deploy ramdisk for OpenStack Ironic and Metal3: it builds, signs,
// verifies and serves images of the ramdisk, runs its agent as an ordinary process, and shows the progress of nodes.
package main

import (
	"os"

	"github.com/alecthomas/kong"

	"ironroot/agent/container"
	"ironroot/initramfs/debian"
	"ironroot/storage/bootloader/chroot"
)

const description = `A deploy ramdisk for OpenStack Ironic and Metal3.

Examples:
  ironroot image                          build kernel and initramfs into build/
  ironroot agent --standalone             run the agent here, without Ironic
  ironroot agent --help                   all flags of the agent
`

// cli lists the commands. The flags of agent and collect are ironic-python-agent's, which these commands parse.
type cli struct {
	Image    imageCmd    `cmd:"" help:"Build the kernel and the initramfs."`
	Iso      isoCmd      `cmd:"" help:"Pack a kernel and an initramfs, or a UKI, into an image for CD and USB stick."`
	Uki      ukiCmd      `cmd:"" help:"Build a unified kernel image, and sign it for Secure Boot with your own keys."`
	Verify   verifyCmd   `cmd:"" help:"Verify signatures, bills of materials and provenance of images."`
	Manager  managerCmd  `cmd:"" help:"Check hardware managers that are executables."`
	Lock     lockCmd     `cmd:"" help:"Pin the newest versions of Debian's packages."`
	Erase    eraseCmd    `cmd:"" help:"Check the evidence of erased disks."`
	Netboot  netbootCmd  `cmd:"" help:"Boot the ramdisk on the machines of a network: proxy DHCP, TFTP, HTTP."`
	Demo     demoCmd     `cmd:"" help:"Boot a node in QEMU, inspect, clean and deploy it, and boot what was deployed."`
	Agent    agentCmd    `cmd:"" passthrough:"" help:"Run the deploy agent as an ordinary process."`
	Collect  collectCmd  `cmd:"" passthrough:"" help:"Post the machine's inspection data once, or again and again."`
	Watch    watchCmd    `cmd:"" help:"Show the progress of nodes as Ironic knows it."`
	Selftest selftestCmd `cmd:"" help:"Describe this machine in a report: drivers, links, disks, problems."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

func main() {
	chroot.Child()
	container.Child()
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parser := newParser(&cli{})
	ctx, err := parser.Parse(args)
	parser.FatalIfErrorf(err)
	ctx.FatalIfErrorf(ctx.Run())
}

func newParser(commands *cli) *kong.Kong {
	return kong.Must(commands, kong.Name("ironroot"), kong.Description(description), kong.UsageOnError(),
		kong.Vars{
			"suite": debian.DefaultSuite, "mirror": debian.DefaultMirror, "keyring": debian.DefaultKeyring,
			"lock": debian.LockPath,
		},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}))
}

// failed is an error with exit status 1. The wrapped error can come from a program with another exit status.
type failed struct{ error }

// ExitCode returns the exit status that the command line parser uses.
func (failed) ExitCode() int { return 1 }

// Unwrap returns the wrapped error.
func (f failed) Unwrap() error { return f.error }
