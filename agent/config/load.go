package config

import "errors"

// Sources are the places options are read from. The zero value gives the built-in defaults.
type Sources struct {
	// Params are the kernel's and virtual media's parameters, the lowest layer.
	Params Params
	// Args are command line flags without the program's name: --listen_port 80, --listen-port=80, --debug. They may
	// also name configuration files (--config-file) and folders (--config-dir), which must then exist.
	Args []string
	// Environ is the environment, "OS_DEFAULT__API_URL=http://...", as os.Environ returns it.
	Environ []string
	// Files are configuration files, a later one winning. Files that do not exist are passed over.
	Files []string
	// ConfigDirs are folders whose *.conf files follow Files in alphabetical order. Missing folders are passed over.
	ConfigDirs []string
	// HasIPv6 says whether the kernel speaks IPv6, which decides the default of listen_host; nil looks at the running one.
	HasIPv6 func() bool
}

// ErrHelp is returned by Load when the arguments ask for help.
var ErrHelp = errors.New("help requested")

// Load reads all options. The error names every option whose value is of the wrong type, out of range or not one of
// the choices, together with the value and its source. Unknown kernel parameters and unknown entries of files are no error.
func Load(s Sources) (*Config, error) {
	return nil, errors.New("not implemented")
}
