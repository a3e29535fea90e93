package bench

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/initramfs"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
)

const (
	nodeMAC = "52:54:00:be:9c:01"
	// machineTimeout is the time limit for all that a benchmark does with one machine of a run.
	machineTimeout = 20 * time.Minute
	// bothAppend are the kernel parameters for both contestants.
	bothAppend = "console=ttyS0,115200n8 loglevel=4 mitigations=off " + qemu.ClockHints
	// maxOwnPart limits the ramdisk's own part of the time until the first heartbeat.
	maxOwnPart = 3 * time.Second
)

// BenchmarkFirstHeartbeat boots the same kernel in turn with a bare /init that prints one line, and with the ramdisk
// until Ironic receives its first heartbeat. extra-s is the median of the differences, which is the ramdisk's own
// part. It fails if this is more than maxOwnPart, and also more than the bare kernel's own time: a machine on which
// that takes longer is too slow or too busy for a limit in seconds. The phases of the last run are printed from its
// console.
func BenchmarkFirstHeartbeat(b *testing.B) {
	const rounds = 3
	bareDir, fullDir := b.TempDir(), b.TempDir()
	bare := build(b, bareDir, initramfs.Options{Init: "ironroot/lab/bench/bare", ModuleGroups: []string{"none"}})
	full := build(b, fullDir, initramfs.Options{Init: "ironroot/uinit", ModuleGroups: []string{"server"}, Shell: true})
	var bares, fulls, extras []float64
	var console string
	for range rounds {
		bareTime, _ := boot(b, bare, bothAppend, goodNIC(), func(ctx context.Context, m *qemu.Machine) error {
			_, err := m.Console().Follow(ctx, regexp.MustCompile("BARE-INIT"))
			return err
		})
		var fullTime time.Duration
		fullTime, console = bootToHeartbeat(b, full, goodNIC())
		bares, fulls = append(bares, bareTime.Seconds()), append(fulls, fullTime.Seconds())
		extras = append(extras, (fullTime - bareTime).Seconds())
	}
	b.Logf("bare /init after %.1f s, first heartbeat after %.1f s", bares, fulls)
	phases(console, "network is up")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(bares), "bare-s")
	b.ReportMetric(median(fulls), "heartbeat-s")
	b.ReportMetric(median(extras), "extra-s")
	limit := max(maxOwnPart.Seconds(), median(bares))
	if own := median(extras); own > limit {
		b.Errorf("first heartbeat %.1f s after a bare /init, which needs %.1f s; want at most %.1f s",
			own, median(bares), limit)
	}
}

// phases prints the lines of a console that show the phases of a start, and those that contain the text. A
// benchmark's log would be truncated after ten lines.
func phases(console, text string) {
	for _, line := range regexp.MustCompile(`(?m)^.*(start-up phase|modules are loaded|lease obtained|`+text+
		`).*$`).FindAllString(console, -1) {
		fmt.Println("   ", strings.TrimSpace(line))
	}
}

// BenchmarkDeadLinks boots the ramdisk in turn on a machine with one network card, and on one with two more cards
// that precede it: one without a carrier, and one on a network without any server. late-s is the median of the
// differences: the delay of the first heartbeat due to the two dead cards.
func BenchmarkDeadLinks(b *testing.B) {
	const rounds = 3
	image := build(b, b.TempDir(),
		initramfs.Options{Init: "ironroot/uinit", ModuleGroups: []string{"server"}, Shell: true})
	nobody := func(hub string) qemu.NIC { return qemu.NIC{Netdev: "hubport,hubid=" + hub} }
	var goods, alls, late []float64
	for range rounds {
		good, _ := bootToHeartbeat(b, image, goodNIC())
		all, _ := bootToHeartbeat(b, image, append([]qemu.NIC{nobody("1"), nobody("2")}, goodNIC()...), "nic0")
		goods, alls = append(goods, good.Seconds()), append(alls, all.Seconds())
		late = append(late, (all - good).Seconds())
	}
	b.Logf("first heartbeat with one card after %.1f s, with two useless ones ahead of it after %.1f s", goods, alls)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(goods), "one-card-s")
	b.ReportMetric(median(alls), "three-cards-s")
	b.ReportMetric(median(late), "late-s")
}

// goodNIC returns the network card that Ironic knows, on QEMU's own network.
func goodNIC() []qemu.NIC { return []qemu.NIC{{MAC: nodeMAC}} }

// bootToHeartbeat boots the ramdisk with its own conductor and returns the time until the first heartbeat and the
// console. unplugged names cards without a carrier.
func bootToHeartbeat(
	b *testing.B, image initramfs.Report, nics []qemu.NIC, unplugged ...string,
) (time.Duration, string) {
	ironic, err := conductor.New(conductor.Options{TLS: true, Names: []string{"10.0.2.2"}})
	if err != nil {
		b.Fatal(err)
	}
	defer ironic.Close()
	node := ironic.AddNode(conductor.NodeSpec{Name: "bench", MACs: []string{nodeMAC}})
	node.SetState(conductor.CleanWait)
	parameters := bothAppend + " ipa-insecure=1 ipa-api-url=" + ironic.URLFrom("10.0.2.2")
	return boot(b, image, parameters, nics, func(ctx context.Context, m *qemu.Machine) error {
		for _, nic := range unplugged { // long before the guest reads the state
			if _, err := m.QMP(ctx, "set_link", map[string]any{"name": nic, "up": false}); err != nil {
				return err
			}
		}
		return node.WaitEvent(ctx, conductor.EventFirstHeartbeat)
	})
}

// boot starts a machine and returns the time until wait returned, and its console.
func boot(b *testing.B, image initramfs.Report, parameters string, nics []qemu.NIC,
	wait func(context.Context, *qemu.Machine) error, disks ...qemu.Disk,
) (time.Duration, string) {
	return bootMachine(b, image, qemu.Config{Append: parameters, NICs: nics, Disks: disks}, wait)
}

// bootMachine is boot with a configuration, which it completes.
func bootMachine(b *testing.B, image initramfs.Report, c qemu.Config,
	wait func(context.Context, *qemu.Machine) error,
) (time.Duration, string) {
	ctx, cancel := context.WithTimeout(b.Context(), machineTimeout)
	defer cancel()
	dir, err := os.MkdirTemp(b.TempDir(), "machine")
	if err != nil {
		b.Fatal(err)
	}
	c.Name, c.Dir, c.Memory, c.CPUs, c.Kernel, c.Initrd = "bench", dir, 1<<30, 2, image.Kernel, image.Initramfs
	start := time.Now()
	machine, err := qemu.Start(ctx, c)
	if err != nil {
		b.Fatal(err)
	}
	defer machine.Stop() //nolint:errcheck // it has served
	if err := wait(ctx, machine); err != nil {
		b.Fatalf("%v\n%s", err, machine.Console().Tail(40))
	}
	return time.Since(start), machine.Console().String()
}
