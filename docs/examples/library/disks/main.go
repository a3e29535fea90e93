// Command disks lists the disks of this machine and the arrays of software RAID. With an argument, it reads a copy of
// the directories sys, dev and proc of a machine.
//
//	disks [directory]
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"ironroot/storage/block"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

func main() {
	var machine sysfs.Root // the zero value is the running machine
	if len(os.Args) > 1 {
		machine.Path = os.Args[1]
	}
	if err := list(context.Background(), machine); err != nil {
		log.Fatal(err)
	}
}

func list(ctx context.Context, machine sysfs.Root) error {
	disks, err := block.Disks(ctx, machine)
	if err != nil {
		return err
	}
	for _, disk := range disks {
		fmt.Println(disk.Path, disk.Type, disk.Transport, disk.Size, disk.Model, disk.Serial)
	}
	arrays, err := raid.List(ctx, machine)
	if err != nil {
		return err
	}
	for _, array := range arrays {
		fmt.Println(array.Path, array.Level, array.State, "missing members:", array.Degraded)
	}
	return nil
}
