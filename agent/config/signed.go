package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Source is a source of settings that a signed image does not contain, as the tag unsigned of an option names it.
//
// Whoever controls such a source must not be able to control the machine, to replace the identity of Ironic, to read
// secrets, or to make an erase do less than it reports. At worst it stops the machine from working: who can attach a
// medium can do that anyway. So an option is open to a source only if Ironic or a site passes it for each node, and no
// value of it gives more. Each option has the tag, and one without it is closed to all of them. The kernel parameters
// that the firmware appends to the image's own set no option at all.
type Source string

// The sources.
const (
	FromMedia Source = "media" // parameters and files of virtual media
	FromMDNS  Source = "mdns"  // options in answers of multicast DNS
)

// mediaParams are parameters without an option that media of a signed image can set. Ironic writes them there.
var mediaParams = []string{"BOOTIF", "boot_method", "ipa-inspection-benchmarks"}

// closedParams are parameters without an option that only the image itself can set. Others that are not listed cannot
// be set either, but are not named in the log: a part of a secret can look like a name.
var closedParams = []string{
	"fips", networkDisksParam, "ironroot.shell", "ir_pub_id", "panic", "rootpwd", "sshkey",
}

// networkDisksParam is the kernel parameter that allows network disks in a signed image.
const networkDisksParam = "ironroot.network_disks"

// AllowsNetworkDisks reports whether network disks can be used: whether the targets of the iBFT are attached, and
// whether a disk that is reached over a network can be the root disk. An unsigned image always allows both, a signed
// one only with ironroot.network_disks=1 in its command line: whoever controls the settings of the firmware and of
// adapters chooses these disks, and would get the content of a deployment. p are the parameters without those that
// media of a signed image cannot set.
func (p Params) AllowsNetworkDisks(signed bool) bool { return !signed || p[networkDisksParam] == "1" }

// Unsigned are settings that a signed image does not contain.
type Unsigned struct {
	Params map[string]bool // names of parameters
	Files  map[string]bool // clean paths of files
}

func (u *Unsigned) hasParam(name string) bool { return u != nil && u.Params[name] }
func (u *Unsigned) hasFile(path string) bool  { return u != nil && u.Files[filepath.Clean(path)] }

var (
	errClosed    = errors.New("the image is signed, and only the image itself can set it")
	errFromImage = errors.New("the signed image sets it itself")
)

// opensTo reports whether a source that a signed image does not contain can set the option.
func (o option) opensTo(s Source) bool { return slices.Contains(o.unsigned, s) }

// Refused is a parameter that a medium of a signed image cannot set.
type Refused struct {
	Name   string // "" for one whose name means nothing to the ramdisk
	Reason error
}

// DropRefused deletes the parameters that a medium of a signed image cannot set, and returns them by name. own reports
// whether the image itself has a parameter.
func (p Params) DropRefused(own func(name string) bool) []Refused {
	var refused []Refused
	for _, name := range slices.Sorted(maps.Keys(p)) {
		known, open := parameterClass(name)
		switch {
		case !known:
			refused = append(refused, Refused{Reason: errClosed})
		case !open:
			refused = append(refused, Refused{name, errClosed})
		case own(name):
			refused = append(refused, Refused{name, errFromImage})
		default:
			continue
		}
		delete(p, name)
	}
	return refused
}

// parameterClass reports whether the ramdisk knows a kernel parameter, and whether media of a signed image can set it.
func parameterClass(name string) (known, open bool) {
	for _, o := range options() {
		if o.kernel == name {
			return true, o.opensTo(FromMedia)
		}
	}
	open = slices.Contains(mediaParams, name)
	return open || slices.Contains(closedParams, name), open
}

// CheckSigned returns the error with which the agent would reject the kernel command line of a signed image. It
// considers no other source of options.
func CheckSigned(line string) error {
	_, err := Load(Sources{
		Params: ParseCmdline(line), Unsigned: &Unsigned{}, HasIPv6: new(true),
	})
	return err
}

