// Command image builds a unified kernel image, and an ISO image that boots it.
//
//	image vmlinuz initrd linuxx64.efi.stub
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"ironroot/iso"
	"ironroot/uki"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("want a kernel, an initramfs and a stub of systemd")
	}
	if err := build(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func build(ctx context.Context, kernel, initrd, stub string) error {
	image, err := uki.Build(ctx, uki.Options{
		Kernel: kernel, Initrds: []string{initrd}, Stub: stub, Cmdline: "console=ttyS0", Version: "1", Unsigned: true,
		Out: "linux.efi",
	})
	if err != nil {
		return err
	}
	medium, err := iso.Build(ctx, iso.Options{UKI: image.Path, Out: "linux.iso"})
	if err != nil {
		return err
	}
	fmt.Println(medium.Path, medium.Size, "PCR 11", image.PCR11["sha256"][0].Hash)
	return nil
}
