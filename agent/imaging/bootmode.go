package imaging

import (
	"encoding/json"
	"fmt"
	"strings"

	"ironroot/agent/node"
	"ironroot/storage/partition"
)

// BootsUEFI reports whether the instance will boot by UEFI. n may be nil; ramdisk is how the ramdisk was booted.
//
// As the protocol requires, secure boot implies UEFI. Otherwise the first boot mode found in instance_info, the
// capabilities of properties, and driver_internal_info decides, then ramdisk.
func BootsUEFI(n *node.Node, ramdisk bool) bool {
	if n == nil {
		return ramdisk
	}
	instance, properties := capabilities(n.InstanceInfo()), capabilities(n.Properties())
	if secure, _ := first("secure_boot", instance, properties); strings.EqualFold(secure, "true") {
		return true
	}
	mode, found := first("deploy_boot_mode", n.InstanceInfo())
	if !found {
		mode, found = first("boot_mode", properties)
	}
	if !found {
		mode, _ = first("deploy_boot_mode", n.DriverInternalInfo())
	}
	switch strings.ToLower(mode) {
	case "uefi":
		return true
	case "bios":
		return false
	}
	return ramdisk
}

// TableScheme returns the scheme of a new partition table, for a partition image or RAID. n may be nil.
func TableScheme(n *node.Node, uefi bool) string {
	if uefi {
		return partition.GPT
	}
	if n != nil {
		label, _ := first("disk_label", capabilities(n.InstanceInfo()), capabilities(n.Properties()))
		if label == "gpt" {
			return partition.GPT
		}
	}
	return partition.MBR
}

// first returns the value of key in the first source that contains it. A null value counts as found.
func first(key string, sources ...map[string]any) (text string, found bool) {
	for _, source := range sources {
		if value, ok := source[key]; ok {
			return fmt.Sprint(value), true
		}
	}
	return "", false
}

// capabilities returns the capabilities in source, which is instance_info or properties. They are an object, the JSON
// text of an object, or "key:value,...". Malformed pairs are dropped.
func capabilities(source map[string]any) map[string]any {
	switch c := source["capabilities"].(type) {
	case map[string]any:
		return c
	case string:
		var object any
		if json.Unmarshal([]byte(c), &object) == nil {
			o, _ := object.(map[string]any)
			return o
		}
		list := map[string]any{}
		for pair := range strings.SplitSeq(c, ",") {
			parts := strings.Split(pair, ":")
			if len(parts) == 2 && parts[0] != "" && parts[1] != "" {
				list[parts[0]] = parts[1]
			}
		}
		return list
	}
	return nil
}
