// Command guest is a ramdisk that prints the disks and NVMe controllers of the machine, and erases all data of each disk
// and then the metadata.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/uinit/boot"
)

const disks = 6

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		<-m.Settled
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		list, err := block.System{}.WaitDisks(wait, func(d []block.Device) bool { return len(d) >= disks })
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
		controllers, err := block.System{}.NVMeControllers(ctx)
		fmt.Printf("\nCONTROLLERS %d %v\n", len(controllers), err)
		for _, c := range controllers {
			found, err := erase.ReadController(ctx, c.Path)
			fmt.Printf("\nCONTROLLER %v %q %q %v %v\n", c.Namespaces, found.Attached, found.NotErased, found.Remains, err)
		}
		for _, d := range list {
			method, err := erase.Full(ctx, block.System{}, d, erase.Options{Zeroize: true, NVMe: true, ATA: true})
			fmt.Printf("\nERASED %s %s %v\n", d.Path, method, err)
			err = erase.Metadata(ctx, block.System{}, d.Path, erase.Wait{})
			fmt.Printf("\nMETADATA %s %s %v\n", d.Path, erase.MetadataMethod(ctx, d), err)
		}
		fmt.Printf("\nDONE\n")
		return nil
	})
}
