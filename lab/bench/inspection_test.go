package bench

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/agent/inspection"
	"ironroot/initramfs"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
)

// everyCollector contains all collectors except lldp, which waits for frames of other machines.
var everyCollector = strings.Join(inspection.CollectorNames("lldp"), ",")

// BenchmarkInspection boots the ramdisk on a machine with a disk and inspects it with every collector except
// lldp. agent-s is the time from the agent's start to the end of the inspection, including the waits for drivers and
// DHCP; own-s is the inspection without these waits. Both are medians, measured by the guest's clock.
func BenchmarkInspection(b *testing.B) {
	const rounds = 3
	image := build(b, b.TempDir(), initramfs.Options{Init: "ironroot/uinit", ModuleGroups: []string{"server"}})
	var agents, owns []float64
	var console string
	for range rounds {
		console = bootToInspection(b, image)
		first := found(b, console, `start-up phase=configuration duration=(\S+) uptime=\S+ ok=true`)
		begin := found(b, console, `start-up phase=configuration duration=\S+ uptime=(\S+) ok=true`) - first
		agents = append(agents,
			(found(b, console, `start-up phase=inspection duration=\S+ uptime=(\S+) ok=true`) - begin).Seconds())
		own := found(b, console, `inspection ended collecting=(\S+)`) +
			found(b, console, `inspection ended .*posting=(\S+)`)
		owns = append(owns, own.Seconds())
	}
	b.Logf("agent's start to data posted %.2f s, inspection alone %.2f s", agents, owns)
	phases(console, "inspection ")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(agents), "agent-s")
	b.ReportMetric(median(owns), "own-s")
}

// found parses a duration on the console.
func found(b *testing.B, console, expression string) time.Duration {
	b.Helper()
	groups := regexp.MustCompile(expression).FindStringSubmatch(console)
	if groups == nil {
		b.Fatalf("no line matches %q:\n%s", expression, console)
	}
	d, err := time.ParseDuration(groups[1])
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// bootToInspection boots the ramdisk with its own conductor and returns its console at the end of the inspection.
func bootToInspection(b *testing.B, image initramfs.Report) string {
	ironic, err := conductor.New(conductor.Options{TLS: true, Names: []string{"10.0.2.2"}})
	if err != nil {
		b.Fatal(err)
	}
	defer ironic.Close()
	node := ironic.AddNode(conductor.NodeSpec{Name: "bench", MACs: []string{nodeMAC}})
	node.SetState(conductor.InspectWait)
	parameters := bothAppend + " ipa-insecure=1 ipa-api-url=" + ironic.URLFrom("10.0.2.2") +
		" ipa-inspection-collectors=" + everyCollector + " BOOTIF=01-" + strings.ReplaceAll(nodeMAC, ":", "-")
	_, console := boot(b, image, parameters, goodNIC(), func(ctx context.Context, m *qemu.Machine) error {
		if err := node.WaitEvent(ctx, conductor.EventInspection); err != nil {
			return err
		}
		_, err := m.Console().Follow(ctx, regexp.MustCompile(`start-up phase=inspection .*\n`))
		return err
	}, qemu.Disk{File: filepath.Join(b.TempDir(), "disk"), Size: 8 << 30})
	return console
}
