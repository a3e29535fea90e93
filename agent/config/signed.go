package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Unsigned are sources that a signed image does not contain: whoever controls them must not be able to get a shell on
// the machine, or to replace the identity of Ironic.
type Unsigned struct {
	Params map[string]bool // names of parameters
	Files  map[string]bool // clean paths of files
}

func (u *Unsigned) hasParam(name string) bool { return u != nil && u.Params[name] }
func (u *Unsigned) hasFile(path string) bool  { return u != nil && u.Files[filepath.Clean(path)] }

// unsignedReason explains why a setting of an unsigned source is ignored.
const unsignedReason = "the image is signed, and only the image itself can set it"

// accessParams are parameters without an option that give access to the machine.
var accessParams = []string{"ironroot.shell", "rootpwd", "sshkey"}

// DropProtected deletes the parameters that only a signed image can set, and returns their names.
func (p Params) DropProtected() []string {
	protected := slices.Clone(accessParams)
	for _, o := range options() {
		if o.signed && o.kernel != "" {
			protected = append(protected, o.kernel)
		}
	}
	var dropped []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if slices.Contains(protected, name) {
			delete(p, name)
			dropped = append(dropped, name)
		}
	}
	return dropped
}

// Protects reports whether the image is signed and only the image itself can set the option, which is spelled as in
// files.
func (c *Config) Protects(name string) bool {
	return c.Signed && slices.ContainsFunc(options(), func(o option) bool { return o.signed && o.fullName() == name })
}

// CheckURL returns an error for a URL of Ironic from an unsigned source that does not protect the identity of Ironic.
func (c *Config) CheckURL(text, source string) error {
	if !c.Signed || c.Insecure {
		return nil
	}
	for _, one := range splitList(text) {
		u, err := url.Parse(one)
		if err == nil && u.Scheme != "" && !strings.EqualFold(u.Scheme, "https") {
			return fmt.Errorf("got %s from %s, want https, because the image is signed and insecure is not set in it",
				u.Redacted(), source)
		}
	}
	return nil
}

// setFrom sets an option unless the source is unsigned and must not set it.
func (l *loader) setFrom(o option, source, value string, unsigned bool) {
	if o.signed && unsigned {
		l.config.ignored = append(l.config.ignored, Unused{o.fullName() + " of " + source, unsignedReason})
		return
	}
	if o.group == defaultGroup && o.name == "api_url" {
		l.urlFrom = ""
		if unsigned {
			l.urlFrom = source
		}
	}
	l.set(o, source, value)
}

// checkSigned checks values that unsigned sources have set.
func (l *loader) checkSigned() {
	if l.unsigned == nil {
		return
	}
	if l.unsigned.hasFile(l.config.CAFile) {
		l.errs = append(l.errs, fmt.Errorf("option cafile: got %s, a file that the signed image does not contain",
			l.config.CAFile))
	}
	if l.urlFrom == "" {
		return
	}
	if err := l.config.CheckURL(l.config.APIURL, l.urlFrom); err != nil {
		l.errs = append(l.errs, fmt.Errorf("option api_url: %w", err))
	}
}
