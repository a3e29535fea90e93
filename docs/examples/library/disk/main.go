// Command disk prints the partition table of a disk or of the image of one, and the superblocks of software RAID in its
// partitions.
//
//	disk /dev/sda
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"ironroot/storage/md"
	"ironroot/storage/partition"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("want a disk")
	}
	if err := show(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func show(path string) (err error) {
	table, err := partition.Read(context.Background(), path)
	if err != nil {
		return err
	}
	disk, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	fmt.Println(table.Scheme, table.GUID, "damaged:", table.Damaged)
	for _, p := range table.Partitions {
		fmt.Println(p.Number, p.Name, p.Type, p.Start, p.Size)
		members, err := md.Find(io.NewSectionReader(disk, p.Start, p.Size), p.Size)
		if err != nil {
			return err
		}
		for _, m := range members {
			fmt.Println("  member of", m)
		}
	}
	return nil
}
