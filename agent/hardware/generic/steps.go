package generic

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/inject"
	"ironroot/agent/node"
)

// deployInterface is the Ironic interface of all steps but those for RAID.
const deployInterface = "deploy"

// Version implements [hardware.Manager]. It is the version of ironic-python-agent's manager. TestStepTable compares
// version and steps; change them only together: Ironic lists the steps of a node again only if a version has changed. A
// step that ironic-python-agent does not have belongs to another manager. See doc.go.
func (m *Manager) Version() string { return "1.2" }

// row is a row of the table of steps.
type row struct {
	step   hardware.Step // without what differs between the kinds
	offers map[hardware.Kind]offer
}

// offer describes how a step is offered in one kind.
type offer struct {
	priority  int
	abortable bool // false omits the field
}

// table returns all steps. A step has no other arguments than those in ArgsInfo and Passed. docs/steps.md is generated
// from the table.
func (m *Manager) table() []row {
	var (
		abortable = offer{abortable: true}
		plain     = offer{}
		injected  = offer{priority: m.o.Config.Get().InjectFilesPriority}
	)
	return []row{
		{
			step: hardware.Step{
				Name: "erase_devices", Interface: deployInterface, Run: m.eraseDevices,
				Help: "Erases all disks by the drives' own commands or by overwriting, and reads them back.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: {priority: 10, abortable: true}},
		},
		{
			step: hardware.Step{
				Name: "erase_devices_metadata", Interface: deployInterface, Run: m.eraseMetadata,
				Help: "Erases partition tables, signatures of file systems and of arrays, and both ends of all disks.",
			},
			offers: map[hardware.Kind]offer{
				hardware.Clean: {priority: 99, abortable: true}, hardware.Deploy: plain,
			},
		},
		{
			step: hardware.Step{
				Name: "erase_devices_express", Interface: deployInterface, Run: m.eraseExpress,
				Help: "Formats NVMe drives if secure erase of NVMe is on, and erases the metadata of all other disks.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable},
		},
		{
			step: hardware.Step{
				Name: "erase_pstore", Interface: deployInterface, Run: m.erasePstore,
				Help: "Removes the logs of crashed kernels from the firmware's memory.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable},
		},
		{
			step: hardware.Step{
				Name: "clean_uefi_nvram", Interface: deployInterface, ArgsInfo: nvramArguments(), Run: m.cleanUEFINVRAM,
				Help: "Removes boot entries of former systems from the UEFI firmware.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable, hardware.Deploy: plain},
		},
		{
			step: hardware.Step{
				Name: "delete_configuration", Interface: raidInterface, Run: m.deleteConfiguration,
				Help: "Deletes all software RAID arrays, except those that `skip_block_devices` names.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable, hardware.Service: abortable},
		},
		{
			step: hardware.Step{
				Name: "create_configuration", Interface: raidInterface, Run: m.createConfiguration,
				Help: "Creates the software RAID arrays of the node's `target_raid_config`.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable, hardware.Service: abortable},
		},
		{
			step: hardware.Step{
				Name: "apply_configuration", Interface: raidInterface, ArgsInfo: raidArguments(),
				Run:  m.applyConfiguration,
				Help: "Creates the software RAID arrays of its argument.",
			},
			offers: map[hardware.Kind]offer{hardware.Deploy: plain, hardware.Service: plain},
		},
		{
			step: hardware.Step{
				Name: "write_image", Interface: deployInterface, Passed: imageArguments(), Run: m.writeImage,
				Help: "Writes the image of the instance to the root disk.",
			},
			offers: map[hardware.Kind]offer{hardware.Deploy: plain, hardware.Service: plain},
		},
		{
			step: hardware.Step{
				Name: "inject_files", Interface: deployInterface, ArgsInfo: injectArguments(), Run: m.injectFiles,
				Help: "Writes or removes files on partitions. Its priority is the option `inject_files_priority`.",
			},
			offers: map[hardware.Kind]offer{hardware.Deploy: injected, hardware.Service: injected},
		},
		{
			step: hardware.Step{
				Name: "execute_bootc_install", Interface: deployInterface, Passed: bootcArguments(),
				Run:  m.executeBootcInstall,
				Help: "Installs a bootable container on the root disk.",
			},
			offers: map[hardware.Kind]offer{hardware.Deploy: plain, hardware.Service: plain},
		},
		{
			step: hardware.Step{
				Name: "burnin_cpu", Interface: deployInterface, Run: m.burninCPU,
				Help: "Tests the processors under load and verifies what they compute.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable, hardware.Service: abortable},
		},
		{
			step: hardware.Step{
				Name: "burnin_gpu", Interface: deployInterface, Run: m.burninGPU,
				Help: "Fails: the test of graphics processors is not supported.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable, hardware.Service: abortable},
		},
		{
			step: hardware.Step{
				Name: "burnin_memory", Interface: deployInterface, Run: m.burninMemory,
				Help: "Tests the memory and verifies its content.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable, hardware.Service: abortable},
		},
		{
			step: hardware.Step{
				Name: "burnin_network", Interface: deployInterface, Run: m.burninNetwork,
				Help: "Sends data to a partner, receives data from it, and verifies them.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable, hardware.Service: abortable},
		},
		{
			step: hardware.Step{
				Name: "burnin_disk", Interface: deployInterface, Run: m.burninDisk,
				Help: "Overwrites and verifies all disks that `erase_devices` would erase.",
			},
			offers: map[hardware.Kind]offer{hardware.Clean: abortable},
		},
	}
}

// Steps implements [hardware.Stepper].
func (m *Manager) Steps(kind hardware.Kind, _ *node.Node, _ []map[string]any) []hardware.Step {
	yes := true
	var steps []hardware.Step
	for _, r := range m.table() {
		o, offered := r.offers[kind]
		if !offered {
			continue
		}
		step := r.step
		step.Priority, step.Run = o.priority, checked(step)
		if o.abortable {
			step.Abortable = &yes
		}
		steps = append(steps, step)
	}
	return steps
}

// checked returns the function of a step, which rejects all arguments that the table does not have.
func checked(s hardware.Step) hardware.StepFunc {
	names := slices.Concat(slices.Collect(maps.Keys(s.ArgsInfo)), slices.Collect(maps.Keys(s.Passed)))
	return func(ctx context.Context, call hardware.Call) (any, error) {
		if err := call.CheckArguments(names...); err != nil {
			return nil, err
		}
		return s.Run(ctx, call)
	}
}

// injectArguments are the arguments of inject_files.
func injectArguments() map[string]hardware.ArgInfo {
	return map[string]hardware.ArgInfo{
		inject.FilesArgument: {Description: "" +
			"List of files to write, after those in the inject_files property of the node. Each is an object with " +
			"path, and optionally partition (number on the root disk, path of a device, or link below /dev/disk), " +
			"content (base64, or a URL in " +
			"which {node[...]} and {ports[0][...]} are replaced), deleted (true removes the file), mode, dirmode " +
			"(of the directory, if it is created), owner and group (numbers). Without partition, the file is on the " +
			"first partition that has the first directory of the path."},
		inject.VerifyCAArgument: {Description: "" +
			"Whether the certificates of HTTPS servers are verified as the agent's options say. The default is true."},
	}
}

// imageArguments are the arguments of write_image.
func imageArguments() map[string]hardware.ArgInfo {
	return map[string]hardware.ArgInfo{
		imageInfo:   {Required: true, Description: "Image to write, as for the command `standby.prepare_image`."},
		configDrive: {Description: "Config drive of the instance."},
	}
}

// bootcArguments are the arguments of execute_bootc_install.
func bootcArguments() map[string]hardware.ArgInfo {
	return map[string]hardware.ArgInfo{
		imageSource: {Required: true, Description: "Reference of the image."},
		configDrive: {Description: "Config drive of the instance."},
		pullSecret:  {Description: "Credentials for the registry."},
	}
}

// Arguments that Ironic passes by itself.
const (
	imageInfo   = "image_info"
	imageSource = "image_source"
	configDrive = "configdrive"
	pullSecret  = "oci_pull_secret"
)

// writeImage implements the step write_image. It does the same as the command prepare_image and returns a result in
// the command's form.
func (m *Manager) writeImage(ctx context.Context, call hardware.Call) (any, error) {
	info, err := imaging.ParseImageInfo(call.Args[imageInfo], m.o.Config.Get().MD5Enabled)
	if err != nil {
		return nil, err
	}
	drive, err := textArgument(call, configDrive)
	if err != nil {
		return nil, err
	}
	text, err := m.o.Imager.Prepare(ctx, info, drive)
	if err != nil {
		return nil, err
	}
	return map[string]string{"result": "prepare_image: " + text}, nil
}

// injectFiles implements the step inject_files, see [inject.Injector.Run].
func (m *Manager) injectFiles(ctx context.Context, call hardware.Call) (any, error) {
	return nil, inject.Injector{
		Node: call.Node, Ports: call.Ports, System: m.o.System, Disks: m.o.Disks, Arrays: nodeArrays{m},
		Imager: m.o.Imager, Log: m.o.Log,
	}.Run(ctx, call.Args)
}

// executeBootcInstall implements the step execute_bootc_install. It does the same as the command of this name and
// returns a result in the command's form.
func (m *Manager) executeBootcInstall(ctx context.Context, call hardware.Call) (any, error) {
	var info map[string]any
	if call.Node != nil {
		info = call.Node.InstanceInfo()
	}
	instanceInfo, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	c, err := imaging.ParseBootableContainer(
		call.Args[imageSource], instanceInfo, call.Args[pullSecret], call.Args[configDrive])
	if err != nil {
		return nil, err
	}
	text, err := m.o.Imager.InstallContainer(ctx, c)
	if err != nil {
		return nil, err
	}
	return map[string]string{"result": "execute_bootc_install: " + text}, nil
}

// textArgument returns an argument that must be a string or null. It returns "" if the argument is null or absent.
func textArgument(call hardware.Call, name string) (string, error) {
	raw, given := call.Args[name]
	if !given {
		return "", nil
	}
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", fault.InvalidCommandParams("'%s' must be a string", name)
	}
	if text == nil {
		return "", nil
	}
	return *text, nil
}
