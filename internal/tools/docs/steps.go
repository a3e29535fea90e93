package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ironroot/agent"
	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/hardware/burnin"
)

// managers returns the managers of every image, without any configuration.
func managers() ([]hardware.Manager, error) {
	defaults, err := config.Load(config.Sources{})
	if err != nil {
		return nil, err
	}
	defaults.Container.ContainerStepsFile = "" // a file of this machine
	return agent.BuiltinManagers(defaults), nil
}

// listSteps returns the steps of a manager.
func listSteps(m hardware.Manager, kind hardware.Kind) []hardware.Step {
	switch m := m.(type) {
	case hardware.Stepper:
		return m.Steps(kind, nil, nil)
	case hardware.StepLister:
		steps, _ := m.ListSteps(kind, nil, nil) // only the steps file can be an error
		return steps
	}
	return nil
}

// stepRow is a step with how it is offered in each kind.
type stepRow struct {
	hardware.Step
	kinds map[hardware.Kind]hardware.Step
}

var kinds = []hardware.Kind{hardware.Clean, hardware.Deploy, hardware.Service}

// when names the kinds in texts.
var when = map[hardware.Kind]string{
	hardware.Clean: "cleaning", hardware.Deploy: "deployment", hardware.Service: "service",
}

// rowsOf returns the steps of the manager that the argument of a block names.
func rowsOf(arguments []string) ([]stepRow, error) {
	if len(arguments) != 1 {
		return nil, errors.New("want the class of a manager")
	}
	all, err := managers()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(m hardware.Manager) bool { return m.Class() == arguments[0] })
	if at < 0 {
		return nil, fmt.Errorf("manager %s is unknown: builtinManagers in agent/state.go does not list it",
			arguments[0])
	}
	var rows []stepRow
	for _, kind := range kinds {
		for _, step := range listSteps(all[at], kind) {
			if step.Help == "" {
				return nil, fmt.Errorf("step %s has no help", step.Name)
			}
			at := slices.IndexFunc(rows, func(r stepRow) bool { return r.Name == step.Name })
			if at < 0 {
				at = len(rows)
				rows = append(rows, stepRow{step, map[hardware.Kind]hardware.Step{}})
			}
			rows[at].kinds[kind] = step
		}
	}
	slices.SortStableFunc(rows, func(a, b stepRow) int { return cmp.Compare(a.Name, b.Name) })
	return rows, nil
}

// steps returns the table of the steps of a manager. The argument is its class.
func steps(_ string, arguments []string, _ string) (string, error) {
	rows, err := rowsOf(arguments)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("" +
		"| Step | Interface | Clean | Deploy | Service | Abortable | Requests a reboot | What it does |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&text, "| `%s` | %s |", r.Name, r.Interface)
		var abortable []string
		for _, kind := range kinds {
			step, offered := r.kinds[kind]
			if !offered {
				text.WriteString(" – |")
				continue
			}
			fmt.Fprintf(&text, " %d |", step.Priority)
			if step.Abortable != nil && *step.Abortable {
				abortable = append(abortable, when[kind])
			}
		}
		which := "yes"
		switch {
		case len(abortable) == 0:
			which = "no"
		case len(abortable) < len(r.kinds):
			which = "in " + strings.Join(abortable, ", ")
		}
		reboot := "no"
		if r.RebootRequested {
			reboot = "yes"
		}
		fmt.Fprintf(&text, " %s | %s | %s |\n", which, reboot, r.Help)
	}
	return text.String(), nil
}

// arguments returns the table of the arguments of a manager's steps. The argument is the manager's class.
func arguments(_ string, arguments []string, _ string) (string, error) {
	rows, err := rowsOf(arguments)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("| Step | Argument | Required | Listed | Meaning |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		for _, group := range []struct {
			listed    string
			arguments map[string]hardware.ArgInfo
		}{{"yes", r.ArgsInfo}, {"no", r.Passed}} {
			for _, name := range slices.Sorted(maps.Keys(group.arguments)) {
				required := "no"
				if group.arguments[name].Required {
					required = "yes"
				}
				fmt.Fprintf(&text, "| `%s` | `%s` | %s | %s | %s |\n",
					r.Name, name, required, group.listed, group.arguments[name].Description)
			}
		}
	}
	return text.String(), nil
}

// burninSettings returns the table of the settings of burn-in steps.
func burninSettings(string, []string, string) (string, error) {
	var text strings.Builder
	text.WriteString("| Step | Key of `driver_info` | Default | Meaning |\n|---|---|---|---|\n")
	for _, s := range burnin.Settings() {
		missing := "none"
		if s.Default != "" {
			missing = "`" + s.Default + "`"
		}
		fmt.Fprintf(&text, "| `%s` | `%s` | %s | %s |\n", s.Step, s.Name, missing, s.Help)
	}
	return text.String(), nil
}
