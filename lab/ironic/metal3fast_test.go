//go:build linux && long

package ironic

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ironroot/internal/pause"
	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
)

// TestRealIronicMetal3 runs the newest Ironic with the options of Metal3's ironic-image, with fast track. Ironic's API
// is behind a proxy with TLS and basic authentication. Its certificate authority is only in the second archive of iPXE.
//
// One boot of the ramdisk, by the script inspector.ipxe, serves inspection and a deployment that is aborted when half
// of the image is written. Another deployment follows. A boot by Ironic's own script serves cleaning and a deployment
// by a custom step.
//
// Parity: T1, T2 (real Ironic), T4, T8
func TestRealIronicMetal3(t *testing.T) {
	testenv.Programs(t, "go")
	kernel := testenv.Build(t, "ipa-ironroot-amd64.kernel")
	ramdisk := withStep(t, testenv.Build(t, "ipa-ironroot-amd64.initramfs"), customStep)
	ctx := testenv.Context(t, 55*time.Minute)
	system, err := osimage.Build(ctx, osimage.Options{Progress: t.Output()})
	step(t, "image", err)
	i := startMetal3(t, true)
	n, err := i.Enroll(ctx, NodeOptions{
		DeployInterface: "autodetect", Kernel: kernel, Ramdisk: ramdisk, Memory: memory, Firmware: true,
		Disks: []qemu.Disk{{Size: 5 << 30, Serial: "DISK0"}},
	})
	step(t, "enroll", err)
	r := recordSteps(t, i, n, map[string]string{"1": ramdisk})
	i.writeInspectorScript(t, n)
	step(t, "manage", n.Manage(ctx))

	mark := n.Mark()
	n.inspectUnmanaged(t, ctx)
	if !strings.Contains(n.Since(mark), "SSH server started") {
		t.Error("the console does not show that the ramdisk accepted the operator's key")
	}
	n.waitHeartbeat(t, ctx)
	step(t, "no cleaning", n.Set(ctx, "/automated_clean", false))
	step(t, "provide", n.Provide(ctx))
	abortedDeploy(t, ctx, n, mark, noisy(t, system.Raw, 640<<20), system.Raw)
	if log := i.Logs(1 << 20); !strings.Contains(log, "autodetect switching to deploy interface: direct") {
		t.Error("Ironic's log does not say that autodetect chose the interface direct")
	}

	mark = n.Mark()
	step(t, "cleaning", n.Set(ctx, "/automated_clean", true))
	step(t, "undeploy", n.Undeploy(ctx))
	customDeploy(t, ctx, n)
	r.check(t, []stepRun{{customStep, "", "1", 0}})
	if got := n.boots(mark); got != 1 {
		t.Errorf("got %d boots of the ramdisk for cleaning and deployment, want 1", got)
	}
	n.checkLogs(t)
}

// customStep is the name of the deploy step of the custom manager.
const customStep = "install_system"

// withStep returns a ramdisk with a manager that has one deploy step.
func withStep(t *testing.T, ramdisk, name string) string {
	return withManagerFlags(t, ramdisk, "1", "-X main.deployStep="+name)
}

// writeInspectorScript writes the script that machines boot for which Ironic has written none, with the parameters of
// Metal3's: the names of both archives, a quoted key, and parameters that mean nothing to the ramdisk.
func (i *Ironic) writeInspectorScript(t *testing.T, n *Node) {
	t.Helper()
	kernel, err := i.publishByContent(n.Kernel)
	step(t, "publish", err)
	ramdisk, err := i.publishByContent(n.Ramdisk)
	step(t, "publish", err)
	script := "#!ipxe\n:retry_boot\nimgfree\n" +
		"kernel --timeout 60000 " + kernel + " " + metal3Common + " " + metal3Inspection +
		" BOOTIF=${mac} ipa-debug=1 ipa-inspection-callback-url=" + proxyURL + "/v1/continue_inspection" +
		" ipa-api-url=" + proxyURL + " initrd=" + path.Base(ramdisk) + " initrd=ipa-cacert-bundle " +
		sshKey(t) + " " + labParameters + " || goto retry_boot\n" +
		"initrd --timeout 60000 " + ramdisk + " || goto retry_boot\n" +
		"initrd --timeout 60000 " + filesURL + "/ipa-cacert-bundle || goto retry_boot\nboot\n"
	step(t, "inspector.ipxe", os.WriteFile(i.path("http/inspector.ipxe"), []byte(script), 0o644))
}

