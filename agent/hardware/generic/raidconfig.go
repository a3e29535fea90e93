package generic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/storage/hint"
	"ironroot/storage/md"
)

// volume is a software RAID array of a configuration: target_raid_config, or raid_config once Ironic has created it.
type volume struct {
	name  string       // volume_name, or the name of its device
	level string       // as in [md.New]
	size  int64        // end of its partition on each member, from the previous one's, in bytes; 0 means the rest
	hints []hint.Hints // of physical_disks, one for each member; nil means all disks
	root  *bool        // is_root_volume; nil if it is not given
}

// isRoot reports whether the array is the root volume.
func (v volume) isRoot() bool { return v.root != nil && *v.root }

// raidLevels maps the levels that Ironic's configuration can have here to those of [md.New].
var raidLevels = map[string]string{"0": "raid0", "1": "raid1", "1+0": "raid10", "5": "raid5", "6": "raid6"}

// levelName returns the name of a level of [md.New] in a configuration.
func levelName(level string) string {
	for name, other := range raidLevels {
		if other == level {
			return name
		}
	}
	return level
}

// maxVolumes is the number of arrays that a configuration can have.
const maxVolumes = 2

// lacksSoftwareRAID reports whether a configuration is empty, or all its entries have other controllers than
// "software".
func lacksSoftwareRAID(config map[string]any) bool {
	if len(config) == 0 {
		return true
	}
	disks, ok := config["logical_disks"].([]any)
	return ok && !slices.ContainsFunc(disks, func(disk any) bool {
		entry, ok := disk.(map[string]any)
		return !ok || entry["controller"] == softwareController
	})
}

// volumesOf validates a configuration and returns its arrays in the order in which they are created. All problems are
// in one error. It returns none if the configuration is empty or contains no software RAID.
func volumesOf(n *node.Node, config map[string]any, arrays hardware.Arrays) ([]volume, error) {
	if lacksSoftwareRAID(config) {
		return nil, nil
	}
	v, err := validate(config, arrays)
	if err != nil {
		return nil, err
	}
	return v.volumes, v.err(n)
}

// validate collects the arrays and the problems of a configuration. A configuration without entries is an error.
//
// The rules are those of ironic-python-agent. In addition, levels, sizes and names must be usable before anything is
// written. The disks are not read: see [Manager.checkDisks].
func validate(config map[string]any, arrays hardware.Arrays) (*validation, error) {
	disks, _ := config["logical_disks"].([]any)
	if len(disks) == 0 {
		return nil, fault.SoftwareRAID("RAID config contains no logical disks")
	}
	v := &validation{names: map[string]bool{}, named: arrays.HasProtected()}
	if len(disks) > maxVolumes {
		v.add("Software RAID configuration requires one or two logical disks")
	}
	for i, disk := range disks {
		entry, ok := disk.(map[string]any)
		if !ok {
			v.add("logical disk %d: got %v, want an object", i+1, disk)
			continue
		}
		v.volumes = append(v.volumes, v.volume(i, entry))
	}
	slices.SortStableFunc(v.volumes, func(a, b volume) int { return rank(a) - rank(b) })
	for i := range v.volumes {
		if v.volumes[i].name == "" {
			v.volumes[i].name = fmt.Sprintf("md%d", i)
			if v.names[v.volumes[i].name] {
				v.add("Duplicate software RAID device name %s detected", v.volumes[i].name)
			}
		}
	}
	return v, nil
}

const softwareController = "software"

// rank sorts an array that takes the rest of its disks after all others.
func rank(v volume) int {
	if v.size == 0 {
		return 1
	}
	return 0
}

// validation collects the arrays and the problems of a configuration.
type validation struct {
	volumes  []volume // in the order in which they are created: that of size MAX is the last
	problems []string
	names    map[string]bool
	named    bool // skip_block_devices has names of arrays, so that all need one
	hasRoot  bool
	hasMax   bool
}

func (v *validation) add(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(v.problems, text) {
		v.problems = append(v.problems, text)
	}
}

// err returns all problems as one error, nil if there are none.
func (v *validation) err(n *node.Node) error {
	if len(v.problems) == 0 {
		return nil
	}
	return fault.SoftwareRAID("Could not validate Software RAID config for %s: %s", uuidOf(n),
		strings.Join(v.problems, "; "))
}

