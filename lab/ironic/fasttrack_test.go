//go:build linux && long

package ironic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/pause"
	"ironroot/internal/test/testenv"
	"ironroot/lab/bmc"
	"ironroot/lab/netns"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
)

// fastTrackTimeout is the time after a heartbeat in which Ironic takes the ramdisk for running.
const fastTrackTimeout = 150 * time.Second

// TestRealIronicFastTrack inspects, cleans and deploys a machine in one boot of the ramdisk, and checks how each
// operation switches the machine: by the history of its BMC, which also contains what guests do themselves. After a
// deployment the agent powers the machine off; with deploy_forces_oob_reboot the BMC does so. With disable_power_off,
// the machine is only restarted by its BMC: from a deployment, for which the agent takes its network down before, to
// the next state available. At last the node gets the power interface agent, with which it is cleaned in the same boot.
//
// Ironic 29 and 39 cannot restart a machine by that interface: they delete the agent's URL before they use it.
//
// Parity: S6, T5
func TestRealIronicFastTrack(t *testing.T) {
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 60*time.Minute)
	system, err := osimage.Build(ctx, osimage.Options{Progress: t.Output()})
	step(t, "image", err)
	i := start(t, Options{
		KernelParams: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1",
		Config: "[DEFAULT]\nenabled_hardware_types = redfish,manual-management\n" +
			"enabled_power_interfaces = redfish,agent\nenabled_management_interfaces = redfish,noop\n" +
			fmt.Sprintf("[deploy]\nfast_track = true\nfast_track_timeout = %d\n", int(fastTrackTimeout.Seconds())) +
			"[api]\nramdisk_heartbeat_timeout = 60\n",
	})
	lockdown := lockdownCheck{ns: i.ns, result: make(chan error, 1)}
	n, err := i.Enroll(ctx, NodeOptions{
		Kernel: kernel, Ramdisk: ramdisk, Memory: memory, Resets: &lockdown,
		Disks: []qemu.Disk{{Size: 5 << 30, Serial: "DISK0"}},
	})
	step(t, "enroll", err)
	image := publish(t, i, system.Raw, "os.raw")
	image.Format = "raw"
	power := powerHistory{system: n.system}

	step(t, "manage", n.Manage(ctx))
	step(t, "inspect", n.Inspect(ctx))
	inspected := time.Now()
	provideCleaned(t, ctx, n)
	power.check(t, "inspection and cleaning", "On")
	deploy(t, ctx, n.Deploy, n, image)
	power.check(t, "deployment in the boot of the inspection", bmc.GuestOff, "On")

	step(t, "deploy_forces_oob_reboot", n.Set(ctx, "/driver_info/deploy_forces_oob_reboot", true))
	step(t, "undeploy", n.Undeploy(ctx))
	power.check(t, "tear-down", "ForceOff", "On")
	step(t, "deploy", n.Deploy(ctx, image, nil))
	power.check(t, "deployment with deploy_forces_oob_reboot", "ForceOff", "On")

	step(t, "power off by the agent", n.Set(ctx, "/driver_info/deploy_forces_oob_reboot", false))
	step(t, "disable_power_off", n.Set(ctx, "/disable_power_off", true))
	// Ironic counts an inspection as a heartbeat, even if the machine was restarted since: it would not start the
	// ramdisk.
	step(t, "end of the inspection's time", pause.For(ctx, time.Until(inspected.Add(fastTrackTimeout))))
	step(t, "undeploy", n.Undeploy(ctx))
	power.check(t, "tear-down with disable_power_off", "ForceRestart", "ForceRestart")
	mark := n.Mark()
	lockdown.expect(t, ctx, n)
	deploy(t, ctx, n.Deploy, n, image)
	power.check(t, "deployment with disable_power_off", "ForceRestart")
	lockdown.check(t, ctx, n, mark)
	step(t, "undeploy", n.Undeploy(ctx))
	power.check(t, "second tear-down with disable_power_off", "ForceRestart", "ForceRestart")

	step(t, "manage", n.Manage(ctx))
	step(t, "agent's power interface", n.manageByHand(ctx))
	provideCleaned(t, ctx, n)
	power.check(t, "cleaning with the agent's power interface")

	log, err := os.ReadFile(i.path("log/ironic.log"))
	step(t, "log of Ironic", err)
	if refused := regexp.MustCompile(`.*Refusing to power off node.*`).Find(log); refused != nil {
		t.Errorf("Ironic wanted to switch off a machine that must stay on: %s", refused)
	}
}

