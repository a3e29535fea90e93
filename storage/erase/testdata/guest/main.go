// Command guest is a ramdisk that prints the disks and NVMe controllers of the machine, erases all data of each disk
// and then the metadata, and prints which partitions of several tables Linux shows and hides.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
	"ironroot/uinit/boot"
)

const disks = 7

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		<-m.Settled
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		list, err := block.WaitDisks(wait, sysfs.Root{}, func(d []block.Device) bool { return len(d) >= disks })
		if err != nil {
			return err
		}
		for _, d := range list {
			data, err := json.Marshal(d)
			if err != nil {
				return err
			}
			fmt.Printf("\nDISK %s\n", data)
		}
		controllers, err := block.NVMeControllers(ctx, sysfs.Root{})
		fmt.Printf("\nCONTROLLERS %d %v\n", len(controllers), err)
		for _, c := range controllers {
			var shown []uint32
			for _, namespace := range c.Namespaces {
				shown = append(shown, namespace.ID)
			}
			found, err := erase.ReadController(ctx, c.Path, nil)
			fmt.Printf("\nCONTROLLER %v %q %q %v %v\n",
				c.Namespaces, found.NoDevice, found.NotErased, found.Remains, err)
			found, err = erase.ReadController(ctx, c.Path, shown)
			fmt.Printf("\nNAMESPACES %v %q %v %v\n", c.Namespaces, found.NoDevice, c.Address != "", err)
		}
		for _, d := range list {
			record := &erase.Recorder{}
			err := erase.Run(ctx, sysfs.Root{}, d,
				erase.Options{Zeroize: true, NVMe: true, ATA: true, SCSI: true, Recorder: record})
			fmt.Printf("\nERASED %s %s %v\n", d.Path, record.Report(), err)
			record = &erase.Recorder{}
			err = errors.Join(
				erase.Metadata(ctx, sysfs.Root{}, d.Path, erase.Wait{}), erase.RecordMetadata(ctx, d, record))
			fmt.Printf("\nMETADATA %s %s %v\n", d.Path, record.Report(), err)
			if err := showTables(ctx, d); err != nil {
				return err
			}
		}
		fmt.Printf("\nDONE\n")
		return nil
	})
}

// showTables writes tables to a disk and prints the numbers of the partitions that Linux shows, and of the hidden
// ones.
func showTables(ctx context.Context, d block.Device) error {
	layout, err := partition.Plan(partition.Needs{UEFI: true, ESP: 1 << 20, Root: 1 << 20})
	if err != nil {
		return err
	}
	if _, err := partition.Create(ctx, d.Path, layout); err != nil {
		return err
	}
	odd := table(
		entry{kind: 0, first: 64, size: 64},
		entry{kind: 0x83, first: 1 << 30, size: 8},    // starts behind the disk
		entry{kind: 0x05, first: 256, size: 256},      // extended
		entry{kind: 0x83, first: 1024, size: 1 << 20}, // ends behind the disk
	)
	copy(odd[54:], "FAT16   ")
	status := bytes.Clone(odd)
	status[446] = 1
	sector := int64(d.LogicalSector)
	for _, change := range []struct {
		name string
		at   int64
		data []byte
	}{
		{"GPT", 440, []byte{1}},
		{"backup", sector, make([]byte, 512)},
		{"empty", 0, make([]byte, 512)},
		{"logical", 256 * sector, table(entry{kind: 0x83, first: 8, size: 64})},
		{"odd", 0, odd},
		{"status", 0, status},
		{"end", 0, make([]byte, 512)},
	} {
		if err := write(d.Path, change.at, change.data); err != nil {
			return err
		}
		if err := block.Rescan(ctx, d.Path); err != nil {
			return err
		}
		known, err := partition.Known(ctx, sysfs.Root{}, d.Path)
		if err != nil {
			return err
		}
		hidden, err := partition.Hidden(ctx, sysfs.Root{}, d.Path)
		fmt.Printf("\nTABLE %s %s shown %v, hidden %v %v\n", d.Path, change.name, numbers(known), numbers(hidden), err)
	}
	return nil
}

func numbers(partitions []partition.Partition) []int {
	var list []int
	for _, p := range partitions {
		list = append(list, p.Number)
	}
	return list
}

// entry is an entry of an MBR, in sectors.
type entry struct {
	kind        byte
	first, size uint32
}

// table returns the sector of an MBR or of an extended partition.
func table(entries ...entry) []byte {
	sector := make([]byte, 512)
	for i, e := range entries {
		raw := sector[446+16*i:]
		raw[4] = e.kind
		binary.LittleEndian.PutUint32(raw[8:], e.first)
		binary.LittleEndian.PutUint32(raw[12:], e.size)
	}
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

func write(path string, at int64, data []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Sync(), f.Close())
}
