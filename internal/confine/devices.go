package confine

// DeviceNode is a device node below /dev.
type DeviceNode struct {
	Name   string
	Mode   uint32 // with the type
	Number uint64
}
