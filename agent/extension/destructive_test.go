package extension

import (
	"strings"
	"testing"
)

// harmless are the commands that are accepted without --destructive. A flow then rejects all other commands.
const harmless = "standby.sync standby.get_partition_uuids clean.get_clean_steps deploy.get_deploy_steps " +
	"service.get_service_steps log.collect_system_logs poll.get_hardware_info poll.set_node_info flow.start_flow"

// Every command that can change a disk, the network or the state of the machine is refused without --destructive.
func TestDestructiveCommands(t *testing.T) {
	var got []string
	for _, e := range All(newRig(t).deps) {
		for _, c := range e.Commands {
			if !c.Destructive {
				got = append(got, e.Name+"."+c.Name)
			}
		}
	}
	if strings.Join(got, " ") != harmless {
		t.Errorf("got the commands %q without --destructive, want %q", got, harmless)
	}
}
