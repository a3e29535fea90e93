// Command erase erases the partition tables and signatures of a disk, and not its data.
//
//	erase /dev/sda
package main

import (
	"context"
	"log"
	"os"

	"ironroot/storage/erase"
	"ironroot/storage/sysfs"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("want a disk")
	}
	if err := erase.Metadata(context.Background(), sysfs.Root{}, os.Args[1], erase.Wait{}); err != nil {
		log.Fatal(err)
	}
}
