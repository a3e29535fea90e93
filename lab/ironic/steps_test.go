//go:build linux

package ironic

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/mkuimage/cpio"

	"ironroot/agent/hardware/external"
	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
)

// TestRealIronicSteps runs steps by name and by a runbook, both with arguments, automated cleaning with a step that
// requests a reboot, servicing, and a rescue. While the step that requests a reboot runs, the ramdisk is replaced by
// one with another version of a manager: Ironic reports no failure and starts over. Fast track saves boots: five serve
// all.
//
// Ironic ignores reboot_requested in manual cleaning, up to 39.0. In Ironic 39, the deploy interface autodetect becomes
// another one at the start of each cleaning, deployment and service.
//
// Parity: S3, S5 (rescue, login, unrescue; service), S7 (automated cleaning), P10, U6
// Parity: T13 (the newest that can be installed)
func TestRealIronicSteps(t *testing.T) {
	testenv.Programs(t, "go")
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 45*time.Minute)
	system, err := osimage.Build(ctx, osimage.Options{Progress: t.Output()})
	step(t, "image", err)
	versions := map[string]string{"1": withManager(t, ramdisk, "1"), "2": withManager(t, ramdisk, "2")}
	suite, interfaces, deployInterface := newest(t), "", ""
	if suite == Sid {
		deployInterface = "autodetect"
		interfaces = "[DEFAULT]\nenabled_deploy_interfaces = autodetect,direct,ramdisk\n" +
			"autodetect_deploy_interfaces = ramdisk,direct\n"
	}
	i := start(t, Options{
		Suite:        suite,
		KernelParams: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1",
		Config:       interfaces + "[deploy]\nfast_track = true\n",
	})
	n, err := i.Enroll(ctx, NodeOptions{
		Kernel: kernel, Ramdisk: versions["1"], Memory: memory, DeployInterface: deployInterface,
		Disks: []qemu.Disk{{Size: 5 << 30, Serial: "DISK0"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// resolved checks how often autodetect has become another interface.
	resolved := func(operation string, want int) {
		t.Helper()
		const text = "autodetect switching to deploy interface: direct"
		if got := strings.Count(i.Logs(1<<20), text); deployInterface != "" && got != want {
			t.Errorf("after %s: Ironic's log has %q %d times, want %d", operation, text, got, want)
		}
	}
	r := recordSteps(t, i, n, versions)
	step(t, "manage", n.Manage(ctx))
	step(t, "properties", n.Set(ctx, "/driver_info/agent_burnin_cpu_timeout", 1))

	step(t, "manual cleaning", n.Clean(ctx, Step{"deploy", "report", map[string]any{"note": "by name"}}))
	r.check(t, []stepRun{{"report", "by name", "1", 0}})
	resolved("manual cleaning", 1)

	const runbook = "CUSTOM_LAB"
	step(t, "runbook", i.call(ctx, http.MethodPost, "/v1/runbooks", map[string]any{
		"name": runbook, "steps": []map[string]any{
			{"interface": "deploy", "step": "report", "args": map[string]any{"note": "by runbook"}, "order": 1},
			{"interface": "deploy", "step": "burnin_cpu", "args": map[string]any{}, "order": 2},
		},
	}, nil))
	// The names of a runbook and of its trait were the same before API 1.112.
	step(t, "trait of the runbook", i.call(ctx, http.MethodPut, "/v1/runbooks/"+runbook+"/traits/"+runbook, nil, nil))
	step(t, "trait of the node", i.call(ctx, http.MethodPut, "/v1/nodes/"+n.UUID+"/traits/"+runbook, nil, nil))
	step(t, "cleaning by runbook", n.CleanByRunbook(ctx, runbook))
	r.check(t, []stepRun{{"report", "by runbook", "1", 0}})
	resolved("cleaning by runbook", 2)

	// The first boot after the step has the other version, which refuses the next step.
	r.replaceBy("2")
	step(t, "automated cleaning", n.Provide(ctx))
	r.check(t, []stepRun{{"restart", "", "1", 0}, {"restart", "", "2", 1}, {"report", "", "2", 2}})
	resolved("automated cleaning", 3)

	image := publish(t, i, system.Raw, "os.raw")
	image.Format = "raw"
	step(t, "deploy", n.Deploy(ctx, image, nil))
	resolved("deployment", 4)
	if deployInterface != "" { // a deployed node keeps the other interface until it is set again
		maintenance := "/v1/nodes/" + n.UUID + "/maintenance"
		step(t, "maintenance", i.call(ctx, http.MethodPut, maintenance, map[string]any{"reason": "interface"}, nil))
		step(t, "deploy_interface", n.Set(ctx, "/deploy_interface", deployInterface))
		step(t, "end of maintenance", i.call(ctx, http.MethodDelete, maintenance, nil, nil))
	}
	step(t, "service", n.Service(ctx, Step{Interface: "deploy", Step: "burnin_cpu"}))
	resolved("service", 5)
	if !n.On() {
		t.Error("the machine is off after servicing")
	}
	r.check(t, nil)
	rescue(t, ctx, n, ramdisk)
}

// managerAddress is the address at which the test listens for reports of the manager.
const managerAddress = address + ":8081"

// withManager returns a ramdisk with the manager in a version.
func withManager(t *testing.T, ramdisk, version string) string {
	t.Helper()
	return withManagerFlags(t, ramdisk, version, "")
}

// withManagerFlags returns a ramdisk with the manager in a version, linked with more flags.
func withManagerFlags(t *testing.T, ramdisk, version, flags string) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-C", testenv.Top(t), "-trimpath", "-o", program, "-ldflags",
		"-s -w -X main.version="+version+" -X main.reportURL=http://"+managerAddress+" "+flags,
		"./lab/ironic/stepmanager")
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(ramdisk)
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, testenv.Archive(t, cpio.StaticFile(external.Dir[1:]+"/steps", string(content), 0o755))...)
	path := filepath.Join(dir, "ramdisk-"+version)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// stepRun is a step of the manager that has run.
type stepRun struct {
	Step, Note, Version string
	Boot                int // number of the machine's boot, from 0
}

// recorder receives the reports of the manager.
type recorder struct {
	publish func(version string) error // replaces the ramdisk that Ironic fetches

	mu    sync.Mutex
	runs  []stepRun
	boots []string // IDs
	next  string   // version of the ramdisk to publish when a step runs, "" for none
	errs  []error
}

// recordSteps makes the node use a ramdisk that can be replaced, and records the steps of the manager in it.
func recordSteps(t *testing.T, i *Ironic, n *Node, versions map[string]string) *recorder {
	t.Helper()
	url, err := i.Publish(versions["1"], "replaced.initramfs")
	step(t, "publish", err)
	step(t, "deploy_ramdisk", n.Set(t.Context(), "/driver_info/deploy_ramdisk", url))
	return record(t, i, func(version string) error { return i.replace("replaced.initramfs", versions[version]) })
}

// record records the steps of managers. publish replaces the ramdisk that Ironic fetches by a version's.
func record(t *testing.T, i *Ironic, publish func(version string) error) *recorder {
	t.Helper()
	r := &recorder{publish: publish}
	i.serveHTTP(t, managerAddress, &http.Server{Handler: r})
	return r
}

// ServeHTTP records a step, and replaces the ramdisk before the step ends.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	boot := slices.Index(r.boots, req.FormValue("boot"))
	if boot < 0 {
		boot = len(r.boots)
		r.boots = append(r.boots, req.FormValue("boot"))
	}
	r.runs = append(r.runs, stepRun{req.FormValue("step"), req.FormValue("note"), req.FormValue("version"), boot})
	if r.next == "" {
		return
	}
	if err := r.publish(r.next); err != nil {
		r.errs = append(r.errs, err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	r.next = ""
}

// replace replaces a published file. Ironic fetches it again because it is newer.
func (i *Ironic) replace(name, file string) error {
	if err := copyFile(file, i.path("http/"+name+".new")); err != nil {
		return err
	}
	return os.Rename(i.path("http/"+name+".new"), i.path("http/"+name))
}

// replaceBy makes the next step that runs replace the ramdisk by a version's.
func (r *recorder) replaceBy(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = version
}

// check compares the steps that have run since the last check.
func (r *recorder) check(t *testing.T, want []stepRun) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(want, r.runs); diff != "" || len(r.errs) > 0 {
		t.Errorf("errors: %v; steps of the manager differ (-want +got):\n%s", r.errs, diff)
	}
	r.runs = nil
}