// inspectUnmanaged inspects the node while Ironic cannot configure its boot: without the ramdisk's URLs. The machine
// boots the fallback script.
func (n *Node) inspectUnmanaged(t *testing.T, ctx context.Context) {
	t.Helper()
	var node struct {
		Info map[string]any `json:"driver_info"`
	}
	one := "/v1/nodes/" + n.UUID
	step(t, "node", n.ironic.call(ctx, http.MethodGet, one+"?fields=driver_info", nil, &node))
	names := []string{"deploy_kernel", "deploy_ramdisk"}
	for _, name := range names {
		patch := []map[string]any{{"op": "remove", "path": "/driver_info/" + name}}
		step(t, "remove "+name, n.ironic.call(ctx, http.MethodPatch, one, patch, nil))
	}
	step(t, "inspect", n.Inspect(ctx))
	if !n.On() {
		t.Error("the machine is off after the inspection")
	}
	for _, name := range names {
		step(t, "add "+name, n.Set(ctx, "/driver_info/"+name, node.Info[name]))
	}
	inventory, _, err := n.Inventory(ctx)
	step(t, "inventory", err)
	boot, _ := inventory["boot"].(map[string]any)
	if boot["pxe_interface"] != n.MAC {
		t.Errorf("pxe_interface: got %v, want that of BOOTIF, %s", boot["pxe_interface"], n.MAC)
	}
}

// waitHeartbeat waits until Ironic has recorded the agent's URL. It ignores heartbeats while the node is locked.
func (n *Node) waitHeartbeat(t *testing.T, ctx context.Context) {
	t.Helper()
	for {
		var node struct {
			Internal struct {
				URL string `json:"agent_url"`
			} `json:"driver_internal_info"`
		}
		path := "/v1/nodes/" + n.UUID + "?fields=driver_internal_info"
		step(t, "heartbeat", n.ironic.call(ctx, http.MethodGet, path, nil, &node))
		if node.Internal.URL != "" {
			return
		}
		step(t, "heartbeat", pause.For(ctx, 250*time.Millisecond)) // Ironic sends no notification of changes
	}
}

// boots returns the number of starts of the ramdisk on the console after mark.
func (n *Node) boots(mark int) int { return strings.Count(n.Since(mark), "ironroot starts") }

// deliveries serves two images, the first one slowly, and records what was delivered to machines, in order.
type deliveries struct {
	images map[string]string // files by path of the URL
	rate   int64             // of the first image, in bytes per second

	mu     sync.Mutex
	events []string
}

// ServeHTTP implements [http.Handler].
func (d *deliveries) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodGet && !strings.HasPrefix(req.RemoteAddr, address+":") {
		d.add(req.URL.Path + " begun")
		if strings.Contains(req.URL.Path, "first") {
			w = &paced{ResponseWriter: w, request: req, began: time.Now(), rate: d.rate}
			defer d.add(req.URL.Path + " ended")
		}
	}
	http.ServeFile(w, req, d.images[req.URL.Path])
}

func (d *deliveries) add(event string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, event)
}

func (d *deliveries) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
}

