package image

// The formats by the names that Ironic uses.
const (
	formatRaw   = "raw"
	formatGPT   = "gpt"
	formatQcow2 = "qcow2"
	formatISO   = "iso"
)
