// Command files lists the files of an ISO 9660 or FAT file system without mounting it.
//
//	files config-drive.iso
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"

	"ironroot/storage/fat"
	"ironroot/storage/iso9660"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("want an image")
	}
	if err := list(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func list(path string) (err error) {
	image, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	files, err := open(image)
	if err != nil {
		return err
	}
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil {
			fmt.Println(entry.Type(), name)
		}
		return err
	})
}

func open(image io.ReaderAt) (fs.FS, error) {
	disc, err := iso9660.Open(image)
	if errors.Is(err, iso9660.ErrNoISO) {
		return fat.Open(image)
	}
	return disc, err
}
