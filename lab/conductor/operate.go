package conductor

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Step is a clean, deploy or service step as listed by the agent.
type Step map[string]any

func (s Step) name() string { return fmt.Sprint(s["interface"], ".", s["step"]) }

func (s Step) priority() float64 {
	p, _ := s["priority"].(float64) // checked by checkSteps
	return p
}

// ranks orders steps of equal priority by their interface, as Ironic does. The highest rank is the first.
var ranks = map[string]int{
	"vendor": 7, "power": 6, "management": 5, "firmware": 4, "deploy": 3, "bios": 2, "raid": 1,
}

func (s Step) rank() int { return ranks[fmt.Sprint(s["interface"])] }

// kind is one of the three kinds of steps.
type kind struct{ name string }

var (
	cleaning   = kind{"clean"}
	deployment = kind{"deploy"}
)

// steps requests the agent's steps. It returns the steps of all managers, ordered by the managers' names, and the
// managers' versions.
func (n *Node) steps(ctx context.Context, k kind) ([]Step, map[string]any, error) {
	command := fmt.Sprintf("%s.get_%s_steps", k.name, k.name)
	r, err := n.Command(ctx, command, map[string]any{"node": n.document(), "ports": n.ports()}, true)
	if err != nil {
		return nil, nil, err
	}
	if r.Status != Succeeded {
		return nil, nil, fmt.Errorf("%s: got status %s, want %s (%w)", command, r.Status, Succeeded, r.err())
	}
	var result map[string]json.RawMessage
	if err := json.Unmarshal(r.Result, &result); err != nil {
		return nil, nil, fmt.Errorf("%s: result: %w", command, err)
	}
	for key := range result {
		if key != k.name+"_steps" && key != "hardware_manager_version" {
			return nil, nil, fmt.Errorf("%s: result: key %q is unknown", command, key)
		}
	}
	var managers map[string][]Step
	var versions map[string]any
	err = errors.Join(json.Unmarshal(result[k.name+"_steps"], &managers),
		json.Unmarshal(result["hardware_manager_version"], &versions))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: result: %w", command, err)
	}
	var all []Step
	for _, name := range slices.Sorted(maps.Keys(managers)) {
		all = append(all, managers[name]...)
	}
	return all, versions, checkSteps(command, all)
}

func checkSteps(command string, steps []Step) error {
	for _, s := range steps {
		for _, key := range []string{"interface", "step"} {
			if text, ok := s[key].(string); !ok || text == "" {
				return fmt.Errorf("%s: step %v has no %q", command, s, key)
			}
		}
		if _, ok := s["priority"].(float64); !ok {
			return fmt.Errorf("%s: step %s has no priority", command, s.name())
		}
	}
	return nil
}

// automated contains the priorities that Ironic's configuration gives to clean steps of the agent.
var automated = map[string]float64{"deploy.erase_devices": 0, "deploy.erase_devices_metadata": 10}

// Clean runs automated cleaning: all clean steps with a priority above 0, highest first. With named steps, for
// example "deploy.erase_devices", it runs manual cleaning: exactly these steps in this order.
func (n *Node) Clean(ctx context.Context, named ...string) error {
	if err := n.clean(ctx, named); err != nil {
		return fmt.Errorf("clean node %s: %w", n.spec.UUID, err)
	}
	return nil
}

func (n *Node) clean(ctx context.Context, named []string) error {
	n.SetState(CleanWait)
	n.event(EventCleanStarted, "")
	if err := n.WaitAgent(ctx); err != nil {
		return err
	}
	offered, versions, err := n.steps(ctx, cleaning)
	if err != nil {
		return err
	}
	chosen, err := choose(offered, named)
	if err != nil {
		return err
	}
	for _, s := range chosen {
		if _, err := n.execute(ctx, cleaning, s, versions); err != nil {
			return err
		}
	}
	if err := n.CollectLogs(ctx); err != nil {
		return err
	}
	n.SetState(Available)
	n.event(EventCleanFinished, "%d steps", len(chosen))
	return nil
}

func choose(offered []Step, named []string) ([]Step, error) {
	var chosen []Step
	for _, name := range named {
		at := slices.IndexFunc(offered, func(s Step) bool { return s.name() == name })
		if at < 0 {
			return nil, fmt.Errorf("the agent does not offer step %s", name)
		}
		chosen = append(chosen, offered[at])
	}
	if len(named) > 0 {
		return chosen, nil
	}
	for _, s := range offered {
		if p, set := automated[s.name()]; set {
			s["priority"] = p
		}
		if s.priority() > 0 {
			chosen = append(chosen, s)
		}
	}
	slices.SortStableFunc(chosen, func(a, b Step) int {
		return cmp.Or(cmp.Compare(b.priority(), a.priority()), cmp.Compare(b.rank(), a.rank()))
	})
	if len(chosen) == 0 {
		return nil, errors.New("the agent offers no step for automated cleaning")
	}
	return chosen, nil
}

