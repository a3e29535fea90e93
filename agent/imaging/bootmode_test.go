package imaging

import (
	"testing"

	"ironroot/storage/partition"
)

// The boot mode of the instance and the table of its disk follow from the node and the ramdisk.
//
// Parity: L4
func TestBootMode(t *testing.T) {
	const gpt, msdos = partition.GPT, partition.MBR
	for _, tt := range []struct {
		name    string
		node    string // without its uuid
		ramdisk bool   // booted by UEFI
		uefi    bool
		scheme  string
	}{
		{"nothing said, ramdisk by BIOS", ``, false, false, msdos},
		{"nothing said, ramdisk by UEFI", ``, true, true, gpt},
		{"instance_info", `"instance_info": {"deploy_boot_mode": "bios"}`, true, false, msdos},
		{"in capitals", `"instance_info": {"deploy_boot_mode": "UEFI"}`, false, true, gpt},
		{
			"instance_info before properties",
			`"instance_info": {"deploy_boot_mode": "bios"}, "properties": {"capabilities": "boot_mode:uefi"}`,
			true, false, msdos,
		},
		{"properties, as a list", `"properties": {"capabilities": "a:b,boot_mode:uefi"}`, false, true, gpt},
		{
			"properties, with malformed parts", `"properties": {"capabilities": "a,b:,:c,x:y:z,boot_mode:uefi"}`,
			false, true, gpt,
		},
		{"properties, as JSON text", `"properties": {"capabilities": "{\"boot_mode\": \"uefi\"}"}`, false, true, gpt},
		{"properties, as an object", `"properties": {"capabilities": {"boot_mode": "uefi"}}`, false, true, gpt},
		{"properties, as something else", `"properties": {"capabilities": "[1]"}`, false, false, msdos},
		{
			"boot_mode of instance_info's capabilities does not count",
			`"instance_info": {"capabilities": {"boot_mode": "uefi"}}`, false, false, msdos,
		},
		{
			"properties before driver_internal_info",
			`"properties": {"capabilities": "boot_mode:bios"}, "driver_internal_info": {"deploy_boot_mode": "uefi"}`,
			true, false, msdos,
		},
		{"driver_internal_info", `"driver_internal_info": {"deploy_boot_mode": "uefi"}`, false, true, gpt},
		{"invalid", `"instance_info": {"deploy_boot_mode": "csm"}`, true, true, gpt},
		{
			"null says nothing sensible, and nobody else is asked",
			`"instance_info": {"deploy_boot_mode": null}, "properties": {"capabilities": "boot_mode:uefi"}`,
			false, false, msdos,
		},
		{
			"secure boot", `"instance_info": {"deploy_boot_mode": "bios", "capabilities": {"secure_boot": "True"}}`,
			false, true, gpt,
		},
		{"secure boot as a boolean", `"instance_info": {"capabilities": {"secure_boot": true}}`, false, true, gpt},
		{
			"secure boot in properties",
			`"properties": {"capabilities": "secure_boot:true,boot_mode:bios"}`, false, true, gpt,
		},
		{
			"secure boot switched off for the instance",
			`"instance_info": {"capabilities": {"secure_boot": "false"}}, ` +
				`"properties": {"capabilities": "secure_boot:true"}`, false, false, msdos,
		},
		{"label", `"instance_info": {"capabilities": {"disk_label": "gpt"}}`, false, false, gpt},
		{"label in properties", `"properties": {"capabilities": "disk_label:gpt"}`, false, false, gpt},
		{
			"label of the instance first",
			`"instance_info": {"capabilities": "disk_label:msdos"}, "properties": {"capabilities": "disk_label:gpt"}`,
			false, false, msdos,
		},
		{"label that is none", `"properties": {"capabilities": "disk_label:loop"}`, false, false, msdos},
		{
			"no label but gpt with UEFI",
			`"properties": {"capabilities": "disk_label:msdos,boot_mode:uefi"}`, false, true, gpt,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := `{"uuid": "b77a8c26"`
			if tt.node != "" {
				text += ", " + tt.node
			}
			n := testNode(t, text+"}")
			uefi := BootsUEFI(n, tt.ramdisk)
			if uefi != tt.uefi {
				t.Errorf("UEFI: got %v, want %v", uefi, tt.uefi)
			}
			if got := TableScheme(n, uefi); got != tt.scheme {
				t.Errorf("table: got %s, want %s", got, tt.scheme)
			}
		})
	}
	if !BootsUEFI(nil, true) || BootsUEFI(nil, false) || TableScheme(nil, false) != msdos ||
		TableScheme(nil, true) != gpt {
		t.Error("without a node the ramdisk's own boot mode counts")
	}
}
