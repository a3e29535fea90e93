package qemu

import (
	"fmt"
	"slices"
	"strconv"
)

// sectorSize is the unit in which blkdebug and blklogwrites count offsets.
const sectorSize = 512

// flushEvent is blkdebug's event at the start of a flush.
const flushEvent = "flush_to_os"

// diskArguments returns the back end and the device of every disk. The id of disk i is disk<i>; the id of its own
// controller, if it has one, is bus<i>. The CD-ROM is cdrom. Additional paths to disk i are disk<i>path1 and so on.
func diskArguments(c Config) ([]string, error) {
	var args []string
	var scsi, usb bool
	sata := 0
	for i, d := range c.Disks {
		backend, top, err := backendArguments(i, d)
		if err != nil {
			return nil, err
		}
		args = append(args, backend...)
		switch d.Bus {
		case SCSI:
			if !scsi {
				args = append(args, "-device", "virtio-scsi-pci,id=scsi")
			}
			scsi = true
		case USB:
			if !usb {
				args = append(args, "-device", "qemu-xhci,id=xhci")
			}
			usb = true
		}
		for path := range max(1, d.Paths) {
			if path > 0 {
				args = append(args, "-device", "virtio-scsi-pci,id="+scsiBus(i, path))
			}
			device, err := deviceArgument(i, path, d, top, sata)
			if err != nil {
				return nil, err
			}
			args = append(args, "-device", device)
		}
		if d.Bus == SATA {
			sata++
		}
	}
	if c.CDROM != "" {
		args = append(args, "-blockdev", fileNode("cdimage", c.CDROM, true))
		device := fmt.Sprintf("ide-cd,bus=ide.%d", sata)
		if c.Arch == "arm64" { // the board has no IDE
			args = append(args, "-device", "virtio-scsi-pci,id=cdbus")
			device = "scsi-cd,bus=cdbus.0"
		}
		args = append(args, "-device", cdDevice(device, c.CDBoot))
	}
	return args, nil
}

func fileNode(name, path string, readOnly bool) string {
	// Encoding strings and booleans cannot fail.
	text, _ := jsonArgument(map[string]any{
		"driver": "file", "node-name": name, "filename": path, "read-only": readOnly,
	})
	return text
}

func cdDevice(device string, boot int) string {
	device += ",id=cdrom,drive=cdimage"
	if boot != 0 {
		device += ",bootindex=" + strconv.Itoa(boot)
	}
	return device
}

// backendArguments stacks the layers for file, format, faults, log and rate limit, and returns the name of the
// topmost. Guest flushes do not reach the file: no disk of a lab must survive a failure of its host.
func backendArguments(i int, d Disk) (args []string, top string, err error) {
	n := strconv.Itoa(i)
	cache := map[string]any{"direct": d.Direct, "no-flush": true}
	top = "file" + n
	discard := "unmap"
	if d.NoDiscard {
		discard = "ignore"
	}
	layers := []map[string]any{{
		"driver": "file", "node-name": top, "filename": d.File, "read-only": d.ReadOnly, "cache": cache,
		"discard": discard, "aio": "threads",
	}}
	if d.BytesPerSecond > 0 {
		args = append(args, "-object", fmt.Sprintf("throttle-group,id=limit%s,x-bps-total=%d", n, d.BytesPerSecond))
	}
	format := d.Format
	if format == "" {
		format = "raw"
	}
	layers = append(layers, map[string]any{
		"driver": format, "node-name": "image" + n, "file": top, "read-only": d.ReadOnly, "cache": cache,
		"discard": discard,
	})
	top = "image" + n
	// The layers for faults and log see guest flushes only if the layers above pass them on.
	flushes := map[string]any{"direct": d.Direct, "no-flush": false}
	if len(d.Faults) > 0 {
		inject, states := injections(d.Faults)
		layer := map[string]any{
			"driver": "blkdebug", "node-name": "faults" + n, "image": top, "inject-error": inject, "cache": flushes,
			"discard": discard,
		}
		if len(states) > 0 { // QEMU rejects an empty list
			layer["set-state"] = states
		}
		layers = append(layers, layer)
		top = "faults" + n
	}
	if slices.ContainsFunc(d.Faults, func(f Fault) bool { return f.After > 0 }) {
		// blkdebug counts only flushes that the layer above passes down.
		layers = append(layers, map[string]any{
			"driver": "raw", "node-name": "counted" + n, "file": top, "cache": flushes, "discard": discard,
		})
		top = "counted" + n
	}
	if d.Log != "" {
		layers = append(layers,
			map[string]any{"driver": "file", "node-name": "logfile" + n, "filename": d.Log, "cache": cache},
			map[string]any{
				"driver": "blklogwrites", "node-name": "log" + n, "file": top, "log": "logfile" + n, "cache": flushes,
				"discard": discard,
			})
		top = "log" + n
	}
	if d.BytesPerSecond > 0 {
		layers = append(layers, map[string]any{
			"driver": "throttle", "node-name": "throttle" + n, "file": top, "throttle-group": "limit" + n,
			"cache":   flushes,
			"discard": discard,
		})
		top = "throttle" + n
	}
	for _, layer := range layers {
		text, err := jsonArgument(layer)
		if err != nil {
			return nil, "", err
		}
		args = append(args, "-blockdev", text)
	}
	return args, top, nil
}

