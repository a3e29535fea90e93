// Command erase erases all data of a disk by the best technique that it supports, and prints the report. With
// -metadata, it erases the partition tables and signatures, and not the data.
//
//	erase [-metadata] /dev/sda
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/sysfs"
)

func main() {
	onlyMetadata := flag.Bool("metadata", false, "erase the partition tables and signatures, and not the data")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("want a disk")
	}
	ctx, path := context.Background(), flag.Arg(0)
	var err error
	if *onlyMetadata {
		err = erase.Metadata(ctx, sysfs.Root{}, path, erase.Wait{})
	} else {
		err = eraseData(ctx, path)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func eraseData(ctx context.Context, path string) error {
	disk, err := block.Find(sysfs.Root{}, path)
	if err != nil {
		return err
	}
	o := erase.Options{NVMe: true, NVMeSanitize: true, ATA: true, SCSI: true, Zeroize: true}
	planned, err := erase.Decide(ctx, sysfs.Root{}, disk, o)
	if err != nil {
		return err
	}
	log.Printf("%s, %s, %s: %v", disk.Path, disk.Model, disk.Serial, planned)
	o.Recorder = &erase.Recorder{}
	if err := erase.Run(ctx, sysfs.Root{}, disk, o); err != nil {
		return err
	}
	fmt.Println(o.Recorder.Report())
	return nil
}
