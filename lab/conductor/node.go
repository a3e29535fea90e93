package conductor

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// NodeSpec describes a node as an operator enrols it.
type NodeSpec struct {
	UUID       string // "" generates one
	Name       string
	MACs       []string
	BootMode   string         // "uefi" (also "") or "bios"
	Properties map[string]any // for example root_device hints
	Token      string         // pre-generated agent token, as for virtual media; "" lets the first lookup generate one
}

// The provision states of a node, as Ironic names them.
const (
	Enroll      = "enroll"
	Manageable  = "manageable"
	InspectWait = "inspect wait"
	CleanWait   = "clean wait"
	Available   = "available"
	DeployWait  = "deploy wait"
	Active      = "active"
)

// The names of events.
const (
	EventInspection     = "inspection data received"
	EventLookup         = "lookup"
	EventFirstHeartbeat = "first heartbeat"
	EventHeartbeat      = "heartbeat"
	EventCommand        = "command"
	EventCleanStarted   = "cleaning started"
	EventCleanFinished  = "cleaning finished"
	EventDeployStarted  = "deployment started"
	EventImageWritten   = "image written"
	EventBootloader     = "boot loader installed"
	EventDeployed       = "deployed"
	EventPowerOff       = "power off asked"
)

// Event is an event of a node.
type Event struct {
	Time time.Time
	Name string
	Text string // details, may be empty
}

// Node is a node of the conductor. Its methods may be called concurrently, but only one operation (Clean, Deploy and
// so on) may run at a time.
type Node struct {
	conductor *Conductor
	spec      NodeSpec

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced at each change
	state        string
	instanceInfo map[string]any
	token        string
	tokenGiven   bool
	callback     string
	ca           string
	agentVersion string
	heartbeats   int
	events       []Event
	progress     []string // status messages of heartbeats, without repetitions
	inventory    json.RawMessage
	inspectError string
	logs         []byte
}

func newNode(c *Conductor, spec NodeSpec) *Node {
	if spec.UUID == "" {
		spec.UUID = NewUUID()
	}
	if spec.BootMode == "" {
		spec.BootMode = "uefi"
	}
	return &Node{
		conductor: c, spec: spec, state: Enroll, changed: make(chan struct{}), instanceInfo: map[string]any{},
		token: spec.Token,
	}
}

// NewUUID returns a random UUID (RFC 4122, version 4).
func NewUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// NewToken returns a random token in Ironic's form: 32 bytes as 43 characters of URL-safe base64.
func NewToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// UUID returns the node's UUID.
func (n *Node) UUID() string { return n.spec.UUID }

// State returns the provision state.
func (n *Node) State() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

// SetState sets the provision state, for example InspectWait before a machine starts for inspection.
func (n *Node) SetState(state string) {
	n.update(func() { n.state = state })
}

// Token returns the node's current agent token. Tests search output for it.
func (n *Node) Token() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.token
}

// Callback returns the agent's URL and the certificate to verify it with. Both are empty before the first heartbeat.
func (n *Node) Callback() (url, certificatePEM string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.callback, n.ca
}

// Inventory returns the complete inspection data, or nil if none was received.
func (n *Node) Inventory() json.RawMessage {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inventory
}

// Logs returns the agent's last log archive, a tar.gz.
func (n *Node) Logs() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.logs
}

// Progress returns the status messages of heartbeats, without repetitions, the latest last. Ironic stores the latest
// one in driver_internal_info.
func (n *Node) Progress() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.progress)
}

// WaitProgress waits until the status messages since one of Progress contain a message for which match returns true.
// It returns them, starting with that at index from.
func (n *Node) WaitProgress(ctx context.Context, from int, what string, match func(string) bool) ([]string, error) {
	err := n.wait(ctx, "progress "+what, func() bool {
		return len(n.progress) > from && slices.ContainsFunc(n.progress[from:], match)
	})
	if err != nil {
		return nil, fmt.Errorf("%w; got %q", err, n.Progress())
	}
	return n.Progress()[from:], nil
}

// Events returns the node's events so far.
func (n *Node) Events() []Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.events)
}

// Rebooted discards the state of the running agent, as Ironic does when it restarts or switches off the machine: its
// address, its certificate, and its token unless it was pre-generated.
func (n *Node) Rebooted() {
	n.update(func() {
		n.callback, n.ca, n.agentVersion, n.heartbeats, n.tokenGiven = "", "", "", 0, false
		n.token = n.spec.Token
	})
}