// injections returns blkdebug's rules. The initial state is 1; each flush increments it.
func injections(faults []Fault) (errors, states []map[string]any) {
	for _, f := range faults {
		rule := map[string]any{
			"event": "none", "iotype": f.Type, "errno": f.Errno, "once": f.Once, "immediately": false,
		}
		if f.Errno == 0 {
			rule["errno"] = 5
		}
		if f.Offset >= 0 {
			rule["sector"] = f.Offset / sectorSize
		}
		if f.After > 0 {
			rule["event"], rule["state"] = flushEvent, f.After+1
		}
		for state := len(states) + 1; state <= f.After; state++ {
			states = append(states, map[string]any{"event": flushEvent, "state": state, "new_state": state + 1})
		}
		errors = append(errors, rule)
	}
	return errors, states
}

// scsiBus returns the id of the controller through which a path leads to disk i. All disks share the first
// controller.
func scsiBus(i, path int) string {
	if path == 0 {
		return "scsi"
	}
	return fmt.Sprintf("scsi%dpath%d", i, path)
}

func deviceArgument(i, path int, d Disk, drive string, sataPort int) (string, error) {
	id := fmt.Sprintf("disk%d", i)
	if path > 0 {
		id += fmt.Sprintf("path%d", path)
	}
	if d.Paths > 1 && d.Bus != SCSI {
		return "", fmt.Errorf("disk %s: several paths lead to SCSI disks only", d.File)
	}
	var device string
	switch d.Bus {
	case Virtio, "":
		device = "virtio-blk-pci"
	case SATA:
		device = fmt.Sprintf("ide-hd,bus=ide.%d", sataPort)
	case SCSI:
		device = fmt.Sprintf("scsi-hd,bus=%s.0,scsi-id=%d", scsiBus(i, path), i)
		if d.Paths > 1 {
			device += ",share-rw=on"
		}
	case USB:
		device = "usb-storage,bus=xhci.0,removable=on"
	case NVMe:
		device = "nvme"
		if d.Serial == "" {
			d.Serial = "NVME" + strconv.Itoa(i) // the controller requires a serial number
		}
	default:
		return "", fmt.Errorf("disk %s: bus %q is unknown", d.File, d.Bus)
	}
	device += ",id=" + id + ",drive=" + drive
	if d.Serial != "" {
		device += ",serial=" + escape(d.Serial)
	}
	if d.Sector != 0 {
		device += fmt.Sprintf(",logical_block_size=%d,physical_block_size=%d", d.Sector, d.Sector)
	}
	if d.WWN != 0 {
		device += fmt.Sprintf(",wwn=0x%x", d.WWN)
	}
	if d.Boot != 0 {
		device += ",bootindex=" + strconv.Itoa(d.Boot)
	}
	if len(d.Faults) > 0 && d.Bus != NVMe {
		device += ",rerror=report,werror=report"
	}
	if len(d.Faults) > 0 && (d.Bus == Virtio || d.Bus == "") {
		device += ",request-merging=off" // otherwise a request can fail because of a fault in an adjacent one
	}
	return device, nil
}
