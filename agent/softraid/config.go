package softraid

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/hint"
	"ironroot/storage/md"
	"ironroot/storage/raid"
)

// Volume is an array of a RAID configuration, with its members on the disks once they are planned or found.
type Volume struct {
	Name  string // volume_name; in a validated configuration otherwise the name of its device
	Level string // as in [md.New]; "" if it is not known
	// Size is size_gb in bytes: the space that the array takes on each disk. 0 means the rest (MAX), or unknown.
	Size int64
	Root *bool // is_root_volume; nil if it is not given

	Members raid.Array   // planned or found, in the order of their roles
	Running string       // device path if it ran when it was found, "" otherwise
	Device  block.Device // of the array, if it was assembled
	Err     error        // why the array is not found or does not run

	entry       int // position in logical_disks, from 1
	controller  string
	isMax       bool         // size_gb is "MAX"
	isLevelText bool         // raid_level is one of levels
	hints       []hint.Hints // of physical_disks, one for each member; nil means all disks
	number      int          // of the array's device
}

// IsRoot reports whether the array is the root volume.
func (v *Volume) IsRoot() bool { return v.Root != nil && *v.Root }

// Path returns the device path of the array, "" if it does not run.
func (v *Volume) Path() string { return cmp.Or(v.Running, v.Device.Path) }

// String describes the array by its level and name. It must have members.
func (v *Volume) String() string { return v.Members.String() }

// levels maps the levels of Ironic's configuration to the levels of [md.New].
var levels = map[string]string{"0": "raid0", "1": "raid1", "1+0": "raid10", "5": "raid5", "6": "raid6"}

// levelName returns the name of a level of [md.New] in a configuration.
func levelName(level string) string {
	for name, other := range levels {
		if other == level {
			return name
		}
	}
	return level
}

// maxVolumes is the number of arrays that a configuration can have.
const maxVolumes = 2

// softwareController is the controller of arrays that this package supports.
const softwareController = "software"

// espName is the array name of the mirrored EFI system partition.
const espName = bootloader.ESPName

// configuration is a parsed RAID configuration: target_raid_config, or raid_config once Ironic has created it.
type configuration struct {
	volumes []Volume // in the order of logical_disks; what is not valid counts as not known
	// lacksSoftware is true if the configuration is empty, or all its entries have other controllers than "software".
	lacksSoftware bool
	// malformed is the error of a raid_config whose logical_disks is not a list of objects. Such an entry must not be
	// ignored.
	malformed error
	count     int      // of entries
	problems  []string // against the rules for arrays to create

	names   map[string]bool
	named   bool // skip_block_devices has names of arrays, so that all need one
	hasRoot bool
	hasMax  bool
}

// parse parses a configuration. With named, all arrays need a name.
//
// The rules are the same as in ironic-python-agent. In addition, levels, sizes and names must be usable before anything
// is written. The disks are not read: see [Arrays.checkDisks].
func parse(config map[string]any, named bool) *configuration {
	disks, isList := config["logical_disks"].([]any)
	c := &configuration{
		lacksSoftware: len(config) == 0 || isList, count: len(disks), names: map[string]bool{}, named: named,
	}
	if config["logical_disks"] != nil && !isList {
		c.malformed = errors.New("raid_config.logical_disks is not a list")
	}
	if len(disks) > maxVolumes {
		c.add("Software RAID configuration requires one or two logical disks")
	}
	for i, disk := range disks {
		entry, ok := disk.(map[string]any)
		if !ok {
			c.add("logical disk %d: got %v, want an object", i+1, disk)
			c.malformed = cmp.Or(c.malformed, fmt.Errorf("entry %d of raid_config.logical_disks is not an object", i+1))
			c.lacksSoftware = false
			continue
		}
		v := c.volume(i, entry)
		c.lacksSoftware = c.lacksSoftware && v.controller != softwareController
		c.volumes = append(c.volumes, v)
	}
	return c
}