// update changes the node and wakes all waiting goroutines.
func (n *Node) update(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Node) event(name, format string, args ...any) {
	e := Event{Time: time.Now(), Name: name, Text: fmt.Sprintf(format, args...)}
	n.update(func() { n.events = append(n.events, e) })
	n.conductor.options.Log.Info(name, "node", n.spec.UUID, "details", e.Text)
	if n.conductor.options.Events != nil {
		n.conductor.options.Events.Event(n, e)
	}
}

// wait waits until condition returns true. condition is called with the node locked.
func (n *Node) wait(ctx context.Context, what string, condition func() bool) error {
	for {
		n.mu.Lock()
		met, changed := condition(), n.changed
		n.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("node %s: waiting for %s: %w", n.spec.UUID, what, context.Cause(ctx))
		}
	}
}

// WaitHeartbeat waits for the next heartbeat.
func (n *Node) WaitHeartbeat(ctx context.Context) error {
	n.mu.Lock()
	seen := n.heartbeats
	n.mu.Unlock()
	return n.waitHeartbeats(ctx, seen)
}

func (n *Node) waitHeartbeats(ctx context.Context, seen int) error {
	return n.wait(ctx, "a heartbeat", func() bool { return n.heartbeats > seen })
}

// WaitAgent waits for the first heartbeat since the last reboot. It returns at once if there was one.
func (n *Node) WaitAgent(ctx context.Context) error { return n.waitHeartbeats(ctx, 0) }

// WaitInspection waits for inspection data. It fails if the ramdisk reported an error with the data.
func (n *Node) WaitInspection(ctx context.Context) error {
	err := n.wait(ctx, "inspection data", func() bool { return n.inventory != nil || n.inspectError != "" })
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inspectError != "" {
		return fmt.Errorf("node %s: inspection failed: %s", n.spec.UUID, n.inspectError)
	}
	return nil
}

// WaitEvent waits until a named event has occurred since the node was added.
func (n *Node) WaitEvent(ctx context.Context, name string) error {
	return n.wait(ctx, name, func() bool {
		return slices.ContainsFunc(n.events, func(e Event) bool { return e.Name == name })
	})
}

// document returns the node as sent with commands.
func (n *Node) document() map[string]any {
	n.mu.Lock()
	defer n.mu.Unlock()
	capabilities := "boot_mode:" + n.spec.BootMode
	properties := map[string]any{"cpu_arch": "x86_64", "capabilities": capabilities}
	maps.Copy(properties, n.spec.Properties)
	doc := map[string]any{
		"id": 1, "uuid": n.spec.UUID, "name": n.spec.Name, "driver": "redfish", "provision_state": n.state,
		"properties": properties, "instance_info": maps.Clone(n.instanceInfo),
		"driver_info": map[string]any{"redfish_address": "http://127.0.0.1", "redfish_password": "******"},
		"driver_internal_info": map[string]any{
			"agent_url": n.callback, "agent_version": n.agentVersion, "agent_secret_token": "******",
		},
		"clean_step": map[string]any{}, "deploy_step": map[string]any{}, "raid_config": map[string]any{},
		"target_raid_config": map[string]any{}, "extra": map[string]any{}, "network_data": map[string]any{},
	}
	if len(n.progress) > 0 {
		doc["driver_internal_info"].(map[string]any)["agent_status_message"] = n.progress[len(n.progress)-1]
	}
	for _, key := range []string{
		"instance_uuid", "chassis_id", "power_state", "target_power_state", "target_provision_state",
		"provision_updated_at", "last_error", "maintenance_reason", "fault", "console_enabled", "resource_class",
		"conductor_group", "owner", "lessee", "description", "retired_reason", "allocation_id", "boot_mode",
		"secure_boot", "created_at", "updated_at",
	} {
		doc[key] = nil
	}
	for _, iface := range []string{
		"bios", "boot", "console", "deploy", "inspect", "management", "network", "power", "raid", "rescue", "storage",
		"vendor",
	} {
		doc[iface+"_interface"] = nil
	}
	return doc
}

func (n *Node) ports() []map[string]any {
	var ports []map[string]any
	for i, mac := range n.spec.MACs {
		ports = append(ports, map[string]any{
			"id": i + 1, "uuid": NewUUID(), "node_id": 1, "node_uuid": n.spec.UUID, "address": mac,
			"extra": map[string]any{}, "local_link_connection": map[string]any{}, "portgroup_id": nil,
			"pxe_enabled": true, "internal_info": map[string]any{}, "physical_network": nil, "is_smartnic": false,
			"name": nil, "description": nil,
		})
	}
	return ports
}
