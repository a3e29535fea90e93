package imaging

import (
	"encoding/json"

	"ironroot/agent/fault"
)

// PartitionInfo is the part of image_info that describes the disk for a partition image. Sizes are in bytes.
type PartitionInfo struct {
	Root              int64
	Swap              int64  // 0: none
	Ephemeral         int64  // 0: none
	EphemeralFormat   string // file system of the ephemeral partition, "" for none
	PreserveEphemeral bool   // keep the existing layout and the content of the ephemeral partition
	BootMode          string // the conductor's boot mode; used in the result text only
}

// wirePartition is PartitionInfo as JSON.
type wirePartition struct {
	ImageType         json.RawMessage `json:"image_type"`
	RootMB            json.RawMessage `json:"root_mb"`
	SwapMB            json.RawMessage `json:"swap_mb"`
	EphemeralMB       json.RawMessage `json:"ephemeral_mb"`
	EphemeralFormat   json.RawMessage `json:"ephemeral_format"`
	PreserveEphemeral json.RawMessage `json:"preserve_ephemeral"`
	BootMode          json.RawMessage `json:"deploy_boot_mode"`
}

// mebibyte is the unit of the protocol's sizes, in bytes.
const mebibyte = 1 << 20

// maxMB is the largest accepted size in MiB. It exceeds every disk, and sums of such sizes do not overflow.
const maxMB = 1 << 38

// parsePartition parses the layout of a partition image. For a whole-disk image it ignores all fields but image_type.
// All keys are required, as the conductor sends them: a misspelt preserve_ephemeral must not destroy data. Null means
// size 0, no format, and false.
func parsePartition(wire wirePartition, into **PartitionInfo) error {
	var kind string
	if err := decodeText("image_type", wire.ImageType, &kind); err != nil || kind != "partition" {
		return err
	}
	p := &PartitionInfo{}
	for _, f := range []struct {
		name string
		raw  json.RawMessage
	}{
		{"root_mb", wire.RootMB},
		{"swap_mb", wire.SwapMB},
		{"ephemeral_mb", wire.EphemeralMB},
		{"ephemeral_format", wire.EphemeralFormat},
		{"preserve_ephemeral", wire.PreserveEphemeral},
	} {
		if len(f.raw) == 0 {
			return fault.InvalidCommandParams("image_info has no '%s', which a partition image needs", f.name)
		}
	}
	for _, err := range []error{
		decodeMB("root_mb", wire.RootMB, &p.Root),
		decodeMB("swap_mb", wire.SwapMB, &p.Swap),
		decodeMB("ephemeral_mb", wire.EphemeralMB, &p.Ephemeral),
		decodeText("ephemeral_format", wire.EphemeralFormat, &p.EphemeralFormat),
		decode("preserve_ephemeral", wire.PreserveEphemeral, "a boolean", &p.PreserveEphemeral),
		decodeText("deploy_boot_mode", wire.BootMode, &p.BootMode),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case p.Root == 0:
		return fault.InvalidCommandParams("image_info 'root_mb' must be at least 1 for a partition image")
	case p.Ephemeral > 0 && p.EphemeralFormat == "" && !p.PreserveEphemeral:
		return fault.InvalidCommandParams("image_info has 'ephemeral_mb' without 'ephemeral_format'")
	}
	*into = p
	return nil
}

// decodeMB parses a number of MiB, which may be a JSON string, and converts it to bytes.
func decodeMB(field string, raw json.RawMessage, into *int64) error {
	if absent(raw) {
		return nil
	}
	var number json.Number // accepts numbers and strings
	if err := decode(field, raw, "a number of MiB", &number); err != nil {
		return err
	}
	n, err := number.Int64()
	if err != nil || n < 0 || n > maxMB {
		return fault.InvalidCommandParams("image_info '%s' must be a number of MiB", field)
	}
	*into = n * mebibyte
	return nil
}
