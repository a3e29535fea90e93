//go:build linux

package conformance

import "ironroot/lab/qemu"

// steps contains the scenarios of steps that erase no disk, other than inject_files.
func steps() group { return injectGroup("steps", otherSteps()) }

// files contains the scenarios of inject_files. The agent does not wait for a server or a disk that is missing.
func files() group {
	g := injectGroup("files", injections())
	g.start.cmdline = "ipa-image-download-connection-retries=1 ipa-image-download-connection-retry-interval=1 " +
		"ipa-disk-wait-attempts=1"
	return g
}

func injectGroup(name string, scenarios []scenario) group {
	return group{
		name: name, shared: true, publish: publishInjected, scenarios: scenarios,
		shape: shape{disks: []disk{{
			Disk: qemu.Disk{Bus: qemu.SCSI, Size: 5 * gib, Serial: "ROOT"}, prepare: injectDisk,
		}}},
	}
}

// otherSteps are the scenarios of steps that need no disk.
func otherSteps() []scenario {
	one := func(name, kind, step_ string, info, args object) scenario {
		return scenario{name: "step/" + name, do: []request{
			step(kind, step_, object{"driver_info": info}, object{"args": args}),
		}}
	}
	execute := func(name, kind string, params object) scenario {
		return scenario{name: "step/" + name, do: []request{command(kind+".execute_"+kind+"_step", params)}}
	}
	list := func(kind string, node object) scenario {
		return scenario{name: "steps of " + kind, do: []request{
			command(kind+".get_"+kind+"_steps", object{"node": nodeWith(node), "ports": ports()}),
		}}
	}
	priorities := object{"driver_info": object{
		"agent_erase_devices_priority": 5, "clean_step_priority_override": object{"deploy.erase_devices": 7},
	}}
	pstore := object{"step": "erase_pstore", "interface": "deploy", "priority": 0}
	common := object{"node": nodeWith(nil), "ports": ports()}
	return []scenario{
		list("clean", priorities), list("deploy", priorities), list("service", priorities),
		one("erase_pstore", "clean", "erase_pstore", nil, nil),
		one("erase_pstore with arguments", "clean", "erase_pstore", nil, object{"more": 1}),
		one("erase_pstore as a deploy step", "deploy", "erase_pstore", nil, nil),
		one("erase_pstore as a service step", "service", "erase_pstore", nil, nil),
		one("clean_uefi_nvram", "clean", "clean_uefi_nvram", nil, nil),
		one("clean_uefi_nvram none", "clean", "clean_uefi_nvram", nil, object{"match_patterns": []any{}}),
		one("clean_uefi_nvram null", "clean", "clean_uefi_nvram", nil, object{"match_patterns": nil}),
		one("clean_uefi_nvram text", "clean", "clean_uefi_nvram", nil, object{"match_patterns": "HD"}),
		one("clean_uefi_nvram numbers", "clean", "clean_uefi_nvram", nil, object{"match_patterns": []any{1}}),
		one("clean_uefi_nvram invalid", "deploy", "clean_uefi_nvram", nil, object{"match_patterns": []any{"("}}),
		one("burnin_cpu", "clean", "burnin_cpu", object{"agent_burnin_cpu_timeout": 1, "agent_burnin_cpu_cpu": 1},
			nil),
		one("burnin_cpu timeout", "clean", "burnin_cpu", object{
			"agent_burnin_cpu_timeout": "soon",
			"agent_burnin_cpu_cpu":     1,
		}, nil),
		one("burnin_cpu count", "service", "burnin_cpu", object{
			"agent_burnin_cpu_timeout": 1,
			"agent_burnin_cpu_cpu":     "all",
		}, nil),
		one("burnin_cpu arguments", "clean", "burnin_cpu", nil, object{"timeout": 1}),
		one("burnin_memory", "clean", "burnin_memory", object{
			"agent_burnin_vm_timeout": 1, "agent_burnin_vm_vm": 1, "agent_burnin_vm_vm-bytes": "16M",
		}, nil),
		one("burnin_memory bytes", "clean", "burnin_memory", object{
			"agent_burnin_vm_timeout": 1, "agent_burnin_vm_vm": 1, "agent_burnin_vm_vm-bytes": "much",
		}, nil),
		one("burnin_network", "clean", "burnin_network", nil, nil),
		one("burnin_network role", "clean", "burnin_network", object{
			"agent_burnin_fio_network_config": object{"role": "both", "partner": "10.0.2.2"},
		}, nil),
		one("burnin_network partner", "clean", "burnin_network", object{
			"agent_burnin_fio_network_config": object{"role": "writer"},
		}, nil),
		one("burnin_network backend", "clean", "burnin_network", object{
			"agent_burnin_fio_network_pairing_backend_url": "unknown://10.0.2.2",
		}, nil),
		one("burnin_gpu", "clean", "burnin_gpu", object{"agent_burnin_gpu_timeout": 1}, nil),
		one("burnin_gpu count", "service", "burnin_gpu", object{"agent_burnin_gpu_count": 1}, nil),
		one("unknown", "clean", "no_such_step", nil, nil),
		one("unknown deploy step", "deploy", "no_such_step", nil, nil),
		one("unknown service step", "service", "no_such_step", nil, nil),
		one("update_nvidia_nic_firmware_image", "clean", "update_nvidia_nic_firmware_image", nil,
			object{"images": []any{}}),
		one("update_nvidia_nic_firmware_settings", "deploy", "update_nvidia_nic_firmware_settings", nil,
			object{"settings": []any{}}),
		one("write_image without an image", "deploy", "write_image", nil, nil),
		one("write_image null", "deploy", "write_image", nil, object{"image_info": nil}),
		one("write_image of text", "deploy", "write_image", nil, object{"image_info": "text"}),
		one("write_image empty", "deploy", "write_image", nil, object{"image_info": object{}}),
		one("write_image more", "deploy", "write_image", nil, object{"image_info": object{}, "more": 1}),
		one("execute_bootc_install without arguments", "deploy", "execute_bootc_install", nil, nil),
		execute("no name", "clean", with(common, object{"step": object{"interface": "deploy"}})),
		execute("no name deploy", "deploy", with(common, object{"step": object{"interface": "deploy"}})),
		execute("null", "clean", object{"node": nodeWith(nil), "ports": ports(), "step": nil}),
		execute("text", "clean", with(common, object{"step": "erase_pstore"})),
		execute("arguments null", "clean", with(common, object{"step": object{"step": "erase_pstore", "args": nil}})),
		execute("arguments of text", "clean", with(common, object{"step": object{
			"step": "erase_pstore",
			"args": "text",
		}})),
		execute("no interface", "clean", with(common, object{"step": object{"step": "erase_pstore"}})),
		execute("other interface", "clean", with(common, object{"step": with(pstore, object{"interface": "raid"})})),
		execute("more keys", "clean", with(common, object{"step": with(pstore,
			object{"more": []any{1}, "abortable": true})})),
		execute("no step", "clean", common),
		execute("no node", "clean", object{"step": pstore, "ports": ports()}),
		execute("no ports", "clean", object{"step": pstore, "node": nodeWith(nil)}),
		execute("versions", "clean", with(common, object{
			"step":          pstore,
			"clean_version": object{"generic_hardware_manager": "0.1"},
		})),
		execute("versions empty", "clean", with(common, object{"step": pstore, "clean_version": object{}})),
		execute("versions null", "clean", object{
			"step": pstore, "clean_version": nil, "node": nodeWith(nil),
			"ports": ports(),
		}),
		execute("versions deploy", "deploy", with(common, object{
			"step": pstore, "deploy_version": object{"generic_hardware_manager": "0.1"},
		})),
		execute("versions service", "service", with(common, object{
			"step": pstore, "service_version": object{"generic_hardware_manager": "0.1"},
		})),
		execute("more parameters", "clean", with(common, object{"step": pstore, "more": 1})),
	}
}
