package inventory

import (
	"os"

	"ironroot/agent/inventory/smbios"
	"ironroot/storage/sysfs"
)

// systemVendor returns the kernel's data of SMBIOS types 0 and 1, or the model of the device tree.
func (s *Source) systemVendor() SystemVendor {
	dmi := sysfs.Each([]string{
		"product_name", "product_serial", "sys_vendor", "bios_vendor", "bios_version", "bios_date", "product_sku",
	}, s.DMI)
	v := SystemVendor{
		ProductName: dmi[0], SerialNumber: dmi[1], Manufacturer: dmi[2],
		Firmware: Firmware{Vendor: dmi[3], Version: dmi[4], BuildDate: dmi[5]},
	}
	if sku := dmi[6]; sku != "" && v.ProductName != "" {
		v.ProductName += " (" + sku + ")"
	}
	if v.ProductName == "" {
		v.ProductName = s.text(s.o.System.Proc("device-tree/model"))
	}
	if v.SerialNumber == "" {
		v.SerialNumber = s.text(s.o.System.Proc("device-tree/serial-number"))
	}
	return v
}

// DMI returns a string of the firmware by the kernel's name for it, "product_serial" for example, without characters
// that it must not have; "" if there is none.
func (s *Source) DMI(name string) string {
	return smbios.Clean(s.text(s.o.System.Sys("class/dmi/id", name)))
}

// boot returns the firmware's mode and the unmodified BOOTIF parameter of the boot loader.
func (s *Source) boot() Boot {
	b := Boot{CurrentBootMode: "bios"}
	if s.o.Config != nil {
		b.PXEInterface = orNull(s.o.Config.Get().Params["BOOTIF"])
	}
	if info, err := os.Stat(s.o.System.Sys("firmware/efi")); err == nil && info.IsDir() {
		b.CurrentBootMode = "uefi"
	}
	return b
}
