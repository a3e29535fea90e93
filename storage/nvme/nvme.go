package nvme

import "time"

// Command is an admin command. Bits 1:0 of the operation code say whether Data is sent (01b) or received (10b).
type Command struct {
	Opcode                                   uint8
	Namespace                                uint32 // NSID
	CDW10, CDW11, CDW12, CDW13, CDW14, CDW15 uint32
	Data                                     []byte        // nil if the command transfers none
	Timeout                                  time.Duration // 0 stands for the driver's, a minute
}

// AllNamespaces is the Namespace of commands for all namespaces of a controller.
const AllNamespaces = 0xffffffff

// Transport sends admin commands to a controller. The error is a [Status] if the controller rejected or aborted the
// command.
type Transport interface {
	Send(c Command) error
}

// Controller is an NVMe controller.
type Controller struct{ transport Transport }

// New returns the controller behind a transport.
func New(t Transport) Controller { return Controller{t} }

// commandTimeout is the time limit of commands that return at once.
const commandTimeout = 60 * time.Second
