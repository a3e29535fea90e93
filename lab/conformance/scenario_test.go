//go:build linux

package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// scenario holds the actions of a conductor on an agent, and the state of the machine before it.
type scenario struct {
	name string
	// cmdline are kernel parameters, and config is the content of the agent's configuration file. Groups whose
	// scenarios share an agent have neither.
	cmdline, config string
	// ironic has the replies of Ironic.
	ironic replies
	// node replaces keys of the node in the replies to lookups and in the parameters of steps.
	node object
	// until is the request to Ironic after which the requests to the agent begin, and the last one that is compared.
	// The zero value is the first heartbeat.
	until until
	// clear are requests to a shared agent that remove what an earlier scenario left on the disks. They must succeed.
	clear []request
	// disks are the disks that the scenario compares, by serial number, after before prepared them.
	disks []string
	// prepared describes what before writes, for the digest: functions are not part of it.
	prepared string
	// before prepares a disk: it receives the disk's file.
	before func(path string) error
	// ranges are parts of the disks whose content is compared by digest if all commands succeed.
	ranges []span
	// passes compares how often the agent overwrites the disks.
	passes bool
	// unwritten requires that this ramdisk writes to no disk.
	unwritten bool
	// gpt requires that both copies of a GPT that this ramdisk leaves are valid and equal.
	gpt bool
	// marker is a text in an image. The disks that contain it at their start are compared.
	marker string
	// files are files of the disk ROOT that are compared: number of the partition, colon, path.
	files []string
	// boot compares the boot entries of the firmware.
	boot bool
	do   []request
	// long is set if only make test-long plays the scenario.
	long bool
	// then is the request to Ironic that ends the scenario after the requests to the agent. The zero value is none.
	then until
}

type object = map[string]any

// replies are Ironic's replies by kind of request. The last one repeats; none is the usual one.
type replies struct {
	root, lookup, heartbeat, inspection []reply
}

// reply is a reply of Ironic.
type reply struct {
	status int    // 0 is the status of success, hangUp closes the connection
	body   any    // nil is the usual body; a string is sent as it is, and is the location of a redirect
	config object // replaces keys of config in the usual reply to a lookup; nil values remove them
	kind   string // content type, "" is application/json
}

// hangUp is the status of a reply that never arrives, because the connection is closed.
const hangUp = 999

// The kinds of requests to Ironic.
const (
	rootRequest       = "root"
	lookupRequest     = "lookup"
	heartbeatRequest  = "heartbeat"
	inspectionRequest = "inspection"
	otherRequest      = "other"
)

// until is the nth request of a kind, counted from 1.
type until struct {
	kind string
	n    int
}

// request is a request to the agent's API.
type request struct {
	method, path string
	body         string
	token        string // "" is the token of the lookup, "-" sends none
	wait         bool   // with wait=true
	kind         string // content type, "" is application/json
	hidden       bool   // the reply is not compared
}

// The node of all scenarios.
const (
	nodeUUID = "1be26c0b-03f2-4d2e-ae87-c02d7f33c123"
	nodeMAC  = "52:54:00:1a:00:01"
	token    = "rYnCkE5M3wGZVbW4l0Nn7hIqkz6xFpT9uA2sD8oJ1vQ"
)

// The addresses of a machine's network: of the host, and of the machine itself.
const (
	hostAddress  = "10.0.2.2"
	agentAddress = "10.0.2.15"
	apiPort      = 6385
	imagePort    = 8080
	agentPort    = 9999
)

var imageURL = fmt.Sprintf("http://%s:%d", hostAddress, imagePort)

func get(path string) request { return request{method: http.MethodGet, path: path} }

// command is a command whose end the conductor waits for.
func command(name string, params any) request {
	return request{method: http.MethodPost, path: "/v1/commands/", wait: true, body: encode(object{
		"name": name, "params": params,
	})}
}

// started is a command whose end the conductor does not wait for.
func started(name string, params any) request {
	r := command(name, params)
	r.wait = false
	return r
}

// hidden is a request whose reply is not compared.
func hidden(r request) request {
	r.hidden = true
	return r
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // the tables contain a value that JSON does not have
	}
	return string(text)
}

// step executes a step of an interface: clean, deploy or service. The step's keys replace keys of the usual one.
func step(kind, name string, node, replaced object) request {
	described := object{"step": name, "interface": "deploy", "priority": 0, "args": object{}}
	maps.Copy(described, replaced)
	return command(kind+".execute_"+kind+"_step", object{
		"step": described, "node": nodeWith(node), "ports": ports(),
	})
}

// nodeWith returns the node as Ironic sends it with commands and lookups. Objects in replaced are merged.
func nodeWith(replaced object) object {
	node := object{
		"uuid":                 nodeUUID,
		"properties":           object{"cpu_arch": "x86_64", "capabilities": "boot_mode:uefi"},
		"instance_info":        object{},
		"driver_info":          object{},
		"driver_internal_info": object{},
		"target_raid_config":   object{},
	}
	for key, value := range replaced {
		if part, ok := value.(object); ok {
			merged, _ := node[key].(object)
			if merged == nil {
				merged = object{}
			}
			maps.Copy(merged, part)
			value = merged
		}
		node[key] = value
	}
	return node
}

func ports() []object {
	return []object{{"uuid": "7f1b1d9c-3f7f-4f0e-8f0b-2b1d7a3c5e01", "address": nodeMAC, "node_uuid": nodeUUID}}
}