// execute runs a step, and checks its status at each heartbeat until it has ended. It returns the step's own result.
func (n *Node) execute(ctx context.Context, k kind, s Step, versions map[string]any) (json.RawMessage, error) {
	command := fmt.Sprintf("%s.execute_%s_step", k.name, k.name)
	s["requires_ramdisk"] = true
	n.mu.Lock()
	beats := n.heartbeats
	n.mu.Unlock()
	r, err := n.Command(ctx, command, map[string]any{
		"step": s, "node": n.document(), "ports": n.ports(), k.name + "_version": versions,
	}, false)
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", s.name(), err)
	}
	for id := r.ID; r.Status == Running; {
		if err := n.waitHeartbeats(ctx, beats); err != nil {
			return nil, fmt.Errorf("step %s: %w", s.name(), err)
		}
		n.mu.Lock()
		beats = n.heartbeats
		n.mu.Unlock()
		if r, err = n.current(ctx); err != nil {
			return nil, fmt.Errorf("step %s: %w", s.name(), err)
		}
		if r.ID != id {
			return nil, fmt.Errorf("step %s: the last command is %s (%s), want %s (%s)",
				s.name(), r.Name, r.ID, command, id)
		}
	}
	if err := r.err(); err != nil {
		return nil, fmt.Errorf("step %s: %w", s.name(), err)
	}
	return stepResult(k, s, r)
}

// current returns the agent's last command.
func (n *Node) current(ctx context.Context) (*Record, error) {
	list, err := n.Commands(ctx)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("the agent's list of commands is empty: it was restarted")
	}
	return &list[len(list)-1], nil
}

// stepResult checks that the result echoes the step, as Ironic requires, and returns the step's own result.
func stepResult(k kind, s Step, r *Record) (json.RawMessage, error) {
	var result map[string]json.RawMessage
	if err := json.Unmarshal(r.Result, &result); err != nil {
		return nil, fmt.Errorf("step %s: result: %w", s.name(), err)
	}
	for key := range result {
		if key != k.name+"_result" && key != k.name+"_step" {
			return nil, fmt.Errorf("step %s: result: key %q is unknown", s.name(), key)
		}
	}
	var echo Step
	if err := json.Unmarshal(result[k.name+"_step"], &echo); err != nil {
		return nil, fmt.Errorf("step %s: result: %s_step: %w", s.name(), k.name, err)
	}
	if want := normal(s); !reflect.DeepEqual(echo, want) {
		return nil, fmt.Errorf("step %s: the result echoes another step: got %v, want %v",
			s.name(), mapKeys(echo), mapKeys(want))
	}
	value, there := result[k.name+"_result"]
	if !there {
		return nil, fmt.Errorf("step %s: result: key %q is missing", s.name(), k.name+"_result")
	}
	return value, nil
}

// mapKeys describes a step without its arguments, which can contain secrets.
func mapKeys(s Step) string {
	return fmt.Sprintf("%s with %d keys", s.name(), len(s))
}

// normal returns the step after encoding to JSON and decoding.
func normal(s Step) Step {
	text, err := json.Marshal(s)
	if err != nil {
		return nil
	}
	var out Step
	if err := json.Unmarshal(text, &out); err != nil {
		return nil
	}
	return out
}

// Image describes an image to deploy.
type Image struct {
	URL      string
	Format   string // "raw" or "qcow2"
	Checksum string // digest in hex, or the URL of a checksum file
	Algo     string // algorithm of Checksum, "" means sha256
	Info     map[string]any
}

// info returns the image_info of the protocol.
func (i Image) info(node string) map[string]any {
	algo := i.Algo
	if algo == "" {
		algo = "sha256"
	}
	info := map[string]any{
		"id": i.URL[strings.LastIndex(i.URL, "/")+1:], "urls": []string{i.URL}, "disk_format": i.Format,
		"container_format":  nil,
		"stream_raw_images": true, "os_hash_algo": algo, "os_hash_value": i.Checksum, "node_uuid": node,
	}
	for key, value := range i.Info {
		info[key] = value
	}
	return info
}

// Deploy writes a whole-disk image and, if configDrive is not empty, a config drive (see ConfigDrive), makes the disk
// bootable, and requests power-off from the agent. The caller then starts the machine from its disk.
func (n *Node) Deploy(ctx context.Context, image Image, configDrive string) error {
	if err := n.deploy(ctx, image, configDrive); err != nil {
		return fmt.Errorf("deploy node %s: %w", n.spec.UUID, err)
	}
	return nil
}

func (n *Node) deploy(ctx context.Context, image Image, configDrive string) error {
	n.SetState(DeployWait)
	n.event(EventDeployStarted, "%s", image.URL)
	if err := n.WaitAgent(ctx); err != nil {
		return err
	}
	if err := n.WriteImage(ctx, image, configDrive); err != nil {
		return err
	}
	if err := n.installBootloader(ctx); err != nil {
		return err
	}
	return n.finishDeployment(ctx)
}

// finishDeployment collects the logs of a machine with an image, and powers it off.
func (n *Node) finishDeployment(ctx context.Context) error {
	if err := n.CollectLogs(ctx); err != nil {
		return err
	}
	if err := n.PowerOff(ctx); err != nil {
		return err
	}
	n.SetState(Active)
	n.event(EventDeployed, "")
	return nil
}

