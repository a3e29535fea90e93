//go:build linux

package conformance

// withEphemeral makes the partitions of a former deployment, with planted data in the ephemeral one. The scenario
// before has created the same ones, so that the kernel knows them.
func withEphemeral(path string) error {
	const script = "label: gpt\nstart=2048, size=1126400, type=uefi, name=primary\n" +
		"size=65536, type=linux, name=primary\nsize=131072, type=linux, name=primary\n"
	return sequence(blank, sfdisk(script), func(path string) error { return plant(path, 1128448*512, 32*mib) })(path)
}

// partitionTable are images of a file system, which the agent writes to a partition that it creates.
func partitionTable() []imageRow {
	var rows []imageRow
	layout := object{
		"image_type": "partition", "root_mb": 64, "swap_mb": 0, "ephemeral_mb": 0, "ephemeral_format": nil,
		"preserve_ephemeral": false,
	}
	row := func(name string, replaced object) imageRow {
		return imageRow{
			name: "partition/" + name, file: "root.ext4", format: "raw", stream: true,
			info: joined(layout, replaced), uuids: true,
		}
	}
	add := func(name string, replaced object) { rows = append(rows, row(name, replaced)) }
	mode := func(name, capabilities string, instance object) {
		r := row(name, object{"swap_mb": 2})
		r.node = object{"properties": object{"capabilities": capabilities}, "instance_info": instance}
		rows = append(rows, r)
	}
	add("root only", nil)
	add("swap", object{"swap_mb": 8})
	add("ephemeral", object{"ephemeral_mb": 32, "ephemeral_format": "ext4"})
	kept := row("ephemeral kept",
		object{"ephemeral_mb": 32, "ephemeral_format": "ext4", "preserve_ephemeral": true})
	kept.before, kept.prepared = withEphemeral, "the partitions of the scenario before"
	rows = append(rows, kept)
	add("ephemeral kept without one", object{
		"ephemeral_mb": 32, "ephemeral_format": "ext4", "preserve_ephemeral": true,
	})
	add("ephemeral without a format", object{"ephemeral_mb": 32})
	add("ephemeral of vfat", object{"ephemeral_mb": 40, "ephemeral_format": "vfat"})
	add("ephemeral of an unknown format", object{"ephemeral_mb": 32, "ephemeral_format": "floppyfs"})
	drive := row("swap, ephemeral and config drive",
		object{"swap_mb": 8, "ephemeral_mb": 32, "ephemeral_format": "ext4"})
	drive.drive = "{configdrive config-2.iso}"
	rows = append(rows, drive)
	noDrive := row("config drive", nil)
	noDrive.drive = "{configdrive config-2.iso}"
	rows = append(rows, noDrive)
	mode("bios", "boot_mode:bios", nil)
	mode("bios, gpt", "boot_mode:bios,disk_label:gpt", nil)
	mode("bios, gpt of the instance", "boot_mode:bios,disk_label:msdos",
		object{"capabilities": object{"disk_label": "gpt"}})
	mode("uefi, msdos", "boot_mode:uefi,disk_label:msdos", nil)
	mode("bios of the instance", "boot_mode:uefi", object{"deploy_boot_mode": "bios"})
	mode("secure boot", "boot_mode:bios,secure_boot:true", nil)
	mode("no mode", "", nil)
	for _, file := range []struct{ name, format string }{{"root.ext4", "raw"}, {"root.qcow2", "qcow2"}} {
		r := row(file.format+" from a file", nil)
		r.file, r.format, r.stream = file.name, file.format, false
		rows = append(rows, r)
		r = row(file.format+" from a file, larger than root_mb", object{"root_mb": 1})
		r.file, r.format, r.stream = file.name, file.format, false
		rows = append(rows, r)
	}
	add("larger than root_mb", object{"root_mb": 1})
	add("larger than the disk", object{"root_mb": 6000})
	for _, key := range []string{"root_mb", "swap_mb", "ephemeral_mb", "ephemeral_format", "preserve_ephemeral"} {
		add(key+" missing", object{key: gone{}})
	}
	for _, value := range []any{"64", "large", 0, -1, 64.5, nil} {
		add("root_mb "+encode(value), object{"root_mb": value})
	}
	add("swap_mb null", object{"swap_mb": nil})
	add("swap_mb text", object{"swap_mb": "8"})
	add("another image_type", object{"image_type": "whole-disk-image"})
	add("image_type in capitals", object{"image_type": "PARTITION"})
	native := row("sectors of 4096 bytes", object{"swap_mb": 8})
	native.disk = "NATIVE"
	rows = append(rows, native)
	junk := row("no file system", nil)
	junk.file = "junk.raw"
	rows = append(rows, junk)
	return rows
}