// KnownNames returns the sorted names of the parameters that the ramdisk knows.
func (p Params) KnownNames() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p)), func(name string) bool {
		known, _ := parameterClass(name)
		return !known
	})
}

// Accept returns an error if a source cannot set an option to a value, because the image is signed. name is spelled as
// in files. The error contains no value but a URL without its password.
func (c *Config) Accept(source Source, name, value string) error {
	if !c.Signed {
		return nil
	}
	for _, o := range options() {
		if o.fullName() == name && !o.opensTo(source) {
			return errClosed
		}
	}
	if c.fromImage[name] {
		return errFromImage
	}
	if slices.Contains(ironicURLs, name) {
		return c.CheckURL(value)
	}
	return nil
}

// ironicURLs are the options with URLs of Ironic.
var ironicURLs = []string{"api_url", "inspection_callback_url"}

// CheckURL returns an error for URLs of Ironic from an unsigned source of a signed image that do not protect the
// identity of Ironic: those that are not https, and all of them if the image sets no cafile. Public authorities certify
// any server, also one of whoever controls the source.
func (c *Config) CheckURL(text string) error {
	if !c.Signed || c.Insecure {
		return nil
	}
	for _, one := range splitList(text) {
		if one == "mdns" || len(one) > len("https://") && strings.EqualFold(one[:len("https://")], "https://") {
			continue
		}
		shown := "another URL"
		if u, err := url.Parse(one); err == nil {
			shown = u.Redacted()
		}
		return fmt.Errorf("got %s, want https, because the image is signed and insecure is not set in it", shown)
	}
	if c.CAFile == "" {
		return errors.New("option cafile is not set in the signed image, want the authority of Ironic: " +
			"others certify servers of anyone")
	}
	return nil
}

// setFrom sets an option unless the source is unsigned and must not set it.
func (l *loader) setFrom(o option, source, value string, unsigned bool) {
	name := o.fullName()
	switch {
	case unsigned && !o.opensTo(FromMedia):
		l.ignore(name+" of "+source, errClosed)
		return
	case unsigned && l.config.fromImage[name]:
		l.ignore(name+" of "+source, errFromImage)
		return
	case unsigned:
		l.unsignedFrom[name] = source
	default:
		l.config.fromImage[name] = true
		delete(l.unsignedFrom, name)
	}
	l.set(o, source, value)
}

func (l *loader) ignore(setting string, reason error) {
	l.config.ignored = append(l.config.ignored, Unused{setting, reason.Error()})
}

// checkUnsigned adds errors for files and URLs of unsigned sources that a signed image must not use. It marks a token
// of such a source as unverified, and drops it in a standalone image.
func (l *loader) checkUnsigned() {
	if l.unsigned == nil {
		return
	}
	c := l.config
	for _, o := range l.options {
		if o.check != "file" || o.opensTo(FromMedia) {
			continue
		}
		if path := o.value(c).String(); l.unsigned.hasFile(path) {
			l.errs = append(l.errs, fmt.Errorf("option %s: got %s, a file that the signed image does not contain",
				o.fullName(), path))
		}
	}
	for _, o := range l.options {
		name := o.fullName()
		source := l.unsignedFrom[name]
		if source == "" || !slices.Contains(ironicURLs, name) {
			continue
		}
		if err := c.CheckURL(o.value(c).String()); err != nil {
			l.errs = append(l.errs, fmt.Errorf("option %s: %s: %w", name, source, err))
		}
	}
	source := l.unsignedFrom["agent_token"]
	if c.TokenUnverified = source != ""; c.TokenUnverified && c.Standalone {
		c.AgentToken, c.TokenUnverified = "", false
		l.ignore("agent_token of "+source, errors.New("the image is signed and standalone: no Ironic verifies it"))
	}
}
