package containers

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"ironroot/agent/container"
)

// PullOptions are the options of podman pull that have an effect.
type PullOptions struct {
	SkipTLSVerify bool // do not verify the certificate of the registry
	// Retries and RetryDelay replace the values of the configuration. A nil value keeps the configured one.
	Retries    *int
	RetryDelay *time.Duration
}

// RunOptions are the options of podman run that have an effect.
type RunOptions struct {
	Privileged bool
	// AllDisks shows the program all local disks that the node does not protect. Otherwise it sees those in Disks.
	AllDisks   bool
	Disks      []string
	Env        []string // NAME=VALUE
	Entrypoint []string // instead of the program of the image
	Dir        string   // working directory instead of the image's, "" does not replace it
	User       string   // USER[:GROUP] instead of the image's, "" does not replace it
	NoNetwork  bool
	Mounts     []container.Mount
}

// maxRetries limits --retry.
const maxRetries = 100

// errNoEffect reports an option that asks for something that containers of the ramdisk do not have.
var errNoEffect = errors.New("not supported")

// parseOptions parses options of podman pull and podman run.
func parseOptions(pull, run []string) (PullOptions, RunOptions, error) {
	pullOptions, err := parsePull(pull)
	if err != nil {
		return PullOptions{}, RunOptions{}, err
	}
	runOptions, err := parseRun(run)
	return pullOptions, runOptions, err
}

// parsePull parses options of podman pull and docker pull.
func parsePull(options []string) (PullOptions, error) {
	var o PullOptions
	if err := pullFlags(&o).parse(options); err != nil {
		return o, fmt.Errorf("pull options: %w", err)
	}
	return o, nil
}

// pullFlags returns the options of podman pull, which are parsed to o. The help of config.Container names them.
func pullFlags(o *PullOptions) flags {
	set := newFlags()
	set.tlsVerify(&o.SkipTLSVerify)
	set.ignored("quiet", "q")
	set.Func("retry", "", func(text string) error {
		var retries int
		if _, err := fmt.Sscanf(text+"\n", "%d\n", &retries); err != nil || retries < 0 || retries > maxRetries {
			return fmt.Errorf("want a number from 0 to %d", maxRetries)
		}
		o.Retries = &retries
		return nil
	})
	set.Func("retry-delay", "", func(text string) error {
		delay, err := time.ParseDuration(text)
		if err != nil || delay < 0 {
			return errors.New("want a duration such as 5s")
		}
		o.RetryDelay = &delay
		return nil
	})
	return set
}

// parseRun parses options of podman run and docker run.
func parseRun(options []string) (RunOptions, error) {
	var o RunOptions
	if err := runFlags(&o).parse(options); err != nil {
		return o, fmt.Errorf("run options: %w", err)
	}
	o.AllDisks = o.AllDisks || o.Privileged && len(o.Disks) == 0
	return o, nil
}

// runFlags returns the options of podman run, which are parsed to o. The help of config.Container names them.
func runFlags(o *RunOptions) flags {
	set := newFlags()
	set.ignored("quiet", "q")
	set.only("rm", "true", "containers are always removed")
	for _, name := range []string{"network", "net"} {
		set.Func(name, "", func(text string) error {
			if text != "host" && text != "none" {
				return errors.New("want host or none: containers have no other network")
			}
			o.NoNetwork = text == "none"
			return nil
		})
	}
	set.only("pid", "private", "containers have a PID namespace of their own")
	set.Func("pull", "", func(text string) error { // the image has just been pulled
		if !slices.Contains([]string{"always", "missing", "never", "newer", "true", "false"}, text) {
			return errNoEffect
		}
		return nil
	})
	set.tlsVerify(new(bool)) // for the pull by run
	set.BoolFunc("privileged", "", func(text string) error { return parseBool(text, &o.Privileged) })
	for _, name := range []string{"env", "e"} {
		set.Func(name, "", func(text string) error {
			if name, _, ok := strings.Cut(text, "="); !ok || name == "" {
				return errors.New("want NAME=VALUE")
			}
			o.Env = append(o.Env, text)
			return nil
		})
	}
	for _, name := range []string{"workdir", "w"} {
		set.Func(name, "", func(text string) error {
			if !path.IsAbs(text) {
				return errors.New("want an absolute path")
			}
			o.Dir = path.Clean(text)
			return nil
		})
	}
	for _, name := range []string{"user", "u"} {
		set.Func(name, "", func(text string) error {
			if user, group, hasGroup := strings.Cut(text, ":"); user == "" || hasGroup && group == "" {
				return errors.New("want USER or USER:GROUP")
			}
			o.User = text
			return nil
		})
	}
	for _, name := range []string{"volume", "v"} {
		set.Func(name, "", func(text string) error { return parseVolume(text, o) })
	}
	set.Func("mount", "", func(text string) error { return parseMount(text, o) })
	set.Func("security-opt", "", func(text string) error {
		if !strings.HasPrefix(text, "label=") {
			return errors.New("want label=disable: programs always run under a filter of system calls")
		}
		return nil // the ramdisk has no SELinux
	})
	set.Func("device", "", func(text string) error { return parseDevice(text, o) })
	set.Func("entrypoint", "", func(text string) error {
		if strings.HasPrefix(text, "[") {
			return json.Unmarshal([]byte(text), &o.Entrypoint)
		}
		o.Entrypoint = []string{text}
		return nil
	})
	return set
}

