package hardware

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/storage/block"
)

// Level describes how well a manager supports the hardware. Calls go to managers of higher levels first.
type Level int

// The levels of the contract. Third-party managers may return levels above ServiceProvider.
const (
	None            Level = 0 // does not support this machine: the manager is dropped
	Generic         Level = 1 // supports any machine
	Mainline        Level = 2 // written for the hardware
	ServiceProvider Level = 3 // written for the hardware and the site
)

// Kind is one of the three kinds of steps.
type Kind string

// The kinds of steps. The values are the protocol's keys.
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

// Call holds what a step receives: the node and its ports as the conductor sent them, and the step's arguments as
// JSON.
type Call struct {
	Node  *node.Node
	Ports []map[string]any
	Args  map[string]json.RawMessage
}

// CheckArguments returns a fault if the step has other arguments than those named: a misspelt one must not silently
// change what is erased or written.
func (c Call) CheckArguments(names ...string) error {
	for _, name := range slices.Sorted(maps.Keys(c.Args)) {
		if !slices.Contains(names, name) {
			return fault.InvalidCommandParams("the step has no argument '%s'", name)
		}
	}
	return nil
}

// StepFunc runs a step. Its result is sent to Ironic and must be encodable as JSON.
type StepFunc func(ctx context.Context, call Call) (any, error)

// Step is an operation on a node that a manager supports: its description in the protocol, and its function.
type Step struct {
	Name            string             `json:"step"`
	Priority        int                `json:"priority"`
	Interface       string             `json:"interface"`
	RebootRequested bool               `json:"reboot_requested"`
	Abortable       *bool              `json:"abortable,omitempty"`
	ArgsInfo        map[string]ArgInfo `json:"argsinfo,omitempty"`
	// Passed are the arguments that Ironic passes by itself and that are not listed to it.
	Passed map[string]ArgInfo `json:"-"`
	Help   string             `json:"-"` // what the step does, for docs/steps.md; "" in custom managers
	Run    StepFunc           `json:"-"`
}

// Manager is a hardware manager. It supports further operations by implementing the small interfaces below.
type Manager interface {
	// Class is the name under which its steps are listed, "GenericHardwareManager".
	Class() string
	// Name and Version form the version dictionary. They must not change while the agent runs.
	Name() string
	Version() string
	// Support returns how well the manager supports this machine. It must not change anything.
	Support(ctx context.Context) Level
}

// Evaluator is a Manager that can fail to determine its support level. Evaluate is called instead of Support.
type Evaluator interface {
	Evaluate(ctx context.Context) (Level, error)
}

// Initializer prepares the machine after all managers have returned their support levels.
type Initializer interface {
	Initialize(ctx context.Context) error
}

// Stepper lists the steps of a kind for a node.
type Stepper interface {
	Steps(kind Kind, n *node.Node, ports []map[string]any) []Step
}

// StepLister lists steps as a Stepper does, for a manager whose list can be incomplete, for example because a file of
// the operator is not valid. The steps returned with an error can be executed, but no steps are listed to Ironic: the
// operator would otherwise not learn that some are missing.
type StepLister interface {
	ListSteps(kind Kind, n *node.Node, ports []map[string]any) ([]Step, error)
}

// DiskLister lists the machine's disks.
type DiskLister interface {
	Disks(ctx context.Context) ([]block.Device, error)
}

// DeviceFilter changes a device or, with keep false, removes it from every list: inventory, cleaning, root disk
// selection. ErrIncompatible means no opinion. The filters of all managers are called until one removes the device, see
// [Managers.Filter].
type DeviceFilter interface {
	FilterDevice(ctx context.Context, d block.Device) (out block.Device, keep bool, err error)
}

// DiskWaiter waits until the disks that a node needs have appeared. A timeout is not an error.
type DiskWaiter interface {
	WaitDisks(ctx context.Context, n *node.Node) error
}

// Syncer writes all data that is still in memory to the disks. It returns when ctx ends, even while the kernel is
// busy.
type Syncer interface {
	Sync(ctx context.Context) error
}
