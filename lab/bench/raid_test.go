package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"ironroot/initramfs"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
)

// maxRAID limits the time to create a RAID 1.
const maxRAID = 3 * time.Second

// BenchmarkRAID1 runs the step apply_configuration with a RAID 1 of two disks: on empty disks, and on disks whose array
// it deletes first. A step ends when the array runs, is writable and its members are checked, so that an image can be
// written. The durations are those that the agent logs, by the guest's clock, medians of the rounds. It fails if one is
// above maxRAID.
func BenchmarkRAID1(b *testing.B) {
	const rounds = 5
	dir := b.TempDir()
	var disks []qemu.Disk
	for i := range 2 {
		disks = append(disks, qemu.Disk{
			Bus: qemu.Virtio, File: filepath.Join(dir, fmt.Sprintf("disk%d", i)), Size: 8 << 30,
		})
	}
	var created, replaced []time.Duration
	runSteps(b, qemu.Config{Disks: disks, InstructionClock: true}, func(a *agent) error {
		apply := func(times *[]time.Duration) error {
			duration, _, err := a.step("deploy", map[string]any{
				"step": "apply_configuration", "interface": "raid",
				"args": map[string]any{"raid_config": map[string]any{"logical_disks": []any{map[string]any{
					"controller": "software", "raid_level": "1", "size_gb": "MAX", "is_root_volume": true,
				}}}},
			}, nil)
			*times = append(*times, duration)
			return err
		}
		for range rounds {
			if err := apply(&created); err != nil {
				return err
			}
			if err := apply(&replaced); err != nil {
				return err
			}
			if _, _, err := a.step("clean", map[string]any{
				"step": "delete_configuration", "interface": "raid",
			}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	b.Logf("created %v, replaced %v", created, replaced)
	b.ReportMetric(0, "ns/op")
	for _, c := range []struct {
		name  string
		times []time.Duration
	}{{"created", created}, {"replaced", replaced}} {
		var all []float64
		for _, t := range c.times {
			all = append(all, t.Seconds())
		}
		b.ReportMetric(median(all), c.name+"-s")
		if median(all) > maxRAID.Seconds() {
			b.Errorf("RAID 1 %s: got %.2f s (%v), want at most %v", c.name, median(all), c.times, maxRAID)
		}
	}
}

// agent runs steps on a machine.
type agent struct {
	ctx     context.Context
	node    *conductor.Node
	console *qemu.Console
}

// ended matches the line that the agent logs at the end of a step.
var ended = regexp.MustCompile(`command ended command=\w+\.execute_\w+_step status=\w+ duration=(\S+)\s`)

// step runs a clean or deploy step, which must succeed, with fields of the node. It returns the duration that the agent
// logs, and the result.
func (a *agent) step(kind string, step, fields map[string]any) (time.Duration, string, error) {
	node := map[string]any{"uuid": a.node.UUID(), "properties": map[string]any{}, "instance_info": map[string]any{}}
	for key, value := range fields {
		node[key] = value
	}
	command, mark := kind+".execute_"+kind+"_step", a.console.Mark()
	record, err := a.node.Command(a.ctx, command, map[string]any{"step": step, "node": node, "ports": []any{}}, true)
	if err != nil {
		return 0, "", err
	}
	if record.Status != conductor.Succeeded {
		return 0, "", fmt.Errorf("%s: got %s (%w), want %s", step["step"], record.Status, record.Error,
			conductor.Succeeded)
	}
	match, err := a.console.FollowFrom(a.ctx, mark, ended) // the line can arrive after the reply
	if err != nil {
		return 0, "", err
	}
	duration, err := time.ParseDuration(match.Groups[1])
	return duration, string(record.Result), err
}

const agentPort = 9999

// forwarded connects to the agent of a machine.
type forwarded struct{ machine **qemu.Machine }

func (f forwarded) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return (*f.machine).DialForwarded(ctx, network, agentPort)
}

// runSteps boots the ramdisk on a machine with its own conductor, and calls do after the first heartbeat.
func runSteps(b *testing.B, c qemu.Config, do func(*agent) error) {
	image := build(b, b.TempDir(), initramfs.Options{Init: "ironroot/uinit", ModuleGroups: []string{"server"}})
	var machine *qemu.Machine
	ironic, err := conductor.New(conductor.Options{
		TLS: true, Names: []string{"10.0.2.2"}, CommandTimeout: machineTimeout,
		Dialer: forwarded{&machine},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer ironic.Close()
	node := ironic.AddNode(conductor.NodeSpec{Name: "bench", MACs: []string{nodeMAC}})
	node.SetState(conductor.CleanWait)
	c.NICs = []qemu.NIC{{MAC: nodeMAC, Forwards: []qemu.Forward{{Guest: agentPort}}}}
	// The disks can be too small for a root disk, for which the agent would wait.
	c.Append = bothAppend + " ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1" +
		" ipa-insecure=1 ipa-api-url=" + ironic.URLFrom("10.0.2.2")
	bootMachine(b, image, c, func(ctx context.Context, m *qemu.Machine) error {
		machine = m
		if err := node.WaitAgent(ctx); err != nil {
			return err
		}
		return do(&agent{ctx: ctx, node: node, console: m.Console()})
	})
}
