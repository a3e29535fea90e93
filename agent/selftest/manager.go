package selftest

import (
	"context"

	"ironroot/agent/hardware"
	"ironroot/agent/node"
)

// Manager is the hardware manager whose step writes a report.
type Manager struct {
	Reporter Reporter
}

// Reporter writes reports.
type Reporter interface {
	// SelfTest returns the report, with the settings of a node, which may be nil.
	SelfTest(ctx context.Context, n *node.Node) (*Report, error)
}

// Class implements [hardware.Manager].
func (*Manager) Class() string { return "SelfTestHardwareManager" }

// Name implements [hardware.Manager].
func (*Manager) Name() string { return "selftest_hardware_manager" }

// Version implements [hardware.Manager].
func (*Manager) Version() string { return "1" }

// Support implements [hardware.Manager].
func (*Manager) Support(context.Context) hardware.Level { return hardware.Generic }

// Steps implements [hardware.Stepper]. The step is never automatic.
func (m *Manager) Steps(kind hardware.Kind, _ *node.Node, _ []map[string]any) []hardware.Step {
	if kind == hardware.Deploy {
		return nil
	}
	yes := true
	return []hardware.Step{{
		Name: "selftest", Interface: "deploy", Abortable: &yes, Run: m.run,
		Help: "Describes the machine in a report without changing anything. The report is the step's result, and " +
			"part of the log archive.",
	}}
}

func (m *Manager) run(ctx context.Context, call hardware.Call) (any, error) {
	if err := call.CheckArguments(); err != nil {
		return nil, err
	}
	return m.Reporter.SelfTest(ctx, call.Node)
}
