package containers

import (
	"flag"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ironroot/agent/config"
	"ironroot/agent/container"
)

func TestParseRun(t *testing.T) {
	for options, want := range map[string]RunOptions{
		"":                             {},
		"--rm --network=host":          {},
		"--rm=true --net host -q":      {},
		"--pull=never --tls-verify":    {},
		"--privileged":                 {Privileged: true, AllDisks: true},
		"--privileged=false":           {},
		"-v /dev:/dev":                 {AllDisks: true},
		"--volume=/dev/:/dev:rw":       {AllDisks: true},
		"--device=/dev/sda":            {Disks: []string{"/dev/sda"}},
		"--device /dev/sda:/dev/sda:r": {Disks: []string{"/dev/sda"}},
		"--device=/dev/sdb:rwm":        {Disks: []string{"/dev/sdb"}},
		"--privileged --device=/dev/sda --device=/dev/sdb": {
			Privileged: true, Disks: []string{"/dev/sda", "/dev/sdb"},
		},
		"-e A=1 --env=B= --env C=x=y":                    {Env: []string{"A=1", "B=", "C=x=y"}},
		"--entrypoint /bin/tool":                         {Entrypoint: []string{"/bin/tool"}},
		`--entrypoint=["/bin/a","-b"]`:                   {Entrypoint: []string{"/bin/a", "-b"}},
		"--pid=private --pull newer":                     {},
		"--rm --network=host --quiet=1":                  {},
		"--network none":                                 {NoNetwork: true},
		"-w /a/../b":                                     {Dir: "/b"},
		"--user 1000:0":                                  {User: "1000:0"},
		"-u tool":                                        {User: "tool"},
		"--security-opt label=disable":                   {},
		"--mount type=bind,source=/dev,destination=/dev": {AllDisks: true},
		"--mount=type=bind,src=/run/udev,dst=/run/udev,ro --mount ro=true,type=bind,source=/lib/modules,target=/m": {
			Mounts: []container.Mount{
				{Source: "/run/udev", Target: "/run/udev", ReadOnly: true},
				{Source: "/lib/modules", Target: "/m", ReadOnly: true},
			},
		},
		"-v /lib/modules:/lib/modules:ro --volume=/lib/firmware/x/:/fw:ro,Z": {Mounts: []container.Mount{
			{Source: "/lib/modules", Target: "/lib/modules", ReadOnly: true},
			{Source: "/lib/firmware/x", Target: "/fw", ReadOnly: true},
		}},
	} {
		got, err := parseRun(strings.Fields(options))
		if err != nil {
			t.Errorf("%q: %v", options, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", options, diff)
		}
	}
	for options, want := range map[string]string{
		"--pid=host":                                "-pid: want private",
		"--net=bridge":                              "-net: want host or none",
		"--workdir=tmp":                             "want an absolute path",
		"-v /lib/modules:/m":                        "read-only",
		"-v /lib/modules/../../etc:/m:ro":           "/dev:/dev",
		"-v /run:/run:ro":                           "/dev:/dev",
		"-v /lib/modulesx:/m:ro":                    "/dev:/dev",
		"-v /lib/modules":                           "SOURCE:TARGET",
		"--rm=false":                                "-rm: want true",
		"-v /:/host":                                "/dev:/dev",
		"-v /etc:/etc:ro":                           "/dev:/dev",
		"-v /dev:/host":                             "/dev:/dev",
		"--volume=/dev/../etc:/dev":                 "/dev:/dev",
		"-v data:/dev":                              "absolute paths",
		"--device=/dev/disk/by-id/x":                "want a device /dev/NAME",
		"--device=/dev/../etc/shadow":               "want a device /dev/NAME",
		"--device=/dev/sda:/dev/sdb":                "another name",
		"--device=sda":                              "want a device /dev/NAME",
		"--env PASSWORD":                            "want NAME=VALUE",
		"--env==x":                                  "want NAME=VALUE",
		"--cap-add=SYS_ADMIN":                       "--cap-add: not supported",
		"--ulimit nofile=1024":                      "--ulimit: not supported",
		"--security-opt seccomp=unconfined":         "filter of system calls",
		"--user :0":                                 "want USER or USER:GROUP",
		"--user=":                                   "want USER or USER:GROUP",
		"--mount type=tmpfs,destination=/tmp":       "want type=bind",
		"--mount source=/lib/modules,target=/m,ro":  "want type=bind",
		"--mount type=bind,src=/lib/modules,dst=/m": "read-only",
		"--mount type=bind,src=/lib/modules,dst=/m,ro=false":    "read-only",
		"--mount type=bind,src=/etc,dst=/etc,ro":                "/dev:/dev",
		"--mount type=bind,src=/lib/modules,dst=/m,ro,relabel=": `"relabel=": not supported`,
		"-it":                            "--it: not supported",
		"--help":                         "--help: not supported",
		"--mount type=bind,src=/,dst=/x": "/dev:/dev",
		"--pull=sometimes":               "not supported",
		"--privileged=maybe":             "want true or false",
		"--entrypoint=[1]":               "entrypoint",
		"--rm image":                     `"image" is not an option`,
		"-- image":                       `"image" is not an option`,
		"--network":                      "flag needs an argument",
	} {
		if _, err := parseRun(strings.Fields(options)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "run options: ") {
			t.Errorf("%q: got %v, want an error with %q", options, err, want)
		}
	}
}

func TestParsePull(t *testing.T) {
	for options, want := range map[string]PullOptions{
		"":                               {},
		"-q --quiet":                     {},
		"--tls-verify":                   {},
		"--tls-verify=true":              {},
		"--tls-verify=false":             {SkipTLSVerify: true},
		"--retry 0 --retry-delay=1m30s":  {Retries: new(0), RetryDelay: new(90 * time.Second)},
		"--tls-verify=false --retry=100": {SkipTLSVerify: true, Retries: new(100)},
	} {
		got, err := parsePull(strings.Fields(options))
		if err != nil {
			t.Errorf("%q: %v", options, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", options, diff)
		}
	}
	for options, want := range map[string]string{
		"--tls-verify=no":       "want true or false",
		"--tls-verify false":    `"false" is not an option`,
		"--retry=101":           "from 0 to 100",
		"--retry=-1":            "from 0 to 100",
		"--retry=1x":            "from 0 to 100",
		"--retry-delay=-5s":     "want a duration",
		"--retry-delay=5":       "want a duration",
		"--creds=user:password": "--creds: not supported",
		"--authfile /x":         "--authfile: not supported",
		"--arch arm64":          "--arch: not supported",
		"-h":                    "-h: not supported",
	} {
		if _, err := parsePull(strings.Fields(options)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "pull options: ") {
			t.Errorf("%q: got %v, want an error with %q", options, err, want)
		}
	}
}

// Whatever the file contains, parsing ends with steps that have all keys, or with an error.
func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{
		tool, "", "null", "steps:", "steps: []", "steps: [{}]", "a: &a [*a]", "a: &a {b: *a}\nsteps: [*a]",
		"steps:\n- &s {name: a, image: b, interface: c, reboot_requested: no, abortable: on, priority: 0x10}\n",
		"x: &x --rm\nsteps:\n- {name: a, image: b, interface: c, reboot_requested: n, abortable: y, priority: 1, " +
			"run_options: [*x, *x]}\n", "steps: [{<<: {name: a}}]", "%YAML 1.1\n---\nsteps: !!set {a}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		steps, err := parseFile(data)
		if err != nil && steps != nil {
			t.Errorf("got %d steps with error %v", len(steps), err)
		}
		for _, s := range steps {
			if err := s.check(); err != nil {
				t.Errorf("got a step that lacks a key: %v", err)
			}
			if len(s.PullOptions) > maxOptions || len(s.RunOptions) > maxOptions {
				t.Errorf("got %d and %d options", len(s.PullOptions), len(s.RunOptions))
			}
		}
	})
}

// The help of the configuration names each option that is accepted, and no other one.
func TestHelpNamesOptions(t *testing.T) {
	aliases := []string{"q", "e", "u", "v", "w", "net"}
	for field, set := range map[string]flags{
		"PullOptions": pullFlags(new(PullOptions)), "RunOptions": runFlags(new(RunOptions)),
	} {
		member, ok := reflect.TypeFor[config.Container]().FieldByName(field)
		if !ok {
			t.Fatalf("no option %s", field)
		}
		var want []string
		set.VisitAll(func(f *flag.Flag) {
			if !slices.Contains(aliases, f.Name) {
				want = append(want, "--"+f.Name)
			}
		})
		got := regexp.MustCompile(`--[a-z-]+`).FindAllString(member.Tag.Get("help"), -1)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("help of %s (-accepted +named):\n%s", field, diff)
		}
	}
}