// volume validates an entry of logical_disks.
func (v *validation) volume(index int, entry map[string]any) volume {
	if entry["controller"] != softwareController {
		v.add("Software RAID configuration requires all logical disks to have 'controller'='software'")
	}
	result := volume{name: v.name(index, entry), size: v.size(index, entry), hints: v.hints(index, entry)}
	level, _ := entry["raid_level"].(string)
	result.level = raidLevels[level]
	if index == 0 && level != "1" {
		v.add("Software RAID Configuration requires RAID-1 for the first logical disk")
	} else if result.level == "" {
		v.add("Software RAID configuration does not support RAID level %v", entry["raid_level"])
	}
	switch root := entry["is_root_volume"].(type) {
	case nil:
	case bool:
		if root && v.hasRoot {
			v.add("Software RAID configuration allows only one logical disk to be marked as is_root_volume")
		}
		v.hasRoot = v.hasRoot || root
		result.root = &root
	default:
		v.add("logical disk %d: is_root_volume: got %v, want true or false", index+1, root)
	}
	return result
}

func (v *validation) name(index int, entry map[string]any) string {
	value, ok := entry["volume_name"]
	if !ok || value == nil {
		if v.named {
			v.add("All logical disks are required to have a volume name specified as a volume name is mentioned in " +
				"the property skip block devices.")
		}
		return ""
	}
	name, ok := value.(string)
	switch {
	case !ok || !isVolumeName(name):
		v.add("logical disk %d: volume_name: got %q, want 1 to %d letters, digits, '-', '_' and '.', "+
			"neither %q nor a '.' first", index+1, fmt.Sprint(value), md.MaxName, espName)
	case v.names[name]:
		v.add("Duplicate software RAID device name %s detected", name)
	}
	v.names[name] = true
	return name
}

// homeHost is the prefix of array names. mdadm assembles arrays with this prefix under their names on every host.
const homeHost = "any:"

// arrayName returns the name of an array for its superblocks: with homeHost, or without it if the superblock has no
// space for both. mdadm also omits the host from long names. On other hosts, the device of an array without a host can
// get a numeric suffix.
func arrayName(volume string) string {
	if len(homeHost)+len(volume) > md.MaxName {
		return volume
	}
	return homeHost + volume
}

// isVolumeName reports whether mdadm can use a name for a device in /dev/md. The name "esp" is that of the mirrored EFI
// system partition.
func isVolumeName(name string) bool {
	return name != "" && len(name) <= md.MaxName && name != espName && !strings.HasPrefix(name, ".") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

func (v *validation) size(index int, entry map[string]any) int64 {
	text := fmt.Sprint(entry["size_gb"])
	if number, ok := entry["size_gb"].(float64); ok {
		text = strconv.FormatFloat(number, 'f', -1, 64) // without an exponent
	}
	if text == "MAX" {
		if v.hasMax {
			v.add("Software RAID can have only one RAID device with size 'MAX'")
		}
		v.hasMax = true
		return 0
	}
	gigabytes, err := strconv.ParseInt(text, 10, 64)
	if err != nil || gigabytes <= 0 || gigabytes > maxSizeGB {
		v.add("logical disk %d: size_gb: got %s, want a number of GiB or 'MAX'", index+1, text)
		return 1
	}
	return gigabytes << 30
}

// maxSizeGB is the largest size in GiB, so that sums of sizes in bytes cannot overflow.
const maxSizeGB = 1 << 28

// hints returns the hints of physical_disks, nil if they have a problem.
func (v *validation) hints(index int, entry map[string]any) []hint.Hints {
	value, ok := entry["physical_disks"]
	if !ok || value == nil {
		return nil
	}
	list, _ := value.([]any)
	valid := len(list) >= 2
	if !valid {
		v.add("The physical_disks parameter for software RAID must be a list with at least 2 items, each specifying " +
			"a disk in the device hints format")
	}
	var hints []hint.Hints
	for i, item := range list {
		raw, ok := item.(map[string]any)
		if !ok {
			v.add("The physical_disks parameter for software RAID must be a list of device hints (dictionaries)")
			valid = false
			continue
		}
		parsed, err := hint.Parse(raw)
		if err != nil {
			v.add("logical disk %d: entry %d of physical_disks: %v", index+1, i+1, err)
			valid = false
		}
		hints = append(hints, parsed)
	}
	if !valid {
		return nil
	}
	return hints
}
