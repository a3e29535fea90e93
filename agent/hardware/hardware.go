// Package hardware is the contract between the agent and its hardware managers: how they are loaded and asked in turn,
// how the steps they offer become one list, and how that set of managers is told apart from another one.
//
// It follows the contract of ironic-python-agent: support levels, dispatch to the best manager that feels able, steps
// of the three kinds clean, deploy and service, and the version dictionary that the conductor hands back with each
// step.
package hardware

import (
	"context"
	"encoding/json"

	"ironroot/agent/node"
	"ironroot/storage/block"
)

// Level says how well a manager knows the hardware it runs on. Higher levels are asked first.
type Level int

// The levels of the contract. A manager of a third party may answer more than ServiceProvider.
const (
	None            Level = 0 // does not fit this machine: the manager is dropped
	Generic         Level = 1 // works anywhere
	Mainline        Level = 2 // knows the hardware
	ServiceProvider Level = 3 // knows the hardware and the site
)

// Kind is one of the three kinds of steps.
type Kind string

// The kinds of steps, spelled as the protocol's keys spell them.
const (
	Clean   Kind = "clean"
	Deploy  Kind = "deploy"
	Service Kind = "service"
)

// ArgInfo describes one argument of a step.
type ArgInfo struct {
	Description string `json:"description"`
	Required    bool   `json:"required"`
}

// Call is what a step gets: the node and its ports as the conductor sent them, and the step's own arguments as JSON.
type Call struct {
	Node  *node.Node
	Ports []map[string]any
	Args  map[string]json.RawMessage
}

// StepFunc does the work of a step. Its result goes to Ironic and has to be encodable as JSON.
type StepFunc func(ctx context.Context, call Call) (any, error)

// Step is one thing a manager can do to a node, described as the protocol lists it, with the function that does it.
type Step struct {
	Name            string             `json:"step"`
	Priority        int                `json:"priority"`
	Interface       string             `json:"interface"`
	RebootRequested bool               `json:"reboot_requested"`
	Abortable       *bool              `json:"abortable,omitempty"`
	ArgsInfo        map[string]ArgInfo `json:"argsinfo,omitempty"`
	Run             StepFunc           `json:"-"`
}

// Manager is one hardware manager. What it can do beyond its name it says by implementing the small interfaces below.
type Manager interface {
	// Class is the name under which its steps are listed, "GenericHardwareManager".
	Class() string
	// Name and Version make the version dictionary; they must not change while the agent runs.
	Name() string
	Version() string
	// Support says how well the manager knows this machine. It must not change anything.
	Support(ctx context.Context) Level
}

// Initializer prepares the machine after every manager was asked for its support level.
type Initializer interface {
	Initialize(ctx context.Context) error
}

// Stepper offers steps of a kind for a node.
type Stepper interface {
	Steps(kind Kind, n *node.Node, ports []map[string]any) []Step
}

// DiskLister lists the machine's disks.
type DiskLister interface {
	Disks(ctx context.Context) ([]block.Device, error)
}

// DeviceFilter changes a device or, with keep false, takes it out of every list: inventory, cleaning, root disk
// choice. fault.IncompatibleHardware leaves the decision to the next manager.
type DeviceFilter interface {
	FilterDevice(ctx context.Context, d block.Device) (out block.Device, keep bool, err error)
}

// DiskWaiter waits until the disks a node needs have appeared. That they do not is not an error.
type DiskWaiter interface {
	WaitDisks(ctx context.Context, n *node.Node) error
}

// Syncer writes everything that is still in memory to the disks. It returns when ctx ends, even if the kernel does
// not.
type Syncer interface {
	Sync(ctx context.Context) error
}
