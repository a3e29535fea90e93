package inspection

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"ironroot/agent/inventory/smbios"
)

// dmi describes the SMBIOS tables under dmidecode's names. Values are strings and lists of strings.
type dmi struct {
	BIOS   map[string]any   `json:"bios"`
	CPU    []map[string]any `json:"cpu"`
	Memory map[string]any   `json:"memory"`
}

// collectDMI adds BIOS, processors and memory as dmidecode prints them.
func collectDMI(_ context.Context, i *inspection) error {
	table, err := i.Inventory.SMBIOS()
	if table == nil {
		return fmt.Errorf("read SMBIOS tables: %w", err)
	}
	described, err := describeDMI(table)
	if err != nil {
		return err
	}
	i.set("dmi", described)
	return nil
}

func describeDMI(table *smbios.Table) (dmi, error) {
	d := dmi{BIOS: map[string]any{}, CPU: []map[string]any{}, Memory: map[string]any{}}
	for _, s := range table.All(smbios.TypeBIOS) {
		d.BIOS = properties(table, s)
	}
	for _, s := range table.All(smbios.TypeProcessor) {
		d.CPU = append(d.CPU, properties(table, s))
	}
	// Several arrays are reported as the first one, with the total number of slots.
	const count = "Number Of Devices"
	slots := 0
	for n, s := range table.All(smbios.TypeMemoryArray) {
		array := properties(table, s)
		text, _ := array[count].(string)
		number, err := strconv.Atoi(text)
		if err != nil {
			return d, fmt.Errorf("SMBIOS memory array 0x%04x: number of devices missing", s.Handle)
		}
		slots += number
		if n == 0 {
			d.Memory = array
			delete(d.Memory, "Handle")
		}
		d.Memory[count] = slots
	}
	devices := []map[string]any{}
	for _, s := range table.All(smbios.TypeMemoryDevice) {
		devices = append(devices, properties(table, s))
	}
	d.Memory["devices"] = devices
	return d, nil
}

// properties returns the keys and values of a structure's description. An empty value is an empty list, because parsers
// of dmidecode's output interpret it as one.
func properties(table *smbios.Table, s smbios.Structure) map[string]any {
	p := map[string]any{"Handle": smbios.Title(s)}
	for _, f := range table.Describe(s) {
		switch text := strings.TrimSpace(f.Value); {
		case f.List != nil:
			p[f.Key] = f.List
		case text == "":
			p[f.Key] = []string{}
		default:
			p[f.Key] = text
		}
	}
	return p
}
