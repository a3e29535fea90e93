// Package node holds what Ironic's lookup said about the node this machine is. Its content is Ironic's own node
// object and is kept whole: parts this agent does not know must reach hardware managers and steps unchanged.
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
)

// Node is a node object of Ironic's API. It is immutable.
type Node struct {
	uuid string
	raw  map[string]any
}

// FromJSON reads a node object; it must have a uuid.
func FromJSON(data []byte) (*Node, error) {
	var raw map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("node object: %w", err)
	}
	uuid, _ := raw["uuid"].(string)
	if uuid == "" {
		return nil, errors.New("node object has no uuid")
	}
	return &Node{uuid: uuid, raw: raw}, nil
}

// FromStep reads the node object of a step command. Like ironic-python-agent it accepts any object: a uuid that is not
// a string is kept as its JSON text, and without one UUID returns "".
func FromStep(data []byte) (*Node, error) {
	var raw map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("node object: %w", err)
	}
	if raw == nil {
		return nil, errors.New("node object: got null, want an object")
	}
	uuid, isText := raw["uuid"].(string)
	if !isText && raw["uuid"] != nil {
		text, err := json.Marshal(raw["uuid"])
		if err != nil {
			return nil, fmt.Errorf("node object: uuid: %w", err)
		}
		uuid = string(text)
	}
	return &Node{uuid: uuid, raw: raw}, nil
}

// UUID returns the node's uuid. It may be "" only for a node of FromStep.
func (n *Node) UUID() string { return n.uuid }

// Name returns the node's name, "" where it has none or Ironic does not tell it.
func (n *Node) Name() string {
	name, _ := n.raw["name"].(string)
	return name
}

// InstanceInfo returns instance_info, an empty map without one. The maps below it are shared and must not be changed.
func (n *Node) InstanceInfo() map[string]any { return n.object("instance_info") }

// Properties returns properties, an empty map without one.
func (n *Node) Properties() map[string]any { return n.object("properties") }

// DriverInternalInfo returns driver_internal_info, an empty map without one.
func (n *Node) DriverInternalInfo() map[string]any { return n.object("driver_internal_info") }

// DriverInfo returns driver_info, an empty map without one. A lookup answer does not carry it; a step's node does.
func (n *Node) DriverInfo() map[string]any { return n.object("driver_info") }

// object returns a copy of one object of the node.
func (n *Node) object(key string) map[string]any {
	o, _ := n.raw[key].(map[string]any)
	if o == nil {
		return map[string]any{}
	}
	return maps.Clone(o)
}

// RootDeviceHints returns the hints for the root device: those of instance_info where they are set, else those of
// properties, else nil.
func (n *Node) RootDeviceHints() map[string]any {
	for _, place := range []map[string]any{n.InstanceInfo(), n.Properties()} {
		if hints, _ := place["root_device"].(map[string]any); len(hints) > 0 {
			return maps.Clone(hints)
		}
	}
	return nil
}

// SkipBlockDevices returns the hints of properties.skip_block_devices, each naming devices that are never touched. What
// is no list of objects is an error: a protection that is not understood must not silently be none.
func (n *Node) SkipBlockDevices() ([]map[string]any, error) {
	value := n.Properties()["skip_block_devices"]
	list, ok := value.([]any)
	if value != nil && !ok {
		return nil, errors.New("skip_block_devices is no list")
	}
	var out []map[string]any
	for i, item := range list {
		hints, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("entry %d of skip_block_devices is no object", i+1)
		}
		out = append(out, hints)
	}
	return out, nil
}

// LogicalDisks returns the entries of raid_config.logical_disks, the RAID arrays that Ironic created. Anything but a
// list of objects is an error: an entry that cannot be read must not be ignored.
func (n *Node) LogicalDisks() ([]map[string]any, error) {
	value := n.raw["raid_config"]
	raidConfig, ok := value.(map[string]any)
	if value != nil && !ok {
		return nil, errors.New("raid_config is no object")
	}
	list, ok := raidConfig["logical_disks"].([]any)
	if raidConfig["logical_disks"] != nil && !ok {
		return nil, errors.New("raid_config.logical_disks is no list")
	}
	var out []map[string]any
	for i, item := range list {
		disk, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("entry %d of raid_config.logical_disks is no object", i+1)
		}
		out = append(out, disk)
	}
	return out, nil
}

// Raw returns a copy of the whole node object's top level.
func (n *Node) Raw() map[string]any { return maps.Clone(n.raw) }

// MarshalJSON returns the node object as it was received.
func (n *Node) MarshalJSON() ([]byte, error) { return json.Marshal(n.raw) }

// UnmarshalJSON reads a node object like FromJSON.
func (n *Node) UnmarshalJSON(data []byte) error {
	parsed, err := FromJSON(data)
	if err != nil {
		return err
	}
	*n = *parsed
	return nil
}

// Cache holds the node the agent serves, and what the conductor said about looking at its BMC. The zero value is
// empty. It is safe for concurrent use.
type Cache struct {
	mu            sync.Mutex
	node          *Node
	skipBMCDetect bool
}

// Get returns the node, nil before a lookup succeeded.
func (c *Cache) Get() *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node
}

// Set puts a node in and reports whether it differs from the one before.
func (c *Cache) Set(n *Node) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.node
	c.node = n
	if old == nil || n == nil {
		return old != n
	}
	return !reflect.DeepEqual(old.raw, n.raw)
}

// SkipBMCDetect reports whether the conductor manages the BMC out of band, so that the inventory leaves it alone.
func (c *Cache) SkipBMCDetect() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skipBMCDetect
}

// SetSkipBMCDetect records what SkipBMCDetect reports.
func (c *Cache) SetSkipBMCDetect(skip bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skipBMCDetect = skip
}
