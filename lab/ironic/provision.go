//go:build linux

package ironic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// State is a node's state as reported by Ironic.
type State struct {
	Provision string          `json:"provision_state"`
	Target    *string         `json:"target_provision_state"`
	Power     *string         `json:"power_state"`
	LastError *string         `json:"last_error"`
	Deploy    json.RawMessage `json:"deploy_step"`
	Clean     json.RawMessage `json:"clean_step"`
}

// State returns the node's state.
func (n *Node) State(ctx context.Context) (State, error) {
	var s State
	return s, n.ironic.call(ctx, http.MethodGet, "/v1/nodes/"+n.UUID, nil, &s)
}

// step returns the name of the running step.
func (s State) step() string {
	for _, raw := range []json.RawMessage{s.Deploy, s.Clean} {
		var step struct{ Step string }
		if json.Unmarshal(raw, &step) == nil && step.Step != "" {
			return step.Step
		}
	}
	return ""
}

// WaitState waits until the node has reached a provision state and no longer changes. It fails if the state ends in
// "failed", or if an error stops the node in another state; the error contains Ironic's message and the end of the
// machine's console.
func (n *Node) WaitState(ctx context.Context, want string) error {
	begin, last := time.Now(), ""
	for {
		s, err := n.State(ctx)
		if err != nil {
			return err
		}
		now := fmt.Sprintf("%s %s %s", s.Provision, text(s.Power), s.step())
		if now != last {
			n.ironic.log.Info("node", "node", n.Name, "state", s.Provision, "target", text(s.Target),
				"power", text(s.Power), "step", s.step(), "after", time.Since(begin).Round(time.Second))
			last = now
		}
		waiting := strings.HasSuffix(want, " wait") || want == "wait call-back" // their target differs
		resting := s.Target == nil || *s.Target == want || waiting
		if s.Provision == want && resting {
			return nil
		}
		failed := strings.HasSuffix(s.Provision, "failed") || s.Provision == "error"
		if failed || s.Target == nil && text(s.LastError) != "" {
			return n.explain(fmt.Errorf("%s is %q, want %q: %s", n.Name, s.Provision, want, text(s.LastError)))
		}
		select {
		case <-time.After(500 * time.Millisecond): // Ironic sends no notification of changes
		case <-ctx.Done():
			return n.explain(fmt.Errorf("%s is %q, want %q (last error: %q): %w",
				n.Name, s.Provision, want, text(s.LastError), ctx.Err()))
		}
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// explain adds the ends of the machine's console and of Ironic's log to the error.
func (n *Node) explain(err error) error {
	return fmt.Errorf("%w\n--- console of %s:\n%s\n--- log of Ironic:\n%s",
		err, n.Name, n.Console(40), n.ironic.Logs(40))
}

// provision requests a change of the provision state and waits until it is complete.
func (n *Node) provision(ctx context.Context, limit time.Duration, target, want string, extra map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	if err := n.Ask(ctx, target, extra); err != nil {
		return err
	}
	if err := n.WaitState(ctx, want); err != nil {
		return fmt.Errorf("provision %s: %w", target, err)
	}
	n.ironic.log.Info("done", "node", n.Name, "verb", target, "state", want,
		"duration", time.Since(begin).Round(time.Second))
	return nil
}

// Ask requests a change of the provision state ("manage", "inspect" and so on) and does not wait for it. extra
// contains arguments of the verb, for example configdrive.
func (n *Node) Ask(ctx context.Context, target string, extra map[string]any) error {
	body := map[string]any{"target": target}
	for key, value := range extra {
		body[key] = value
	}
	return n.ironic.call(ctx, http.MethodPut, "/v1/nodes/"+n.UUID+"/states/provision", body, nil)
}

// Manage makes the node manageable.
func (n *Node) Manage(ctx context.Context) error {
	return n.provision(ctx, quickly, "manage", "manageable", nil)
}

// Inspect inspects a manageable node with the ramdisk.
func (n *Node) Inspect(ctx context.Context) error {
	return n.provision(ctx, slowly, "inspect", "manageable", nil)
}

// Step is a step of manual cleaning.
type Step struct {
	Interface string         `json:"interface"` // "deploy", "raid" and so on
	Step      string         `json:"step"`
	Args      map[string]any `json:"args,omitempty"`
}

// Clean runs the named steps on a manageable node.
func (n *Node) Clean(ctx context.Context, steps ...Step) error {
	return n.provision(ctx, slowly, "clean", "manageable", map[string]any{"clean_steps": steps})
}

// CleanByRunbook runs the steps of a runbook on a manageable node that has the runbook's name as a trait.
func (n *Node) CleanByRunbook(ctx context.Context, runbook string) error {
	return n.provision(ctx, slowly, "clean", "manageable", map[string]any{"runbook": runbook})
}

// Service runs the named steps on an active node.
func (n *Node) Service(ctx context.Context, steps ...Step) error {
	return n.provision(ctx, slowly, "service", "active", map[string]any{"service_steps": steps})
}

// Rescue boots the rescue ramdisk on an active node. The user rescue can log in with the password.
func (n *Node) Rescue(ctx context.Context, password string) error {
	return n.provision(ctx, slowly, "rescue", "rescue", map[string]any{"rescue_password": password})
}

// Unrescue ends a rescue and starts the instance.
func (n *Node) Unrescue(ctx context.Context) error {
	return n.provision(ctx, slowly, "unrescue", "active", nil)
}

// Provide cleans a manageable node and makes it available.
func (n *Node) Provide(ctx context.Context) error {
	return n.provision(ctx, slowly, "provide", "available", nil)
}

// Undeploy tears down a deployment and cleans the node.
func (n *Node) Undeploy(ctx context.Context) error {
	return n.provision(ctx, slowly, "deleted", "available", nil)
}

// Image describes an image to deploy.
type Image struct {
	URL    string
	Format string // "raw" or "qcow2"
	SHA256 string // in hex
	// RootGB is the size of the root file system of a partition image in GiB; 0 means a whole-disk image.
	RootGB int
}

// Deploy deploys an image to an available node. configDrive is an object in Ironic's form (meta_data, user_data and
// so on); nil means none.
func (n *Node) Deploy(ctx context.Context, image Image, configDrive map[string]any) error {
	return n.deploy(ctx, "active", image, configDrive)
}

// Rebuild deploys another image to an active node.
func (n *Node) Rebuild(ctx context.Context, image Image, configDrive map[string]any) error {
	return n.deploy(ctx, "rebuild", image, configDrive)
}

func (n *Node) deploy(ctx context.Context, verb string, image Image, configDrive map[string]any) error {
	info := map[string]any{
		"image_source": image.URL, "image_disk_format": image.Format, "image_type": "whole-disk",
		"image_os_hash_algo": "sha256", "image_os_hash_value": image.SHA256,
	}
	if image.RootGB > 0 {
		info["image_type"], info["root_gb"] = "partition", image.RootGB
	}
	if err := n.Set(ctx, "/instance_info", info); err != nil {
		return err
	}
	extra := map[string]any{}
	if configDrive != nil {
		extra["configdrive"] = configDrive
	}
	return n.provision(ctx, slowly, verb, "active", extra)
}

// Set sets a field of the node, for example "/instance_info".
func (n *Node) Set(ctx context.Context, path string, value any) error {
	patch := []map[string]any{{"op": "add", "path": path, "value": value}}
	return n.ironic.call(ctx, http.MethodPatch, "/v1/nodes/"+n.UUID, patch, nil)
}

// UseBoot sets how Ironic boots the ramdisk. The node must not be in use.
func (n *Node) UseBoot(ctx context.Context, boot Boot) error {
	return n.Set(ctx, "/boot_interface", boot)
}

// Inventory returns the data stored by the last inspection.
func (n *Node) Inventory(ctx context.Context) (inventory, pluginData map[string]any, err error) {
	var stored struct {
		Inventory  map[string]any `json:"inventory"`
		PluginData map[string]any `json:"plugin_data"`
	}
	err = n.ironic.call(ctx, http.MethodGet, "/v1/nodes/"+n.UUID+"/inventory", nil, &stored)
	return stored.Inventory, stored.PluginData, err
}