// abortedDeploy deploys an image in the boot of the ramdisk that began after mark, aborts the deployment at half of the
// image, and deploys another one, which must boot. When the node is deployed again, the former image is still being
// written.
//
// For the second deployment, Ironic 39.0 waits for a heartbeat of the same ramdisk. It records this wait as an error,
// and therefore restarts the ramdisk then.
func abortedDeploy(t *testing.T, ctx context.Context, n *Node, mark int, first, second string) {
	t.Helper()
	info, err := os.Stat(first)
	step(t, "size", err)
	images := &deliveries{
		images: map[string]string{"/first.raw": first, "/second.raw": second}, rate: 4 << 20,
	}
	n.ironic.serveHTTP(t, slowAddress, &http.Server{Handler: images})
	image := publish(t, n.ironic, first, "first.raw") // for its checksum
	image.URL, image.Format = "http://"+slowAddress+"/first.raw", "raw"
	step(t, "instance_info", n.Set(ctx, "/instance_info", map[string]any{
		"image_source": image.URL, "image_disk_format": image.Format, "image_type": "whole-disk",
		"image_os_hash_algo": "sha256", "image_os_hash_value": image.SHA256,
	}))
	step(t, "deploy", n.Ask(ctx, "active", nil))
	disk := n.machine.Disks[0].File
	half := func() bool { return allocated(t, []string{disk}) >= info.Size()/2 }
	last := n.poll(t, ctx, func(s State) bool { return half() || strings.HasSuffix(s.Provision, "failed") })
	if last.Provision != "wait call-back" || last.step() != "write_image" {
		t.Fatalf("at half of the image: got state %q and step %q, want write_image", last.Provision, last.step())
	}
	if got := n.boots(mark); got != 1 {
		t.Errorf("got %d boots of the ramdisk for inspection and deployment, want 1", got)
	}
	step(t, "abort", n.Ask(ctx, "abort", nil))
	n.poll(t, ctx, func(s State) bool { // Ironic sets the error after the state
		return s.Provision == "deploy failed" && strings.Contains(text(s.LastError), "was aborted")
	})
	if got := images.all(); slices.Contains(got, "/first.raw ended") {
		t.Fatalf("got %q, want the first image still on its way when the node is deployed again", got)
	}
	image = publish(t, n.ironic, second, "second.raw")
	image.URL, image.Format = "http://"+slowAddress+"/second.raw", "raw"
	deploy(t, ctx, n.Deploy, n, image)
	if got := images.all(); len(got) < 3 || got[0] != "/first.raw begun" || got[1] != "/first.raw ended" ||
		got[2] != "/second.raw begun" {
		t.Errorf("got downloads %q, want the end of the first image before the second one", got)
	}
	if got := n.boots(mark); got != 2 {
		t.Errorf("got %d boots of the ramdisk until the end of the second deployment, want 2", got)
	}
	if !strings.Contains(n.Since(mark), "cancelling the running command") {
		t.Error("the console does not show that the former command was cancelled")
	}
	if written := allocated(t, []string{disk}); written >= info.Size() {
		t.Errorf("got %d bytes on the disk, want less than the first image", written)
	}
}

// poll waits until the node's state fulfils a condition.
func (n *Node) poll(t *testing.T, ctx context.Context, reached func(State) bool) State {
	t.Helper()
	for {
		s, err := n.State(ctx)
		step(t, "state", err)
		if reached(s) {
			return s
		}
		if err := pause.For(ctx, 250*time.Millisecond); err != nil { // Ironic sends no notification of changes
			t.Fatal(n.explain(fmt.Errorf("%s is %q: %w", n.Name, s.Provision, err)))
		}
	}
}

// customDeploy deploys by a step of the ramdisk in place of an image, as the field customDeploy of Metal3's hosts does.
func customDeploy(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	step(t, "no image", n.Set(ctx, "/instance_info", map[string]any{}))
	step(t, "deploy_interface", n.Set(ctx, "/deploy_interface", "custom-agent"))
	step(t, "custom deploy", n.provision(ctx, slowly, "active", "active", map[string]any{
		"deploy_steps": []map[string]any{
			{"interface": "deploy", "step": customStep, "args": map[string]any{}, "priority": 80},
		},
	}))
}
