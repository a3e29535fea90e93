package inspection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// usbDevice is a USB device. Handle is "USB:bus:device", in hexadecimal.
type usbDevice struct {
	Product string `json:"product"`
	Vendor  string `json:"vendor"`
	Handle  string `json:"handle"`
}

// usbKinds are the specific classes of devices and interfaces (USB-IF, Defined Class Codes): audio, communication,
// input, printer, storage, hub, video and wireless. Only devices without them are reported, which lshw calls generic.
var usbKinds = []string{"01", "02", "03", "07", "08", "09", "0e", "e0"}

// collectUSBDevices adds the USB devices without a specific class, such as dongles.
func collectUSBDevices(_ context.Context, i *inspection) error {
	entries, err := os.ReadDir(i.System.Sys("bus/usb/devices"))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // there are machines without the bus
		return fmt.Errorf("list USB devices: %w", err)
	}
	devices := []usbDevice{}
	for _, entry := range entries {
		if d, ok := i.genericUSB(entry.Name()); ok {
			devices = append(devices, d)
		}
	}
	i.set("usb_devices", devices)
	return nil
}

func (i *inspection) genericUSB(name string) (usbDevice, bool) {
	dir := i.System.Sys("bus/usb/devices", name)
	fact := func(file string) string {
		data, err := i.Inventory.Read(filepath.Join(dir, file))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	classes := []string{fact("bDeviceClass")}
	if classes[0] == "" {
		return usbDevice{}, false // an interface of a device, or unplugged
	}
	interfaces, err := os.ReadDir(dir)
	if err != nil {
		return usbDevice{}, false
	}
	for _, entry := range interfaces {
		if strings.HasPrefix(entry.Name(), name+":") {
			classes = append(classes, fact(filepath.Join(entry.Name(), "bInterfaceClass")))
		}
	}
	for _, class := range classes {
		if slices.Contains(usbKinds, class) {
			return usbDevice{}, false
		}
	}
	return usbDevice{
		Product: fact("product"), Vendor: fact("manufacturer"),
		Handle: fmt.Sprintf("USB:%s:%s", hexadecimal(fact("busnum")), hexadecimal(fact("devnum"))),
	}, true
}

// hexadecimal converts a decimal number. Other text is returned unchanged.
func hexadecimal(text string) string {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return text
	}
	return strconv.FormatUint(n, 16)
}
