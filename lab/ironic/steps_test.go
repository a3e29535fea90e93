//go:build linux

package ironic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	"ironroot/internal/testenv"
	"ironroot/lab/qemu"
	"ironroot/storage/md"
	"ironroot/storage/partition"
)

// TestRealIronicSteps runs steps by name and by a runbook, both with arguments, automated cleaning with a step that
// requests a reboot, and servicing. While that step runs, the ramdisk is replaced by one with another version of a
// manager: Ironic reports no failure and starts over. On the way a RAID array is created, kept by automated cleaning,
// and deployed to, without a boot loader. Fast track saves boots: four serve all.
//
// Ironic ignores reboot_requested in manual cleaning, up to 39.0.
//
// Parity: S3, S5 (service), S7 (automated cleaning), P10, N6 (real Ironic)
func TestRealIronicSteps(t *testing.T) {
	testenv.Programs(t, "go", "sgdisk")
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 45*time.Minute)
	versions := map[string]string{"1": withManager(t, ramdisk, "1"), "2": withManager(t, ramdisk, "2")}
	i := start(t, Options{
		KernelParams: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ipa-ignore-bootloader-failure=1",
		Config:       "[deploy]\nfast_track = true\n",
	})
	n, err := i.Enroll(ctx, NodeOptions{
		Kernel: kernel, Ramdisk: versions["1"], Memory: memory,
		Disks: []qemu.Disk{{Size: 3 << 29, Serial: "DISK0"}, {Size: 3 << 29, Serial: "DISK1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := recordSteps(t, i, n, versions)
	step(t, "manage", n.Manage(ctx))
	step(t, "properties", n.Set(ctx, "/driver_info/agent_burnin_cpu_timeout", 1))
	setTarget(t, ctx, n, raidTarget)

	step(t, "manual cleaning", n.Clean(ctx,
		Step{"deploy", "report", map[string]any{"note": "by name"}},
		Step{Interface: "raid", Step: "create_configuration"},
	))
	r.check(t, []stepRun{{"report", "by name", "1", 0}})
	checkRAIDConfig(t, ctx, n)
	created := checkArray(t, ctx, n)

	const runbook = "CUSTOM_LAB"
	step(t, "runbook", i.call(ctx, http.MethodPost, "/v1/runbooks", map[string]any{
		"name": runbook, "steps": []map[string]any{
			{"interface": "deploy", "step": "report", "args": map[string]any{"note": "by runbook"}, "order": 1},
			{"interface": "deploy", "step": "burnin_cpu", "args": map[string]any{}, "order": 2},
		},
	}, nil))
	step(t, "trait", i.call(ctx, http.MethodPut, "/v1/nodes/"+n.UUID+"/traits/"+runbook, nil, nil))
	step(t, "cleaning by runbook", n.CleanByRunbook(ctx, runbook))
	r.check(t, []stepRun{{"report", "by runbook", "1", 0}})

	// The first boot after the step has the other version, which refuses the next step.
	r.replaceBy("2")
	step(t, "automated cleaning", n.Provide(ctx))
	r.check(t, []stepRun{{"restart", "", "1", 0}, {"restart", "", "2", 1}, {"report", "", "2", 2}})
	if kept := checkArray(t, ctx, n); kept != created {
		t.Errorf("automated cleaning: got array %+v, want it kept: %+v", kept, created)
	}

	image := smallImage(t)
	deployed := publish(t, i, image, "small.raw")
	deployed.Format = "raw"
	step(t, "deploy", n.Deploy(ctx, deployed, nil))
	checkArrayContent(t, n, image)

	step(t, "service", n.Service(ctx, Step{Interface: "deploy", Step: "burnin_cpu"}))
	if !n.On() {
		t.Error("the machine is off after servicing")
	}
	r.check(t, nil)
}

// raidTarget is a target_raid_config.
const raidTarget = `{"logical_disks": [
	{"controller": "software", "raid_level": "1", "size_gb": 1, "volume_name": "root", "is_root_volume": true}
]}`

// setTarget sets the node's target_raid_config.
func setTarget(t *testing.T, ctx context.Context, n *Node, config string) {
	t.Helper()
	step(t, "target_raid_config", n.ironic.call(ctx, http.MethodPut, "/v1/nodes/"+n.UUID+"/states/raid",
		json.RawMessage(config), nil))
}

// checkRAIDConfig checks the field that Ironic's hook has set.
func checkRAIDConfig(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	var node struct {
		Config struct {
			LogicalDisks []any  `json:"logical_disks"`
			LastUpdated  string `json:"last_updated"`
		} `json:"raid_config"`
		Properties map[string]any `json:"properties"`
	}
	step(t, "node", n.ironic.call(ctx, http.MethodGet, "/v1/nodes/"+n.UUID, nil, &node))
	want := []any{map[string]any{
		"controller": "software", "raid_level": "1", "size_gb": 1.0, "volume_name": "root", "is_root_volume": true,
	}}
	if diff := cmp.Diff(want, node.Config.LogicalDisks); diff != "" || node.Config.LastUpdated == "" {
		t.Errorf("raid_config was updated at %q, and differs (-want +got):\n%s", node.Config.LastUpdated, diff)
	}
	if capabilities, _ := node.Properties["capabilities"].(string); !strings.Contains(capabilities, "raid_level:1") {
		t.Errorf("capabilities: got %q, want raid_level:1 in it", capabilities)
	}
}

// array is what the members of an array have in common.
type array struct {
	UUID, Level, Name string
	at                int64 // offset of the array's data on the disk, in bytes
}

// checkArray returns the array on the machine's disks. Each has one partition with one member.
func checkArray(t *testing.T, ctx context.Context, n *Node) array {
	t.Helper()
	var found [2]array
	for d := range found {
		path := n.diskFile(d)
		table, err := partition.Read(ctx, path)
		if err != nil || len(table.Partitions) != 1 {
			t.Fatalf("disk %d: got table %+v and %v, want one partition", d, table, err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		p := table.Partitions[0]
		members, err := md.Find(io.NewSectionReader(f, p.Start, p.Size), p.Size)
		_ = f.Close() // only read
		if err != nil || len(members) != 1 {
			t.Fatalf("disk %d: got members %+v and %v, want one", d, members, err)
		}
		m := members[0]
		if m.Problem != nil {
			t.Fatalf("disk %d: %v", d, m.Problem)
		}
		found[d] = array{m.UUID, m.Level, m.Name, p.Start + m.DataOffset}
	}
	if found[0] != found[1] || found[0].Name != "any:root" {
		t.Errorf("got members of %+v and %+v, want both of one array any:root", found[0], found[1])
	}
	return found[0]
}

// diskFile returns the path of a disk that the lab created.
func (n *Node) diskFile(number int) string {
	return filepath.Join(n.ironic.path("vm/"+n.Name), fmt.Sprintf("disk%d.raw", number))
}

// smallImage returns the path of an image of a disk with a partition table.
func smallImage(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.raw")
	if err := os.WriteFile(path, filling(0)[:24<<20], 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "sgdisk", "--zap-all", path)
	testenv.Run(t, "sgdisk", "-n", "1:2048:0", path)
	return path
}

// checkArrayContent checks that both members of the array contain an image. Its partition table, which the node may
// have moved to the end of the array, is not compared.
func checkArrayContent(t *testing.T, n *Node, image string) {
	t.Helper()
	want, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	want = want[1<<20 : len(want)-1<<20]
	at := checkArray(t, t.Context(), n).at
	for d := range 2 {
		got := make([]byte, len(want))
		f, err := os.Open(n.diskFile(d))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(got, at+1<<20); err != nil || !bytes.Equal(got, want) {
			t.Errorf("disk %d does not contain the image at byte %d: %v", d, at, err)
		}
		_ = f.Close() // only read
	}
}

// managerAddress is where the test listens for reports of the manager.
const managerAddress = address + ":8081"

// withManager returns a ramdisk with the manager in a version.
func withManager(t *testing.T, ramdisk, version string) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-C", testenv.Top(t), "-trimpath", "-o", program, "-ldflags",
		"-s -w -X main.version="+version+" -X main.reportURL=http://"+managerAddress, "./lab/ironic/stepmanager")
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
	published string            // path of the ramdisk that Ironic fetches
	versions  map[string]string // ramdisks by version of the manager

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
	r := &recorder{published: i.path("http/replaced.initramfs"), versions: versions}
	step(t, "deploy_ramdisk", n.Set(t.Context(), "/driver_info/deploy_ramdisk", url))
	listener, err := i.ns.Listen(t.Context(), "tcp", managerAddress)
	step(t, "listen", err)
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
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
	if err := r.publish(r.versions[r.next]); err != nil {
		r.errs = append(r.errs, err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	r.next = ""
}

// publish replaces the ramdisk that Ironic fetches by another one. Ironic fetches it again because it is newer.
func (r *recorder) publish(ramdisk string) error {
	if err := copyFile(ramdisk, r.published+".new"); err != nil {
		return err
	}
	return os.Rename(r.published+".new", r.published)
}

// replaceBy makes the next step that runs replace the ramdisk by that of a version.
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
