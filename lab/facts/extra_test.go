package facts

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// checkExtra compares the collector extra-hardware, which reads the kernel, with the tools that hardware-detect would
// use.
func checkExtra(t *testing.T, f found) {
	got := map[string]string{}
	for _, fact := range f.ours(t).Data {
		got[fmt.Sprint(fact[0], " ", fact[1], " ", fact[2])] = fmt.Sprint(fact[3])
	}
	root, cpu, dmi := f.lshw(t), f.lscpu(t), f.dmidecode()
	want := map[string]string{
		"system product name": root.Product, "system product vendor": root.Vendor, "system product serial": root.Serial,
		"cpu logical number": cpu["CPU(s)"], "cpu physical number": cpu["Socket(s)"],
		"cpu physical_0 product": cpu["Model name"], "cpu physical_0 vendor": cpu["Vendor ID"],
		"cpu physical_0 cores": cpu["Core(s) per socket"], "cpu physical_0 threads_per_core": cpu["Thread(s) per core"],
		"cpu physical_0 family": cpu["CPU family"], "cpu physical_0 model": cpu["Model"],
		"cpu physical_0 stepping": cpu["Stepping"], "cpu physical_0 l1d cache": cpu["L1d cache"],
		"cpu physical_0 l2 cache": cpu["L2 cache"],
		"system kernel arch":      f.text("machine.txt"), "numa nodes count": cpu["NUMA node(s)"],
	}
	for property, key := range map[string]string{"version": "Version", "date": "Release Date", "vendor": "Vendor"} {
		want["firmware bios "+property], _ = dmi.first("0")[key].(string)
	}
	for property, key := range map[string]string{
		"name": "Product Name", "vendor": "Manufacturer", "serial": "Serial Number",
	} {
		want["system motherboard "+property], _ = dmi.first("2")[key].(string)
	}
	cards := map[string]lshw{}
	for _, n := range root.all() {
		if n.ID == "memory" && n.Class == "memory" {
			want["memory total size"] = strconv.FormatInt(n.Size, 10)
		}
		if name, ok := n.LogicalName.(string); ok && n.Class == "network" && strings.HasPrefix(n.BusInfo, "pci@") {
			cards[name] = n
		}
	}
	var links []link
	f.decode(t, "ip.json", &links)
	for _, l := range links {
		if listed(l) && l.LinkInfo.Kind == "" {
			if card, ok := cards[l.IfName]; ok {
				want["network "+l.IfName+" businfo"] = card.BusInfo
				want["network "+l.IfName+" vendor"], want["network "+l.IfName+" product"] = card.Vendor, card.Product
			}
			want["network "+l.IfName+" serial"] = l.Address
			if l.PermAddr != "" {
				want["network "+l.IfName+" serial"] = l.PermAddr
			}
		}
	}
	var rows struct{ BlockDevices []lsblkDisk }
	f.decode(t, "lsblk.json", &rows)
	for _, row := range rows.BlockDevices {
		if row.HCTL != nil && row.Type == "disk" {
			want["disk "+row.KName+" size"] = strconv.FormatInt(row.Size/1e9, 10) // GB
			// SCSI has 16 bytes (SPC-4, INQUIRY); lsblk prints the bytes of ATA's identify data.
			model := text(row.Model)
			want["disk "+row.KName+" model"] = strings.TrimSpace(model[:min(16, len(model))])
		}
	}
	if len(cards) == 0 {
		t.Error("lshw finds no network card on PCI")
	}
	for fact, value := range want {
		if value == "" || got[fact] != value {
			t.Errorf("%s: got %q, want %q", fact, got[fact], value)
		}
	}
}
