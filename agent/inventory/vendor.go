package inventory

import "os"

// systemVendor reads what the kernel decoded of SMBIOS types 0 and 1, or the model of the device tree.
func (s *Source) systemVendor() SystemVendor {
	dmi := func(name string) string { return s.text(s.o.System.Sys("class/dmi/id", name)) }
	v := SystemVendor{
		ProductName:  dmi("product_name"),
		SerialNumber: dmi("product_serial"),
		Manufacturer: dmi("sys_vendor"),
		Firmware:     Firmware{Vendor: dmi("bios_vendor"), Version: dmi("bios_version"), BuildDate: dmi("bios_date")},
	}
	if sku := dmi("product_sku"); sku != "" && v.ProductName != "" {
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

// boot tells the firmware's mode and, verbatim, the interface that the boot loader says it used.
func (s *Source) boot() Boot {
	b := Boot{CurrentBootMode: "bios", PXEInterface: orNull(s.o.Params["BOOTIF"])}
	if info, err := os.Stat(s.o.System.Sys("firmware/efi")); err == nil && info.IsDir() {
		b.CurrentBootMode = "uefi"
	}
	return b
}
