// Command firmware is an example of a hardware manager that is an executable. Its step writes a firmware image to a
// flash device, reads it back, and requests a reboot. It needs nothing but the standard library: an executable in any
// other language does the same.
//
//	CGO_ENABLED=0 go build -o firmware ./docs/examples/firmware
//	ironroot manager check firmware
//	ironroot image --file firmware:/usr/lib/ironroot/managers/firmware
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"
)

// protocol is the version of the protocol that this program speaks.
const protocol = 1

// maxImage is the size limit of an image, in bytes.
const maxImage = 64 << 20

// request is the line on standard input.
type request struct {
	Method    string `json:"method"`
	Protocols []int  `json:"protocols"`
	Step      string `json:"step"`
	Args      struct {
		URL    string `json:"url"`
		SHA256 string `json:"sha256"`
		Device string `json:"device"`
	} `json:"args"`
}

type object map[string]any

func main() {
	result, err := answer(os.Stdin)
	if err != nil {
		send(object{"type": "error", "message": err.Error()})
		return
	}
	send(object{"type": "result", "result": result})
}

// send prints a message.
func send(m object) {
	if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
		os.Exit(1)
	}
}

// answer reads the request and returns its result.
func answer(in io.Reader) (any, error) {
	line, err := bufio.NewReader(in).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, fmt.Errorf("parse request: %w", err)
	}
	switch {
	case r.Method == "describe" && slices.Contains(r.Protocols, protocol):
		return describe(), nil
	case r.Method == "describe":
		return nil, fmt.Errorf("protocols %v: want one of [%d]", r.Protocols, protocol)
	case r.Method == "evaluate":
		return object{"level": 2}, nil // 0 if this is not a machine with such a flash device
	case r.Method == "run" && r.Step == "update_firmware":
		return update(r.Args.URL, r.Args.SHA256, r.Args.Device)
	}
	return nil, fmt.Errorf("method %q, step %q: not known", r.Method, r.Step)
}

func describe() any {
	argument := func(text string) object { return object{"description": text, "required": true} }
	return object{
		"protocol": protocol, "name": "example_firmware", "version": "1.0",
		"steps": []object{{
			"kind": "clean", "step": "update_firmware", "priority": 0, "interface": "deploy",
			"reboot_requested": true,
			"abortable":        false, // the agent never ends the program while it writes
			"argsinfo": object{
				"url":    argument("URL of the image."),
				"sha256": argument("SHA-256 of the image, in hexadecimal."),
				"device": argument("Path of the flash device, for example /dev/mtdblock0."),
			},
		}},
	}
}

// update writes the image to the device and reads it back.
func update(url, sum, device string) (any, error) {
	image, err := fetch(url)
	if err != nil {
		return nil, fmt.Errorf("fetch image: %w", err)
	}
	if got := sha256.Sum256(image); hex.EncodeToString(got[:]) != sum {
		return nil, fmt.Errorf("image: got SHA-256 %x, want %s", got, sum)
	}
	flash, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer flash.Close() //nolint:errcheck // Sync reports errors of writing
	const block = 64 << 10
	for done := 0; done < len(image); done += block {
		send(object{"type": "progress", "message": "writing", "percent": 100 * done / len(image)})
		if _, err := flash.Write(image[done:min(len(image), done+block)]); err != nil {
			return nil, err
		}
	}
	if err := flash.Sync(); err != nil {
		return nil, err
	}
	dropCache(flash)
	read := make([]byte, len(image))
	if _, err := flash.ReadAt(read, 0); err != nil {
		return nil, err
	}
	if !bytes.Equal(read, image) {
		return nil, fmt.Errorf("%s: content differs after writing", device)
	}
	return object{"bytes": len(image), "sha256": sum}, nil
}

// dropCache makes the next read of a block device read the device, not the memory of the kernel. Other devices have no
// cache and reject the request (BLKFLSBUF of linux/fs.h).
func dropCache(device *os.File) {
	const flushBuffers = 0x1261
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, device.Fd(), flushBuffers, 0)
}

// fetch downloads the image.
func fetch(url string) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Minute}
	response, err := client.Get(url) //nolint:noctx // the client has a time limit
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	image, err := io.ReadAll(io.LimitReader(response.Body, maxImage+1))
	if err == nil && len(image) > maxImage {
		err = fmt.Errorf("larger than %d bytes", maxImage)
	}
	return image, err
}