// provideCleaned makes a manageable node available, and checks that the ramdisk has executed a clean step meanwhile.
func provideCleaned(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	mark := n.Mark()
	step(t, "provide", n.Provide(ctx))
	cleaned := regexp.MustCompile(`command ended command=clean\.execute_clean_step status=SUCCEEDED`)
	if _, err := n.Follow(testenv.Context(t, time.Minute), mark, cleaned); err != nil {
		t.Errorf("the node is available without a clean step: %v", err)
	}
}

// powerHistory is the part of a system's history that was checked.
type powerHistory struct {
	system  *bmc.System
	checked int
}

// check compares what has switched the machine since the last check.
func (h *powerHistory) check(t *testing.T, what string, want ...string) {
	t.Helper()
	history := h.system.History()
	if got := history[h.checked:]; !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
	h.checked = len(history)
}

// manageByHand gives a manageable node a hardware type without a BMC, and the power interface agent.
func (n *Node) manageByHand(ctx context.Context) error {
	var patch []map[string]any
	for _, field := range [][2]any{
		{"driver", "manual-management"},
		{"power_interface", "agent"},
		{"management_interface", "noop"},
		{"boot_interface", IPXE},
		{"disable_power_off", false},
	} {
		patch = append(patch, map[string]any{"op": "add", "path": fmt.Sprint("/", field[0]), "value": field[1]})
	}
	return n.ironic.call(ctx, http.MethodPatch, "/v1/nodes/"+n.UUID, patch, nil)
}

// lockdownCheck connects to the agent when its BMC is asked to restart the machine.
type lockdownCheck struct {
	ns     *netns.Namespace
	result chan error // of one connection

	mu     sync.Mutex
	target string // address of the agent, "" if no lockdown is expected
}

// expect checks that the agent accepts connections, and makes the next reset check that it no longer does.
func (c *lockdownCheck) expect(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	var node struct {
		Internal struct {
			URL string `json:"agent_url"`
		} `json:"driver_internal_info"`
	}
	step(t, "agent_url", n.ironic.call(ctx, http.MethodGet, "/v1/nodes/"+n.UUID, nil, &node))
	agent, err := url.Parse(node.Internal.URL)
	step(t, "agent_url", err)
	step(t, "connect before the lockdown", c.connect(ctx, agent.Host))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = agent.Host
}

func (c *lockdownCheck) connect(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	connection, err := c.ns.DialContext(ctx, "tcp", target)
	if err != nil {
		return err
	}
	return connection.Close()
}

// BeforeReset connects to the agent if a lockdown is expected.
func (c *lockdownCheck) BeforeReset(string) {
	c.mu.Lock()
	target := c.target
	c.target = ""
	c.mu.Unlock()
	if target != "" {
		c.result <- c.connect(context.Background(), target)
	}
}

// check checks that the machine did not answer before the reset. One whose links are up would answer a connection to a
// closed port with a reset.
func (c *lockdownCheck) check(t *testing.T, ctx context.Context, n *Node, mark int) {
	t.Helper()
	select {
	case err := <-c.result:
		t.Logf("connection to the agent before the reset: %v", err)
		if !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(err) {
			t.Errorf("got %v from the machine after the lockdown, want no answer", err)
		}
	default:
		t.Error("the BMC was not asked to restart the machine")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := n.Follow(ctx, mark, regexp.MustCompile(`lockdown complete`)); err != nil {
		t.Error(err)
	}
}
