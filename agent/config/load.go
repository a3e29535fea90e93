package config

import (
	"errors"
	"fmt"
	"os"
)

// Sources are the places options are read from. The zero value gives the built-in defaults.
type Sources struct {
	// Params are the kernel's and virtual media's parameters, the lowest layer.
	Params Params
	// Args are command line flags without the program's name: --listen_port 80, --listen-port=80, --debug. They may
	// also name configuration files (--config-file) and folders (--config-dir), which must then exist and follow the
	// others.
	Args []string
	// Environ is the environment, "OS_DEFAULT__API_URL=http://...", as os.Environ returns it.
	Environ []string
	// Files are configuration files, a later one winning. Files that do not exist are passed over.
	Files []string
	// ConfigDirs are folders whose *.conf files follow Files in alphabetical order. Missing folders are passed over.
	ConfigDirs []string
	// HasIPv6 reports whether the kernel speaks IPv6, which decides the default of listen_host; nil looks at the running
	// one.
	HasIPv6 func() bool
}

// ErrHelp is returned by Load when the arguments ask for help.
var ErrHelp = errors.New("help requested")

// Load reads all options. The error names every option whose value is of the wrong type, out of range or not one of
// the choices, together with the value and its source, even where another source overrides that value. Unknown kernel
// parameters and unknown entries of files are no error.
func Load(s Sources) (*Config, error) {
	l := loader{options: options(), config: &Config{Params: s.Params}}
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
	// On a machine that cannot be logged into, the kernel's command line must be able to switch debugging on.
	if value, ok := s.Params["ipa-debug"]; ok {
		l.config.Debug, _ = parseBool(value) // a wrong value was reported with the other kernel parameters
	}
	if err := errors.Join(l.errs...); err != nil {
		return nil, err
	}
	return l.config, nil
}

// loader fills a Config layer by layer and gathers what is wrong.
type loader struct {
	options []option
	config  *Config
	errs    []error
}

func (l *loader) set(o option, source, value string) {
	if err := o.set(l.config, value); err != nil {
		l.errs = append(l.errs, fmt.Errorf("option %s: %s: %w", o.fullName(), source, err))
	}
}

func (l *loader) defaults(hasIPv6 func() bool) {
	for _, o := range l.options {
		if o.def != "" {
			l.set(o, "built-in default", o.def)
		}
	}
	if hasIPv6 == nil {
		hasIPv6 = kernelHasIPv6
	}
	if !hasIPv6() {
		l.config.ListenHost = "0.0.0.0"
	}
}

func kernelHasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

func (l *loader) kernel(params Params) {
	for _, o := range l.options {
		if value, ok := params[o.kernel]; ok && o.kernel != "" {
			l.set(o, "kernel parameter "+o.kernel, value)
		}
	}
}

// Set changes one option by its name as files spell it, "group.option" outside of the default group. A value is a
// text as an operator would write it, or a boolean, number or list of texts as JSON decodes them. The
// error says what was got and what is wanted, and leaves the option as it was.
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
