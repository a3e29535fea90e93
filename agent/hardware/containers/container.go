package containers

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/container"
	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
)

// class is the manager's class and name.
const class = "ContainerHardwareManager"

// The steps that are always listed. The second is a former name of the first, which runbooks still use.
const (
	genericStep = "generic_container_step"
	formerStep  = "container_clean_step"
)

// The arguments of these steps.
const (
	urlArgument  = "container_url"
	pullArgument = "pull_options"
	runArgument  = "run_options"
)

// Options are the options of a Manager.
type Options struct {
	Config *config.Live
	// Managers are all managers; nil means that there are no others.
	Managers StepNamer
	Runtime  Runtime
	Log      *slog.Logger
}

// StepNamer returns the names of the steps of all managers except the one with a class: see
// [hardware.Managers.StepNames].
type StepNamer interface {
	StepNames(class string, n *node.Node, ports []map[string]any) (map[string]bool, error)
}

// Runtime runs containers.
type Runtime interface {
	// Available returns an error if the kernel cannot run containers.
	Available() error
	// Run pulls an image and runs it to its end.
	Run(ctx context.Context, job Job) error
}

// Job is an image to run, with the options of the step.
type Job struct {
	Node  *node.Node // whose protected disks the program does not see
	Image string     // reference without transport
	// MaxDuration is the longest time for which the program can run; 0 means forever.
	MaxDuration time.Duration
	Pull        PullOptions
	Run         RunOptions
}

// Manager is the hardware manager for containers.
type Manager struct{ o Options }

// New returns the manager.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{o}
}

// Class implements [hardware.Manager].
func (m *Manager) Class() string { return class }

// Name implements [hardware.Manager].
func (m *Manager) Name() string { return class }

// Version implements [hardware.Manager]. It is the version of the manager of the same name in ironic-python-agent.
func (m *Manager) Version() string { return "2" }

// Support implements [hardware.Manager].
func (m *Manager) Support(context.Context) hardware.Level {
	if err := m.o.Runtime.Available(); err != nil {
		m.o.Log.Info("steps in containers are not available", "err", err)
		return hardware.None
	}
	return hardware.Mainline
}

