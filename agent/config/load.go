package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"ironroot/internal/oslo"
)

// Sources are the sources of option values. The zero value gives the built-in defaults.
type Sources struct {
	// Params are the parameters of the kernel command line and of virtual media, with the lowest precedence.
	Params Params
	// Args are command line flags without the program's name: --listen_port 80, --listen-port=80, --debug. They can
	// also name configuration files (--config-file) and directories (--config-dir). These must exist, and are read
	// after Files and ConfigDirs.
	Args []string
	// Environ is the environment as os.Environ returns it, for example "OS_DEFAULT__API_URL=http://...".
	Environ []string
	// Files are configuration files. The last one has precedence. Missing files are ignored.
	Files []string
	// ConfigDirs are directories whose *.conf files are read after Files, in alphabetical order. Missing directories
	// are ignored.
	ConfigDirs []string
	// Unsigned are the sources that a signed image does not contain; nil means that the image is not signed.
	Unsigned *Unsigned
	// HasIPv6 is whether the kernel supports IPv6, which decides the default of listen_host; nil checks the
	// running kernel.
	HasIPv6 *bool
}

// ErrHelp is returned by Load when the arguments ask for help.
var ErrHelp = errors.New("help requested")

// Load reads all options. The error names every option whose value has the wrong type, is out of range or is not one
// of the choices, with the value and its source, even if another source overrides that value. Unknown kernel
// parameters and unknown entries of files are ignored.
func Load(s Sources) (*Config, error) {
	l := loader{
		options: options(), unsigned: s.Unsigned, unsignedFrom: map[string]string{},
		config: &Config{Params: s.Params, Signed: s.Unsigned != nil, fromImage: map[string]bool{}},
	}
	if l.config.Params == nil {
		l.config.Params = Params{}
	}
	flags, err := parseFlags(l.options, s.Args)
	if err != nil {
		return nil, err
	}
	l.defaults(s.HasIPv6)
	l.kernel(s.Params)
	l.files(s, flags)
	l.environment(s.Environ)
	for _, f := range flags.values {
		l.set(f.option, "flag "+f.spelling, f.value)
	}
	// The kernel command line is the only way to enable debug messages on one machine without changing its files.
	if value, ok := s.Params["ipa-debug"]; ok && (!s.Unsigned.hasParam("ipa-debug") || !l.config.fromImage["debug"]) {
		l.config.Debug, _ = oslo.ParseBool(value) // a wrong value was reported with the other kernel parameters
	}
	l.checkUnsigned()
	if err := errors.Join(l.errs...); err != nil {
		return nil, err
	}
	return l.config, nil
}

// loader fills a Config, from the lowest to the highest precedence, and collects the errors.
type loader struct {
	options  []option
	config   *Config
	unsigned *Unsigned
	errs     []error

	unsignedFrom map[string]string // source of the options that an unsigned source has set, by full name
}

// optionReference matches what oslo.config replaces in the value of an option: $NAME, ${NAME} and $$.
var optionReference = regexp.MustCompile(`\$[A-Za-z_{$]`)

var errReference = errors.New("oslo.config replaces it, this agent does not")

// set parses and stores a value. An empty value of a number sets its default.
func (l *loader) set(o option, source, value string) {
	if optionReference.MatchString(value) {
		l.ignore("$ in "+o.fullName()+" of "+source, errReference)
	}
	if o.isNumber() && strings.TrimSpace(value) == "" {
		value = cmp.Or(o.def, "0")
	}
	if err := o.set(l.config, value); err != nil {
		l.errs = append(l.errs, fmt.Errorf("option %s: %s: %w", o.fullName(), source, err))
	}
}

func (l *loader) defaults(hasIPv6 *bool) {
	if hasIPv6 == nil {
		hasIPv6 = new(kernelHasIPv6())
	}
	for _, o := range l.options {
		switch {
		case o.fullName() == "listen_host" && !*hasIPv6:
			l.set(o, "built-in default", "0.0.0.0")
		case o.def != "":
			l.set(o, "built-in default", o.def)
		}
	}
}

func kernelHasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

func (l *loader) kernel(params Params) {
	for _, o := range l.options {
		if value, ok := params[o.kernel]; ok && o.kernel != "" {
			l.setFrom(o, "kernel parameter "+o.kernel, value, l.unsigned.hasParam(o.kernel))
		}
	}
}

// Set changes one option. name is its name in files, and "group.option" outside of the default group. value is a
// string as an operator writes it, or a boolean, a number or a list of strings as encoding/json decodes them. After
// an error the option is unchanged.
func (c *Config) Set(name string, value any) error {
	for _, o := range options() {
		if o.fullName() != name {
			continue
		}
		if err := o.setAny(c, value); err != nil {
			return fmt.Errorf("option %s: %w", name, err)
		}
		return nil
	}
	return fmt.Errorf("option %s: unknown", name)
}
