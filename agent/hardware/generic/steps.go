package generic

import (
	"context"
	"encoding/json"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/node"
)

// deployInterface is the Ironic interface of all steps but those for RAID.
const deployInterface = "deploy"

// Version implements [hardware.Manager]. Ironic lists the steps of a node again only if the version of a manager has
// changed. It begins with the version of the manager of the same name in ironic-python-agent, whose list of steps is
// the same. The rule: a change that adds or removes a step, changes its priority, its interface, its arguments, what it
// does, or whether it can be aborted appends -ironroot.N, where N is larger than in all versions before.
// TestVersionNamesSteps checks all but what a step does, and lists the steps of each version.
func (m *Manager) Version() string { return "1.2-ironroot.13" }

// Steps implements [hardware.Stepper].
func (m *Manager) Steps(kind hardware.Kind, _ *node.Node, _ []map[string]any) []hardware.Step {
	yes := true
	// Clean steps and burn-in steps of any kind can be aborted. Other steps have no abortable field.
	abortable := func(name string, priority int, run hardware.StepFunc) hardware.Step {
		return hardware.Step{Name: name, Priority: priority, Interface: deployInterface, Abortable: &yes, Run: run}
	}
	step := func(name string, run hardware.StepFunc) hardware.Step {
		return hardware.Step{Name: name, Interface: deployInterface, Run: run}
	}
	nvram := step("clean_uefi_nvram", m.cleanUEFINVRAM)
	nvram.ArgsInfo = map[string]hardware.ArgInfo{matchPatterns: {Description: "" +
		"List of regular expressions in RE2 syntax. Boot entries of the UEFI firmware whose device path matches " +
		"any of them, ignoring case, are removed. The default matches entries for disk partitions and for the " +
		"loaders shim and grub."}}
	inject := step("inject_files", m.injectFiles)
	inject.Priority, inject.ArgsInfo = m.o.Config.Get().InjectFilesPriority, injectArguments()
	deleteRAID := hardware.Step{
		Name: "delete_configuration", Interface: raidInterface, Abortable: &yes, Run: m.deleteConfiguration,
	}
	createRAID := hardware.Step{
		Name: "create_configuration", Interface: raidInterface, Abortable: &yes, Run: m.createConfiguration,
	}
	applyRAID := hardware.Step{
		Name: "apply_configuration", Interface: raidInterface, ArgsInfo: raidArguments(), Run: m.applyConfiguration,
	}
	switch kind {
	case hardware.Clean:
		nvram.Abortable = &yes
		return []hardware.Step{
			abortable("erase_devices", 10, m.eraseDevices),
			abortable("erase_devices_metadata", 99, m.eraseMetadata),
			abortable("erase_devices_express", 0, m.eraseExpress),
			abortable("erase_pstore", 0, m.erasePstore),
			nvram,
			deleteRAID,
			createRAID,
			abortable("burnin_cpu", 0, m.burninCPU),
			abortable("burnin_gpu", 0, m.burninGPU),
			abortable("burnin_memory", 0, m.burninMemory),
			abortable("burnin_network", 0, m.burninNetwork),
			abortable("burnin_disk", 0, m.burninDisk),
		}
	case hardware.Deploy:
		return []hardware.Step{
			step("erase_devices_metadata", m.eraseMetadata),
			nvram,
			applyRAID,
			step("write_image", m.writeImage),
			inject,
			step("execute_bootc_install", m.executeBootcInstall),
		}
	case hardware.Service:
		return []hardware.Step{
			deleteRAID,
			createRAID,
			applyRAID,
			step("write_image", m.writeImage),
			inject,
			step("execute_bootc_install", m.executeBootcInstall),
			abortable("burnin_cpu", 0, m.burninCPU),
			abortable("burnin_gpu", 0, m.burninGPU),
			abortable("burnin_memory", 0, m.burninMemory),
			abortable("burnin_network", 0, m.burninNetwork),
		}
	}
	return nil
}

// writeImage implements the step write_image. It does the same as the command prepare_image and returns a result in
// the command's form.
func (m *Manager) writeImage(ctx context.Context, call hardware.Call) (any, error) {
	if err := call.CheckArguments("image_info", "configdrive"); err != nil {
		return nil, err
	}
	info, err := imaging.ParseImageInfo(call.Args["image_info"], m.o.Config.Get().MD5Enabled)
	if err != nil {
		return nil, err
	}
	drive, err := textArgument(call, "configdrive")
	if err != nil {
		return nil, err
	}
	text, err := m.o.Imager.Prepare(ctx, info, drive)
	if err != nil {
		return nil, err
	}
	return map[string]string{"result": "prepare_image: " + text}, nil
}

// executeBootcInstall implements the step execute_bootc_install. It does the same as the command of this name and
// returns a result in the command's form.
func (m *Manager) executeBootcInstall(ctx context.Context, call hardware.Call) (any, error) {
	if err := call.CheckArguments("image_source", "configdrive", "oci_pull_secret"); err != nil {
		return nil, err
	}
	var info map[string]any
	if call.Node != nil {
		info = call.Node.InstanceInfo()
	}
	instanceInfo, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	c, err := imaging.ParseBootableContainer(
		call.Args["image_source"], instanceInfo, call.Args["oci_pull_secret"], call.Args["configdrive"])
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
