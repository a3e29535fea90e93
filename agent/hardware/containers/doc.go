// Package containers implements the hardware manager whose steps run containers: images that the arguments of a step
// name, if the configuration allows them, and images that a file of the ramdisk names.
//
// It follows ContainerHardwareManager of ironic-python-agent, but there is no podman: the options of podman's pull and
// run are parsed, and those that the ramdisk's own runtime does not support are refused by name.
//
// # Steps in containers never replace other steps
//
// A step of the steps file with the name of another step would run in its place, because this manager has a higher
// level than the built-in one: a container could report an erase that did not happen. So the names of the steps of all
// managers are refused, and the names of all methods of managers in ironic-python-agent, because the same file must
// work there. The file is read again for every list of steps, because the lookup can name another one. If it is not
// valid, no steps are listed: an operator would otherwise not learn that some are missing. All other steps can still be
// executed, as in ironic-python-agent: a mistake in the file must not prevent an erase that Ironic has listed before.
//
// # Options of podman are a list
//
// An option that is ignored would change the effect of a step, or how far it is confined, without a message; so each
// option that the ramdisk's runtime does not have is an error with its name. The YAML parser is go.yaml.in/yaml/v3,
// which the YAML organization maintains: it adds 104 KiB to the ramdisk, its successor v4 and goccy/go-yaml add 230
// KiB, and the latter reads "yes" as a text where PyYAML reads a boolean. The limits on aliases and sizes are ours.
package containers