// WriteImage runs the deploy step write_image, the first half of a deployment.
func (n *Node) WriteImage(ctx context.Context, image Image, configDrive string) error {
	offered, versions, err := n.steps(ctx, deployment)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(offered, func(s Step) bool { return s.name() == "deploy.write_image" }) {
		return errors.New("the agent does not offer step deploy.write_image")
	}
	if _, err := n.Commands(ctx); err != nil {
		return err
	}
	info := image.info(n.spec.UUID)
	args := map[string]any{"image_info": info}
	if configDrive != "" {
		info["configdrive"], args["configdrive"] = configDrive, configDrive
	}
	step := Step{"interface": "deploy", "step": "write_image", "args": args}
	raw, err := n.execute(ctx, deployment, step, versions)
	if err != nil {
		return err
	}
	var result struct {
		Result string `json:"result"`
	}
	if err := json.Unmarshal(raw, &result); err != nil || !strings.Contains(result.Result, "written to device /dev/") {
		return fmt.Errorf("step deploy.write_image: got result %.300s, want a text naming the device", raw)
	}
	n.event(EventImageWritten, "%s", result.Result)
	return nil
}

func (n *Node) installBootloader(ctx context.Context) error {
	r, err := n.Command(ctx, "standby.get_partition_uuids", nil, true)
	if err != nil {
		return err
	}
	var uuids map[string]any
	if err := errors.Join(r.err(), json.Unmarshal(r.Result, &uuids)); err != nil {
		return fmt.Errorf("standby.get_partition_uuids: %w", err)
	}
	root, ok := uuids["root uuid"].(string)
	if !ok {
		return fmt.Errorf("standby.get_partition_uuids: got %s, want a \"root uuid\"", r.Result)
	}
	params := map[string]any{
		"root_uuid": root, "efi_system_part_uuid": uuids["efi system partition uuid"],
		"prep_boot_part_uuid": uuids["PReP Boot partition uuid"], "target_boot_mode": n.spec.BootMode,
	}
	return n.bootloader(ctx, params)
}

// bootloader runs install_bootloader to its end.
func (n *Node) bootloader(ctx context.Context, params map[string]any) error {
	r, err := n.Command(ctx, "image.install_bootloader", params, false)
	if err != nil {
		return err
	}
	if r, err = n.poll(ctx, r); err != nil {
		return err
	}
	if err := r.err(); err != nil {
		return err
	}
	n.event(EventBootloader, "root uuid %s", params["root_uuid"])
	return nil
}

// poll requests the list of commands at intervals until the command has ended, as Ironic does for the boot loader.
func (n *Node) poll(ctx context.Context, r *Record) (*Record, error) {
	const attempts = 100
	name := r.Name
	for range attempts {
		var err error
		if r, err = n.current(ctx); err != nil {
			return nil, err
		}
		if r.Name != name {
			return nil, fmt.Errorf("the last command is %s, want %s", r.Name, name)
		}
		if r.Status != Running {
			return r, nil
		}
		select {
		case <-time.After(n.conductor.options.PollInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s: %w", name, context.Cause(ctx))
		}
	}
	return nil, fmt.Errorf("%s still runs after %d looks", name, attempts)
}

// CollectLogs requests the agent's log archive, validates it and stores it for Logs.
func (n *Node) CollectLogs(ctx context.Context) error {
	r, err := n.Command(ctx, "log.collect_system_logs", nil, true)
	if err != nil {
		return err
	}
	var result struct {
		Logs string `json:"system_logs"`
	}
	if err := errors.Join(r.err(), json.Unmarshal(r.Result, &result)); err != nil {
		return fmt.Errorf("log.collect_system_logs: %w", err)
	}
	archive, err := base64.StdEncoding.DecodeString(result.Logs)
	if err != nil {
		return fmt.Errorf("log.collect_system_logs: %w", err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return fmt.Errorf("log.collect_system_logs: %w", err)
	}
	if _, err := io.Copy(io.Discard, unpacked); err != nil {
		return fmt.Errorf("log.collect_system_logs: %w", err)
	}
	n.update(func() { n.logs = archive })
	return nil
}

// PowerOff requests power-off from the agent, which can send heartbeats until the machine is off. Ironic keeps the
// agent's token until then, and so does the node: the caller calls Rebooted before the machine boots another agent.
func (n *Node) PowerOff(ctx context.Context) error { return n.leave(ctx, "standby.power_off") }

// Reboot requests a restart into the deployed system from the agent. Its token is kept as by PowerOff.
func (n *Node) Reboot(ctx context.Context) error { return n.leave(ctx, "standby.run_image") }

func (n *Node) leave(ctx context.Context, command string) error {
	r, err := n.Command(ctx, command, nil, false)
	if err != nil {
		return err
	}
	if err := r.err(); err != nil {
		return err
	}
	n.event(EventPowerOff, "%s", command)
	return nil
}
