// Command nvme identifies an NVMe controller and lists its namespaces. It changes nothing.
//
//	nvme /dev/nvme0
package main

import (
	"errors"
	"fmt"
	"log"
	"os"

	"ironroot/storage/nvme"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("want an NVMe controller")
	}
	if err := show(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func show(path string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	controller := nvme.New(nvme.Device{File: file})
	id, err := controller.Identify()
	if err != nil {
		return err
	}
	fmt.Println(id.Model, id.Serial, "firmware", id.Firmware, "NVMe", id.Version)
	for _, method := range []nvme.SanitizeMethod{nvme.SanitizeBlock, nvme.SanitizeCrypto, nvme.SanitizeOverwrite} {
		fmt.Printf("sanitize by %v: %t\n", method, id.SanitizeCapabilities.Supports(method))
	}
	numbers, err := controller.ActiveNamespaces(id)
	if err != nil {
		return err
	}
	for _, number := range numbers {
		namespace, err := controller.Namespace(number)
		if err != nil {
			return err
		}
		fmt.Println("namespace", number, namespace.Size, "blocks of", namespace.BlockBytes, "bytes")
	}
	return nil
}
