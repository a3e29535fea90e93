package facts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/inspection"
	"ironroot/lab/qemu"
)

// server returns a machine with two sockets, two NUMA nodes, a BMC and a disk on every bus.
func server(t *testing.T) qemu.Config {
	dir := t.TempDir()
	disk := func(d qemu.Disk) qemu.Disk {
		d.File = filepath.Join(dir, d.Serial+string(d.Bus))
		if d.Size == 0 {
			d.Size = 16 << 20
		}
		return d
	}
	file := func(name string, size int64) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		return path
	}
	drive := func(id, path string) []string {
		return []string{"-drive", "if=none,format=raw,id=" + id + ",file=" + path}
	}
	c := qemu.Config{
		Memory: 2048 << 20, CPUs: 4,
		Disks: []qemu.Disk{
			disk(qemu.Disk{Bus: qemu.Virtio, Serial: "VIRTIO-1", Size: 5 << 30}),
			disk(qemu.Disk{Bus: qemu.SATA, Serial: "SATA-1", WWN: 0x5000c50012345678}),
			disk(qemu.Disk{Bus: qemu.SATA}),
			disk(qemu.Disk{Bus: qemu.SCSI, Serial: "SCSI-1", WWN: 0x5000c500aabbccdd}),
			disk(qemu.Disk{Bus: qemu.SCSI, Sector: 4096}),
			disk(qemu.Disk{Bus: qemu.NVMe, Serial: "NVME-1"}),
			disk(qemu.Disk{Bus: qemu.USB, Serial: "USB-1"}),
		},
		CDROM: file("cd", 1<<20),
		NICs: []qemu.NIC{
			{MAC: "52:54:00:fa:c7:01"},
			{MAC: "52:54:00:fa:c7:02", Model: "e1000e"},
			{MAC: "fa:16:3e:00:00:03", Model: "e1000e"},
		},
		SMBIOS: []string{
			"type=0,vendor=Firma,version=1.2.3,date=02/03/2024,release=4.5",
			"type=1,manufacturer=Maker,product=Model " +
				"9,version=v1,serial=SERIAL-1,uuid=4c4c4544-0051-3010-8052-b4c04f4d3132,sku=SKU-7,family=Fam",
			"type=2,manufacturer=Maker,product=Board,version=b1,serial=BOARD-1",
			"type=3,manufacturer=Maker,serial=CHASSIS-1",
			"type=4,manufacturer=CPUMaker,version=Processor 3000,sock_pfx=CPU,max-speed=3000,current-speed=2400",
			"type=17,manufacturer=MemMaker,serial=MEM-1,part=PART-1,loc_pfx=DIMM,bank=Bank,speed=3200",
		},
		Extra: []string{
			"-smp", "4,sockets=2,cores=2,threads=1",
			"-object", "memory-backend-ram,id=ram0,size=1280M", "-object", "memory-backend-ram,id=ram1,size=768M",
			"-numa", "node,nodeid=0,memdev=ram0,cpus=0-1", "-numa", "node,nodeid=1,memdev=ram1,cpus=2-3",
			"-device", "ipmi-bmc-sim,id=bmc", "-device", "isa-ipmi-kcs,bmc=bmc",
			"-device", "pxb-pcie,id=pxb,bus_nr=128,numa_node=1", "-device", "pcie-root-port,id=root1,bus=pxb,chassis=1",
			"-netdev", "user,id=far", "-device", "e1000e,bus=root1,netdev=far,mac=52:54:00:fa:c7:04,romfile=",
			"-device", "isa-fdc,id=fdc", "-device", "megasas,id=mega,bus=pcie.0",
			"-device", "mptsas1068,id=mpt,bus=pcie.0",
			"-device", "floppy,bus=fdc.0,drive=floppy",
			"-device", "scsi-hd,bus=mega.0,drive=mega,serial=MEGA-1,wwn=0x5000c50011110001",
			"-device", "scsi-hd,bus=mpt.0,drive=mpt,serial=MPT-1,wwn=0x5000c50011110002",
			"-device", "ide-hd,bus=ide.3,drive=ssd,serial=SSD-1,model=Firma SSD with a model of 40 " +
				"character,rotation_rate=1",
			"-chardev", "null,id=null", "-device", "usb-serial,chardev=null,always-plugged=on", "-device", "usb-tablet",
			"-device", "usb-ccid",
		},
	}
	c.Extra = append(c.Extra, drive("floppy", file("floppy", 1440<<10))...)
	for _, id := range []string{"mega", "mpt", "ssd"} {
		c.Extra = append(c.Extra, drive(id, file(id, 24<<20))...)
	}
	return c
}

// The inspection data of a server match Debian's tools, key by key.
//
// TestServerARM checks the processors of aarch64.
//
// Parity: G1, G2, G3, G4, G5, G6, G7, G8, G9, F12, H7, H8
func TestServer(t *testing.T) {
	f := examine(t, server(t), 10, "facts-network=1 facts-change=52:54:00:fa:c7:02 BOOTIF=01-52-54-00-FA-c7-01 "+
		"facts-collectors="+strings.Join(compared(), ","))
	checkServer(t, f)
}

// compared returns the compared collectors: all except lldp, because the guest does not receive LLDP frames.
func compared() []string { return inspection.CollectorNames("lldp") }

// checkCollectors checks that each collector has returned all its keys. The machine has every device.
func checkCollectors(t *testing.T, f found) {
	var data map[string]json.RawMessage
	f.decode(t, "ours.json", &data)
	for _, c := range inspection.Collectors() {
		for _, key := range c.Keys {
			if _, posted := data[key]; !posted && slices.Contains(compared(), c.Name) {
				t.Errorf("collector %s: got no key %s", c.Name, key)
			}
		}
	}
}

func checkServer(t *testing.T, f found) {
	for name, check := range map[string]func(*testing.T, found){
		"interfaces": checkInterfaces, "MACs": checkMACs, "cpu": checkCPU, "cpu keys": checkCPUKeys,
		"vendor": checkVendor, "dmi": checkDMI, "pci": checkPCI, "usb": checkUSB, "numa": checkNUMA,
		"paths": checkPaths, "extra": checkExtra, "ironic-python-agent": checkIPA, "collectors": checkCollectors,
		"disks":  func(t *testing.T, f found) { checkDisks(t, f, []string{"fd0", "sr0", "zram0", "loop0"}) },
		"memory": func(t *testing.T, f found) { checkMemory(t, f, 2048) },
		"boot":   func(t *testing.T, f found) { checkBoot(t, f, "bios", "01-52-54-00-FA-c7-01") },
		"BMC":    checkSilentBMC,
	} {
		t.Run(name, func(t *testing.T) { check(t, f) })
	}
}