// toCreate returns the arrays in the order in which they are created, each with a name. The array of size MAX is the
// last. A configuration without entries is an error.
func (c *configuration) toCreate() ([]Volume, error) {
	if c.count == 0 {
		return nil, fault.SoftwareRAID("RAID config contains no logical disks")
	}
	volumes := slices.Clone(c.volumes)
	last := func(v Volume) int {
		if v.isMax {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(volumes, func(a, b Volume) int { return last(a) - last(b) })
	for i := range volumes {
		v := &volumes[i]
		if !v.isLevelText {
			v.Level = ""
		}
		if v.Name == "" {
			v.Name = fmt.Sprintf("md%d", i)
			if c.names[v.Name] {
				c.add("Duplicate software RAID device name %s detected", v.Name)
			}
		}
	}
	return volumes, nil
}

// validated returns the arrays as toCreate does, and all problems in one error. It returns none if the configuration
// contains no software RAID.
func (c *configuration) validated(n *node.Node) ([]Volume, error) {
	if c == nil || c.lacksSoftware {
		return nil, nil
	}
	volumes, err := c.toCreate()
	if err != nil {
		return nil, err
	}
	return volumes, c.err(n)
}

func (c *configuration) add(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.problems, text) {
		c.problems = append(c.problems, text)
	}
}

// err returns all problems as one error, nil if there are none.
func (c *configuration) err(n *node.Node) error {
	if len(c.problems) == 0 {
		return nil
	}
	return fault.SoftwareRAID("Could not validate Software RAID config for %s: %s", n.UUID(),
		strings.Join(c.problems, "; "))
}

// volume parses an entry of logical_disks.
func (c *configuration) volume(index int, entry map[string]any) Volume {
	v := Volume{entry: index + 1}
	if v.controller, _ = entry["controller"].(string); v.controller != softwareController {
		c.add("Software RAID configuration requires all logical disks to have 'controller'='software'")
	}
	v.Name = c.name(index, entry)
	c.setSize(&v, entry["size_gb"])
	v.hints = c.hints(index, entry)
	c.setLevel(&v, entry["raid_level"])
	switch root := entry["is_root_volume"].(type) {
	case nil:
	case bool:
		if root && c.hasRoot {
			c.add("Software RAID configuration allows only one logical disk to be marked as is_root_volume")
		}
		c.hasRoot = c.hasRoot || root
		v.Root = &root
	default:
		c.add("logical disk %d: is_root_volume: got %v, want true or false", index+1, root)
	}
	return v
}

// setLevel sets the level. An existing array's can also be a number or "10".
func (c *configuration) setLevel(v *Volume, value any) {
	text, _ := value.(string)
	v.isLevelText = levels[text] != ""
	if v.entry == 1 && text != "1" {
		c.add("Software RAID Configuration requires RAID-1 for the first logical disk")
	} else if !v.isLevelText {
		c.add("Software RAID configuration does not support RAID level %v", value)
	}
	text = strings.TrimSpace(fmt.Sprint(value))
	if text == "10" {
		text = "1+0"
	}
	v.Level = levels[text]
}

func (c *configuration) name(index int, entry map[string]any) string {
	value, ok := entry[volumeName]
	if !ok || value == nil {
		if c.named {
			c.add("All logical disks are required to have a volume name specified as a volume name is mentioned in " +
				"the property skip block devices.")
		}
		return ""
	}
	name, ok := value.(string)
	switch {
	case !ok || !isVolumeName(name):
		c.add("logical disk %d: volume_name: got %q, want 1 to %d letters, digits, '-', '_' and '.', "+
			"neither %q nor a '.' first", index+1, fmt.Sprint(value), md.MaxName, espName)
	case c.names[name]:
		c.add("Duplicate software RAID device name %s detected", name)
	}
	c.names[name] = true
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

// isVolumeName reports whether mdadm can use a name for a device in /dev/md. The name "esp" belongs to the mirrored EFI
// system partition.
func isVolumeName(name string) bool {
	return name != "" && len(name) <= md.MaxName && name != espName && !strings.HasPrefix(name, ".") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

// setSize sets the size. An existing array's can also be a fraction.
func (c *configuration) setSize(v *Volume, value any) {
	text := fmt.Sprint(value)
	if number, ok := value.(float64); ok {
		text = strconv.FormatFloat(number, 'f', -1, 64) // without an exponent
	}
	if text == "MAX" {
		if c.hasMax {
			c.add("Software RAID can have only one RAID device with size 'MAX'")
		}
		c.hasMax, v.isMax = true, true
		return
	}
	if gigabytes, err := strconv.ParseFloat(text, 64); err == nil {
		v.Size = int64(gigabytes * (1 << 30))
	}
	if gigabytes, err := strconv.ParseInt(text, 10, 64); err != nil || gigabytes <= 0 || gigabytes > maxSizeGB {
		c.add("logical disk %d: size_gb: got %s, want a number of GiB or 'MAX'", v.entry, text)
	}
}

// maxSizeGB is the largest size in GiB, so that sums of sizes in bytes cannot overflow.
const maxSizeGB = 1 << 28

// hints returns the hints of physical_disks, nil if they have a problem.
func (c *configuration) hints(index int, entry map[string]any) []hint.Hints {
	value, ok := entry["physical_disks"]
	if !ok || value == nil {
		return nil
	}
	list, _ := value.([]any)
	valid := len(list) >= 2
	if !valid {
		c.add("The physical_disks parameter for software RAID must be a list with at least 2 items, each specifying " +
			"a disk in the device hints format")
	}
	var hints []hint.Hints
	for i, item := range list {
		raw, ok := item.(map[string]any)
		if !ok {
			c.add("The physical_disks parameter for software RAID must be a list of device hints (dictionaries)")
			valid = false
			continue
		}
		parsed, err := hint.Parse(raw)
		if err != nil {
			c.add("logical disk %d: entry %d of physical_disks: %v", index+1, i+1, err)
			valid = false
		}
		hints = append(hints, parsed)
	}
	if !valid {
		return nil
	}
	return hints
}
