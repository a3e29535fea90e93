package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"ironroot/agent/node"
	"ironroot/agent/selftest"
	"ironroot/internal/pause"
)

// reportFile is the name of the report in the log archive.
const reportFile = "selftest.json"

// SelfTest describes the machine in a report, without changing anything and without Ironic.
func SelfTest(ctx context.Context, o Options) (*selftest.Report, error) {
	a := newAgent(o)
	defer a.close()
	if err := a.loadHardware(ctx); err != nil {
		return nil, err
	}
	return a.SelfTest(ctx, nil)
}

// SelfTest implements [selftest.Reporter]. It keeps the report for the log archive.
func (a *agent) SelfTest(ctx context.Context, n *node.Node) (*selftest.Report, error) {
	report := selftest.Collect(ctx, selftest.Options{
		System: a.o.System, Program: "ironroot " + a.o.Version, Inventory: a.inventory, Cleaner: a.builtin,
		Node: n, Neighbours: a.neighbours(), LLDPTimeout: a.config.Get().LLDPTimeout, Board: a.o.Board,
	})
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	if _, err := a.o.Journal.Keep(reportFile, data); err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	return report, nil
}

// logSelfTest writes a report to the log when the drivers are loaded, if the configuration requests it.
func (a *agent) logSelfTest(ctx context.Context) error {
	if !a.config.Get().SelfTest {
		return nil
	}
	a.o.Machine.Drivers.Resume()
	if err := pause.Until(ctx, a.o.Machine.Drivers.Settled()); err != nil {
		return err
	}
	report, err := a.SelfTest(ctx, a.node.Get())
	if err != nil {
		return err
	}
	for _, line := range report.Lines() {
		a.log.Info("self-test", "subject", line.Subject, "text", line.Text)
	}
	a.log.Info("self-test ended", "problems", len(report.Problems), "file", reportFile)
	return nil
}