// shown are the directories of the ramdisk that a container may see, read-only. Others contain the agent's
// configuration, or lead to its memory.
var shown = []string{"/lib/firmware", "/lib/modules", "/run/udev"}

// parseVolume accepts the volume of all devices, which are then the node's disks, and directories below shown.
func parseVolume(text string, o *RunOptions) error {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || !path.IsAbs(parts[0]) || !path.IsAbs(parts[1]) {
		return errors.New("want SOURCE:TARGET with absolute paths")
	}
	source, target := path.Clean(parts[0]), path.Clean(parts[1])
	if source == "/dev" && target == "/dev" {
		o.AllDisks = true
		return nil
	}
	if !slices.ContainsFunc(shown, func(dir string) bool {
		return source == dir || strings.HasPrefix(source, dir+"/")
	}) {
		return fmt.Errorf("want /dev:/dev, or a source below %s", strings.Join(shown, ", "))
	}
	if len(parts) == 2 || !slices.Contains(strings.Split(parts[2], ","), "ro") {
		return fmt.Errorf("want %s:%s:ro, directories of the ramdisk are read-only", source, target)
	}
	o.Mounts = append(o.Mounts, container.Mount{Source: source, Target: target, ReadOnly: true})
	return nil
}

// parseMount accepts a bind mount that parseVolume accepts, in the form type=bind,source=SOURCE,target=TARGET,ro.
func parseMount(text string, o *RunOptions) error {
	values := map[string]string{}
	for option := range strings.SplitSeq(text, ",") {
		name, value, hasValue := strings.Cut(option, "=")
		switch name {
		case "type", "source", "target", "ro":
		case "src":
			name = "source"
		case "dst", "destination":
			name = "target"
		case "readonly":
			name = "ro"
		default:
			return fmt.Errorf("%q: %w", option, errNoEffect)
		}
		if name == "ro" && !hasValue {
			value = "true"
		}
		values[name] = value
	}
	if values["type"] != "bind" {
		return errors.New("want type=bind")
	}
	volume := values["source"] + ":" + values["target"]
	if values["ro"] == "true" {
		volume += ":ro"
	}
	return parseVolume(volume, o)
}

// parseDevice accepts a block device of the ramdisk under its own name.
func parseDevice(text string, o *RunOptions) error {
	source, rest, _ := strings.Cut(text, ":")
	target, _, _ := strings.Cut(rest, ":")
	if path.Dir(path.Clean(source)) != "/dev" {
		return errors.New("want a device /dev/NAME")
	}
	if target != "" && strings.HasPrefix(target, "/") && path.Clean(target) != path.Clean(source) {
		return errors.New("another name in the container is not supported")
	}
	o.Disks = append(o.Disks, path.Clean(source))
	return nil
}

// flags is a set of options of podman. The parser accepts --name=value, --name value, and -n value.
type flags struct{ *flag.FlagSet }

func newFlags() flags {
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	return flags{set}
}

// parse parses the options. Its error names the first one that is not supported.
func (f flags) parse(options []string) error {
	for _, option := range options {
		if option == "--help" || option == "-h" || option == "-help" {
			return fmt.Errorf("%s: %w", option, errNoEffect)
		}
	}
	if err := f.Parse(options); err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
			return fmt.Errorf("--%s: %w", name, errNoEffect)
		}
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is not an option", f.Arg(0))
	}
	return nil
}

// ignored adds options without a value and without effect.
func (f flags) ignored(names ...string) {
	for _, name := range names {
		f.BoolFunc(name, "", func(text string) error { return parseBool(text, new(bool)) })
	}
}

// only adds an option that accepts one value. The error for any other gives the reason.
func (f flags) only(name, want, reason string) {
	check := func(text string) error {
		if text != want {
			return fmt.Errorf("want %s: %s", want, reason)
		}
		return nil
	}
	if want == "true" {
		f.BoolFunc(name, "", check)
		return
	}
	f.Func(name, "", check)
}

// tlsVerify adds the option --tls-verify, and sets skip if it is false.
func (f flags) tlsVerify(skip *bool) {
	f.BoolFunc("tls-verify", "", func(text string) error {
		verify := true
		err := parseBool(text, &verify)
		*skip = !verify
		return err
	})
}

// parseBool parses the value of a boolean option.
func parseBool(text string, into *bool) error {
	switch text {
	case "true", "1":
		*into = true
	case "false", "0":
		*into = false
	default:
		return errors.New("want true or false")
	}
	return nil
}
