// Package node stores this machine's node object of Ironic. The object is kept complete: hardware managers and steps
// receive it unchanged, including keys that this agent does not know.
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

// FromJSON decodes a node object. It must have a uuid.
func FromJSON(data []byte) (*Node, error) {
	var raw map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("decode node object: %w", err)
	}
	uuid, _ := raw["uuid"].(string)
	if uuid == "" {
		return nil, errors.New("decode node object: uuid missing")
	}
	return &Node{uuid: uuid, raw: raw}, nil
}

// FromStep decodes the node object of a step command. Like ironic-python-agent it accepts any object: a uuid that is
// not a string is stored as JSON text, and without a uuid UUID returns "".
func FromStep(data []byte) (*Node, error) {
	var raw map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("decode node object: %w", err)
	}
	if raw == nil {
		return nil, errors.New("decode node object: got null, want an object")
	}
	uuid, isText := raw["uuid"].(string)
	if !isText && raw["uuid"] != nil {
		text, err := json.Marshal(raw["uuid"])
		if err != nil {
			return nil, fmt.Errorf("decode node object: uuid: %w", err)
		}
		uuid = string(text)
	}
	return &Node{uuid: uuid, raw: raw}, nil
}

// Refreshed returns the node with the fields of a newer lookup response. Lookup responses contain few fields: the
// others, such as raid_config, keep the values that a step command has set.
func (n *Node) Refreshed(response *Node) *Node {
	if n == nil || n.uuid != response.uuid {
		return response
	}
	raw := maps.Clone(n.raw)
	maps.Copy(raw, response.raw)
	return &Node{uuid: n.uuid, raw: raw}
}

// UUID returns the node's uuid. It is "" for a nil node, and can be "" for a node of FromStep.
func (n *Node) UUID() string {
	if n == nil {
		return ""
	}
	return n.uuid
}

// Name returns the node's name, "" if Ironic sent none.
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

// DriverInfo returns driver_info, an empty map without one. Lookup responses do not contain it; the nodes of steps do.
func (n *Node) DriverInfo() map[string]any { return n.object("driver_info") }

// object returns a copy of an object of the node.
func (n *Node) object(key string) map[string]any {
	o, _ := n.raw[key].(map[string]any)
	if o == nil {
		return map[string]any{}
	}
	return maps.Clone(o)
}

// RootDeviceHints returns the root device hints of instance_info, or of properties if instance_info has none, or nil.
// It returns an error if the hints are not an object, because ignoring them could select another disk. As in Python, an
// empty string or list, zero and false count as not set.
func (n *Node) RootDeviceHints() (map[string]any, error) {
	for _, place := range []map[string]any{n.InstanceInfo(), n.Properties()} {
		switch value := place["root_device"].(type) {
		case map[string]any:
			if len(value) > 0 {
				return maps.Clone(value), nil
			}
		case []any:
			if len(value) > 0 {
				return nil, fmt.Errorf("root_device is %v, not an object", value)
			}
		default:
			if value != nil && value != "" && value != false && value != 0.0 {
				return nil, fmt.Errorf("root_device is %v, not an object", value)
			}
		}
	}
	return nil, nil
}

// HasRootDeviceHints reports whether there are hints for the root device, valid or not.
func (n *Node) HasRootDeviceHints() bool {
	hints, err := n.RootDeviceHints()
	return err != nil || len(hints) > 0
}

// SkipBlockDevices returns the hints of properties.skip_block_devices, which select devices that must not be changed.
// Anything but a list of objects is an error: an invalid protection must not be ignored.
func (n *Node) SkipBlockDevices() ([]map[string]any, error) {
	value := n.Properties()["skip_block_devices"]
	list, ok := value.([]any)
	if value != nil && !ok {
		return nil, errors.New("skip_block_devices is not a list")
	}
	var out []map[string]any
	for i, item := range list {
		hints, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("entry %d of skip_block_devices is not an object", i+1)
		}
		out = append(out, hints)
	}
	return out, nil
}

// Raw returns a copy of the node object's top level.
func (n *Node) Raw() map[string]any { return maps.Clone(n.raw) }

// MarshalJSON returns the node object as it was received.
func (n *Node) MarshalJSON() ([]byte, error) { return json.Marshal(n.raw) }

// UnmarshalJSON decodes a node object like FromJSON.
func (n *Node) UnmarshalJSON(data []byte) error {
	parsed, err := FromJSON(data)
	if err != nil {
		return err
	}
	*n = *parsed
	return nil
}

// Cache stores the machine's node, and whether the BMC must be detected. The zero value is empty. It is safe for
// concurrent use.
type Cache struct {
	mu            sync.Mutex
	node          *Node
	skipBMCDetect bool
}

// Get returns the node, nil before the first one is set.
func (c *Cache) Get() *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node
}

// Set stores a node and reports whether it differs from the previous one.
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

// SkipBMCDetect reports whether the inventory must not access the BMC, because the conductor manages it out of band.
func (c *Cache) SkipBMCDetect() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skipBMCDetect
}

// SetSkipBMCDetect sets the result of SkipBMCDetect.
func (c *Cache) SetSkipBMCDetect(skip bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skipBMCDetect = skip
}
