package main

import (
	"context"
	"encoding/json"
	"os"

	"ironroot/agent"
	"ironroot/agent/config"
	"ironroot/agent/journal"
)

// selftestCmd describes this machine in a report.
type selftestCmd struct {
	JSON bool `help:"Print the report as JSON, the form in which to send it."`
}

// Help returns the text that follows the summary in the command's help.
func (*selftestCmd) Help() string {
	return `The report names the drivers and the firmware of the machine's devices, links, disks and the method by which
erase_devices would erase each of them, and problems. Nothing is changed. It contains no serial numbers, MAC or IP
addresses, so it can be published. Run it as root; on a node, boot with ipa-selftest=1 or run the service step selftest.

Examples:
  ironroot selftest                        show the report
  ironroot selftest --json > machine.json  the form in which to send it`
}

// Run prints the report. Its exit status is 0 with problems, too.
func (c *selftestCmd) Run() error {
	return asProcess(nil, "", func(ctx context.Context, options *config.Config, log *journal.Journal) error {
		report, err := agent.SelfTest(ctx, agent.Options{Config: options, Journal: log})
		if err != nil {
			return err
		}
		if !c.JSON {
			return report.Write(os.Stdout)
		}
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	})
}
