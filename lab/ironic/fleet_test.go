//go:build linux && long

package ironic

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
)

// TestRealIronicMixedFleet moves one machine from ironic-python-agent to ironroot and back, both with their own kernels
// and with a hardware manager of the same name and steps. Each of them deploys after driver_info was changed to it, and
// cleans what the other one has deployed. In the middle of two automated cleanings, the files are replaced by the other
// one's: Ironic reports no failure, and starts the cleaning again. It refuses changes of driver_info during a cleaning.
//
// Parity: S7 (from ironic-python-agent and back)
func TestRealIronicMixedFleet(t *testing.T) {
	testenv.Programs(t, "go")
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 90*time.Minute)
	python := pythonAgentRamdisk(t, ctx)
	system, err := osimage.Build(ctx, osimage.Options{Progress: t.Output()})
	step(t, "image", err)
	i := start(t, Options{KernelParams: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1"})
	disk := testenv.SparseFile(t, 5<<30)
	testenv.GPT(t, disk, "size=8MiB")
	n, err := i.Enroll(ctx, NodeOptions{
		Kernel: python.Kernel, Ramdisk: python.Ramdisk, Memory: 2 << 30,
		Disks: []qemu.Disk{{File: disk, Serial: "DISK0"}},
	})
	step(t, "enroll", err)
	f := &fleet{node: n, files: map[string][2]string{
		"ipa":      {python.Kernel, python.Ramdisk},
		"ironroot": {kernel, withManager(t, ramdisk, "ironroot")},
	}}
	f.recorder = record(t, i, func(agent string) error { return f.publish(t, ctx, agent) })
	image := publish(t, i, system.Raw, "os.raw")
	image.Format = "raw"

	step(t, "manage", n.Manage(ctx))
	f.use(t, ctx, "ipa")
	f.boots(t, "inspection", []string{"ipa"}, func() { step(t, "inspect", n.Inspect(ctx)) })
	f.useReplaced(t, ctx, "ipa")
	f.recorder.replaceBy("ironroot")
	f.boots(t, "cleaning", []string{"ipa", "ironroot", "ironroot"}, func() { clean(t, ctx, disk, n.Provide) })
	f.recorder.check(t, []stepRun{
		{"restart", "", "ipa", 0}, {"restart", "", "ironroot", 1}, {"report", "", "ironroot", 2},
	})
	f.use(t, ctx, "ironroot")
	f.boots(t, "deployment", []string{"ironroot"}, func() { deploy(t, ctx, n.Deploy, n, image) })

	f.useReplaced(t, ctx, "ironroot")
	f.recorder.replaceBy("ipa")
	f.boots(t, "cleaning", []string{"ironroot", "ipa", "ipa"}, func() { clean(t, ctx, disk, n.Undeploy) })
	f.recorder.check(t, []stepRun{
		{"restart", "", "ironroot", 3}, {"restart", "", "ipa", 4}, {"report", "", "ipa", 5},
	})
	f.use(t, ctx, "ipa")
	f.boots(t, "deployment", []string{"ipa"}, func() { deploy(t, ctx, n.Deploy, n, image) })

	f.use(t, ctx, "ironroot")
	f.boots(t, "cleaning", []string{"ironroot", "ironroot"}, func() { clean(t, ctx, disk, n.Undeploy) })
	f.recorder.check(t, []stepRun{{"restart", "", "ironroot", 6}, {"report", "", "ironroot", 7}})
}

// fleet is a machine and the files of the agents that it boots by turns.
type fleet struct {
	node     *Node
	files    map[string][2]string // kernel and initramfs by agent
	recorder *recorder
}

// use changes driver_info to the files of an agent.
func (f *fleet) use(t *testing.T, ctx context.Context, agent string) {
	t.Helper()
	f.set(t, ctx, func(file string) (string, error) { return f.node.ironic.publishByContent(file) }, agent)
}

// Names of files that are replaced while the node uses them.
var replacedNames = [2]string{"fleet.kernel", "fleet.initramfs"}

// useReplaced changes driver_info to files that can be replaced. They are the files of an agent.
func (f *fleet) useReplaced(t *testing.T, ctx context.Context, agent string) {
	t.Helper()
	number := -1
	f.set(t, ctx, func(file string) (string, error) {
		number++
		return filesURL + "/" + replacedNames[number], f.node.ironic.replace(replacedNames[number], file)
	}, agent)
}

func (f *fleet) set(t *testing.T, ctx context.Context, publish func(file string) (string, error), agent string) {
	t.Helper()
	for number, key := range []string{"deploy_kernel", "deploy_ramdisk"} {
		url, err := publish(f.files[agent][number])
		step(t, "publish", err)
		step(t, key, f.node.Set(ctx, "/driver_info/"+key, url))
	}
}

// publish replaces the files by another agent's while a cleaning runs. Ironic refuses another URL then.
func (f *fleet) publish(t *testing.T, ctx context.Context, agent string) error {
	const want = "can not be updated while a state transition is in progress"
	if err := f.node.Set(ctx, "/driver_info/deploy_ramdisk", filesURL+"/other"); err == nil ||
		!strings.Contains(err.Error(), "got status 409: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("change of driver_info during the cleaning: got %v, want status 409 and %q", err, want)
	}
	for number, name := range replacedNames {
		if err := f.node.ironic.replace(name, f.files[agent][number]); err != nil {
			return err
		}
	}
	return nil
}

// debianKernel matches the version of a kernel of Debian trixie on the console. The kernel of ironic-python-agent's
// ramdisk is one for virtual machines. The one of the instance is of another release.
var debianKernel = regexp.MustCompile(`Linux version \S+\+deb13(-cloud)?-amd64`)

// boots runs an operation and compares the agents whose kernels have booted meanwhile.
func (f *fleet) boots(t *testing.T, name string, want []string, operation func()) {
	t.Helper()
	mark := f.node.Mark()
	operation()
	var got []string
	lines := f.node.Mark() - mark
	for _, kernel := range debianKernel.FindAllStringSubmatch(f.node.Console(lines), -1) {
		got = append(got, map[string]string{"": "ironroot", "-cloud": "ipa"}[kernel[1]])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kernels of the %s differ (-want +got):\n%s", name, diff)
	}
}
