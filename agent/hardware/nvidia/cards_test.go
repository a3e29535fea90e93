package nvidia

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// cards are fake network cards, with the fake tools that query and change them. The fields are exported for fakes that
// are programs, which keep them in a file.
type cards struct {
	Cards map[string]*card // by address without the number of the function
	Calls []string         // of tools that write
	// Fail has errors of tools by the beginning of their command.
	Fail map[string]string
	// NoEffect makes tools that write succeed without an effect.
	NoEffect bool

	onWrite func() // called when a tool has written; may be nil
}

// card is a card. The parameters of the functions are the same.
type card struct {
	PSID, Version, Running string
	Parameters             map[string]string // as mstconfig shows them; elements of arrays by their names
}

// Run implements [Tools].
func (c *cards) Run(ctx context.Context, input *os.File, _ time.Duration, argv ...string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := c.failure(argv); err != nil {
		return nil, err
	}
	switch {
	case matches(argv, mstflint, "-d", "*", "-qq", "query"):
		card := c.card(argv[2])
		return []byte(describe(card.PSID, card.Version, card.Running)), nil
	case matches(argv, mstflint, "-i", inputPath, "query"):
		image, err := readAt(input)
		if err != nil {
			return nil, err
		}
		psid, version, ok := strings.Cut(string(image), " ")
		if !ok {
			return nil, fmt.Errorf("-E- Failed to query image: %s. No valid image found", inputPath)
		}
		return []byte(describe(psid, version, "")), nil
	case matches(argv, mstconfig, "-d", "*", "i"):
		return []byte(knownParameters), nil
	case argv[0] == mstconfig && argv[1] == "-d" && argv[3] == "q":
		return []byte(showParameters(c.card(argv[2]).Parameters, argv[4:])), nil
	}
	return nil, fmt.Errorf("unexpected command %q", argv)
}

// RunToEnd implements [Tools].
func (c *cards) RunToEnd(input *os.File, argv ...string) ([]byte, error) {
	c.Calls = append(c.Calls, strings.Join(argv, " "))
	if err := c.failure(argv); err != nil {
		return nil, err
	}
	if c.onWrite != nil {
		c.onWrite()
	}
	if c.NoEffect {
		return nil, nil
	}
	switch {
	case matches(argv, mstflint, "-d", "*", "-i", inputPath, "-y", "burn"):
		image, err := readAt(input)
		if err != nil {
			return nil, err
		}
		card := c.card(argv[2])
		if card.Running == "" {
			card.Running = card.Version
		}
		card.PSID, card.Version, _ = strings.Cut(string(image), " ")
	case matches(argv, mstfwreset, "-d", "*", "-y", "--sync", "1", "reset"):
		c.card(argv[2]).Running = ""
	case argv[0] == mstconfig && argv[1] == "-d" && argv[3] == "-y" && argv[4] == "set":
		for _, assignment := range argv[5:] {
			name, value, _ := strings.Cut(assignment, "=")
			p, _ := parseParameter(name)
			for _, element := range p.elements() {
				c.card(argv[2]).Parameters[element] = value
			}
		}
	default:
		return nil, fmt.Errorf("unexpected command %q", argv)
	}
	return nil, nil
}

func (c *cards) failure(argv []string) error {
	for command, text := range c.Fail {
		if strings.HasPrefix(strings.Join(argv, " "), command) {
			return errors.New(text)
		}
	}
	return nil
}

func (c *cards) card(address string) *card { return c.Cards[function{address: address}.card()] }

// matches reports whether a command consists of words, of which "*" is any.
func matches(argv []string, words ...string) bool {
	return slices.EqualFunc(argv, words, func(a, w string) bool { return a == w || w == "*" })
}

// readAt reads a file from its beginning without moving its offset.
func readAt(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
}

// describe returns the output of mstflint query.
func describe(psid, version, running string) string {
	text := "Image type:            FS4\nFW Version:            " + version + "\n"
	if running != "" && running != version {
		text += "FW Version(Running):   " + running + "\n"
	}
	return text + `FW Release Date:       3.5.2026
Product Version:       ` + version + `
Rom Info:              type=UEFI version=14.29.15 cpu=AMD64
Description:           UID                GuidsNumber
Base GUID:             0c42a1030000a1f0        8
Base MAC:              0c42a100a1f0            8
Image VSD:             N/A
Device VSD:            N/A
PSID:                  ` + psid + `
Security Attributes:   N/A
`
}

// knownParameters is the output of mstconfig i.
const knownParameters = `
List of configurations the device 0000:3b:00.0 may support:
    GLOBAL PCI CONF:
        SRIOV_EN=<False|True>                     Enable Single-Root I/O Virtualization (SR-IOV)
        NUM_OF_VFS=<NUM>                          Number of virtual functions of each PF
        PF_TOTAL_SF=<NUM>                         Number of sub functions
    IB PORT:
        LINK_TYPE_P1=<IB|ETH>                     Protocol of port 1
        HAIRPIN_QUEUES[0..7]=<NUM>                Descriptors of each queue
        RATE_LIMIT=<NUM>                          Valid for cards with the license
`

// showParameters returns the output of mstconfig q: of all parameters, or of those that are named.
func showParameters(parameters map[string]string, names []string) string {
	text := `
Device #1:
----------

Device type:        ConnectX6DX
Name:               MCX623106AN-CDA_Ax
Description:        Network card with two ports
Device:             0000:3b:00.0

Configurations:                                         Next Boot
`
	shown := slices.Sorted(maps.Keys(parameters))
	if len(names) == 0 {
		shown = slices.DeleteFunc(shown, func(name string) bool { return strings.Contains(name, "[") })
	} else {
		shown = nil
		for _, name := range names {
			p, _ := parseParameter(name)
			shown = append(shown, p.elements()...)
		}
	}
	for _, name := range shown {
		mark := "        "
		if name == "MAX_SPEED" {
			mark = " RO     "
		}
		text += fmt.Sprintf("%s%-48s%-20s\n", mark, name, parameters[name])
	}
	return text
}