// ListSteps implements [hardware.StepLister]. The priorities of the steps file apply to automatic cleaning: as steps of
// other kinds, its steps run only on request.
func (m *Manager) ListSteps(kind hardware.Kind, n *node.Node, ports []map[string]any) ([]hardware.Step, error) {
	yes := true
	arguments := map[string]hardware.ArgInfo{
		urlArgument: {Description: "Reference of the container image.", Required: true},
		pullArgument: {Description: "Options of podman pull, which are ignored unless the configuration allows any " +
			"container. The default is the configuration's."},
		runArgument: {Description: "Options of podman run, which are ignored unless the configuration allows any " +
			"container. The default is the configuration's."},
	}
	steps := []hardware.Step{
		{
			Name: genericStep, Interface: "deploy", Abortable: &yes, ArgsInfo: arguments, Run: m.runArguments,
			Help: "Runs a program of a container image that the configuration allows.",
		},
		{
			Name: formerStep, Interface: "deploy", Abortable: &yes, ArgsInfo: arguments, Run: m.runFormer,
			Help: "Former name of `" + genericStep + "`.",
		},
	}
	file, err := m.fileSteps(n, ports)
	if err != nil {
		return steps, err
	}
	for _, s := range file {
		step := hardware.Step{
			Name: *s.Name, Interface: *s.Interface, RebootRequested: *s.RebootRequested, Abortable: s.Abortable,
			Run: m.runFile(s),
		}
		if kind == hardware.Clean {
			step.Priority = *s.Priority
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// fileSteps reads the steps of the steps file. It returns an error if one of them has the name of another step or of a
// manager's method.
func (m *Manager) fileSteps(n *node.Node, ports []map[string]any) ([]fileStep, error) {
	path := m.o.Config.Get().Container.ContainerStepsFile
	if path == "" {
		return nil, nil
	}
	steps, err := readFile(path)
	if err != nil {
		return nil, fault.HardwareManagerConfiguration("container steps file: %w", err)
	}
	if len(steps) == 0 {
		return nil, nil
	}
	others := map[string]bool{}
	if m.o.Managers != nil {
		if others, err = m.o.Managers.StepNames(class, n, ports); err != nil {
			return nil, err
		}
	}
	c := m.o.Config.Get().Container
	for _, s := range steps {
		pull, run, err := withDefaults(c, s.PullOptions, s.RunOptions)
		if err != nil {
			return nil, err
		}
		if _, _, err := parseOptions(pull, run); err != nil {
			return nil, fault.HardwareManagerConfiguration("container steps file %s: step '%s': %w", path, *s.Name, err)
		}
		if name := *s.Name; reserved[name] || others[name] || strings.HasPrefix(name, "_") {
			return nil, fault.HardwareManagerConfiguration("container steps file %s: step '%s' has the name of a "+
				"method or step of a hardware manager", path, name)
		}
	}
	return steps, nil
}

// runFormer runs the step of a deprecated name.
func (m *Manager) runFormer(ctx context.Context, call hardware.Call) (any, error) {
	m.o.Log.Warn("step name is deprecated", "step", formerStep, "use", genericStep)
	return m.runArguments(ctx, call)
}

// runArguments runs the image that the arguments of the step name. Unless the configuration allows all images,
// options of the step are logged and ignored.
func (m *Manager) runArguments(ctx context.Context, call hardware.Call) (any, error) {
	if err := call.CheckArguments(urlArgument, pullArgument, runArgument); err != nil {
		return nil, err
	}
	var image string
	if err := json.Unmarshal(call.Args[urlArgument], &image); err != nil || image == "" {
		return nil, fault.InvalidCommandParams("'%s' must be a non-empty string", urlArgument)
	}
	c := m.o.Config.Get().Container
	if !permitted(c, image) {
		m.o.Log.Error("container image refused", "image", image, "allowed", strings.Join(c.AllowedContainers, ","))
		return nil, fault.ContainerNotPermitted(image)
	}
	var pull, run []string
	if c.AllowArbitraryContainers {
		var err error
		if pull, err = optionsArgument(call, pullArgument); err != nil {
			return nil, err
		}
		if run, err = optionsArgument(call, runArgument); err != nil {
			return nil, err
		}
	} else if given(call, pullArgument) || given(call, runArgument) {
		m.o.Log.Warn("options of the step ignored: the configuration allows only listed containers", "image", image)
	}
	return nil, m.run(ctx, call.Node, image, pull, run)
}

// runFile returns the function of a step of the steps file. Its image and options are the operator's, and trusted.
func (m *Manager) runFile(s fileStep) hardware.StepFunc {
	return func(ctx context.Context, call hardware.Call) (any, error) {
		if err := call.CheckArguments(); err != nil {
			return nil, err
		}
		return nil, m.run(ctx, call.Node, *s.Image, s.PullOptions, s.RunOptions)
	}
}

// run pulls an image and runs it. The configuration replaces options that are empty.
func (m *Manager) run(ctx context.Context, n *node.Node, image string, pull, run []string) error {
	c := m.o.Config.Get().Container
	pull, run, err := withDefaults(c, pull, run)
	if err != nil {
		return err
	}
	job := Job{Node: n, Image: container.NormalizeName(image), MaxDuration: c.MaxDuration}
	if job.Pull, job.Run, err = parseOptions(pull, run); err != nil {
		return fault.InvalidCommandParams("%w", err)
	}
	m.o.Log.Info("container started", "image", job.Image)
	if err := m.o.Runtime.Run(ctx, job); err != nil {
		return err
	}
	m.o.Log.Info("container ended", "image", job.Image)
	return nil
}

// withDefaults replaces options that are empty by the configuration's.
func withDefaults(c config.Container, pull, run []string) ([]string, []string, error) {
	for _, list := range []struct {
		options    *[]string
		configured []string
	}{{&pull, c.PullOptions}, {&run, c.RunOptions}} {
		if len(*list.options) > 0 {
			continue
		}
		var err error
		if *list.options, err = splitWords(list.configured); err != nil {
			return nil, nil, fault.HardwareManagerConfiguration("container options: %w", err)
		}
	}
	return pull, run, nil
}

// permitted reports whether a step may name the image.
func permitted(c config.Container, image string) bool {
	return c.AllowArbitraryContainers || slices.ContainsFunc(c.AllowedContainers, func(allowed string) bool {
		return container.NormalizeName(allowed) == container.NormalizeName(image)
	})
}

// given reports whether an argument is present and not null.
func given(call hardware.Call, name string) bool {
	raw, ok := call.Args[name]
	return ok && string(raw) != "null"
}

// optionsArgument returns the options in an argument: a string or a list of strings.
func optionsArgument(call hardware.Call, name string) ([]string, error) {
	if !given(call, name) {
		return nil, nil
	}
	var texts []string
	var text string
	switch {
	case json.Unmarshal(call.Args[name], &text) == nil:
		texts = []string{text}
	case json.Unmarshal(call.Args[name], &texts) != nil:
		return nil, fault.InvalidCommandParams("'%s' must be a string or a list of strings", name)
	}
	split, err := splitWords(texts)
	if err != nil {
		return nil, fault.InvalidCommandParams("'%s': %w", name, err)
	}
	return split, nil
}
