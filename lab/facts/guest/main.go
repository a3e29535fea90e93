//go:build linux

// Command guest is the /init of a machine that is described twice: first by the agent's inspection with every
// collector that reads the machine, then by Debian's tools in a chroot. It writes all results as a tar archive to the
// disk with the serial number RESULTS; Debian is on the disk with the serial number DEBIAN. The kernel parameter
// facts-disks is the number of disks, facts-network=1 adds devices and interfaces and changes a MAC address,
// and facts-collectors names the collectors to run.
package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/hardware/generic"
	"ironroot/agent/inspection"
	"ironroot/agent/inventory"
	"ironroot/netboot"
	"ironroot/storage/block"
	"ironroot/storage/hint"
	"ironroot/storage/sysfs"
	"ironroot/uinit/boot"
)

// hostname is the machine's host name.
const hostname = "node-7.example.org"

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		if err := run(ctx, m); err != nil {
			fmt.Printf("FACTS-FAILED %v\n", err)
			return err
		}
		fmt.Println("FACTS-DONE")
		return nil
	})
}

func run(ctx context.Context, m *boot.Machine) error {
	disks, err := prepare(ctx, m)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(disks["RESULTS"], os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	results := &archive{tar.NewWriter(out)}
	if err := describe(ctx, m, results); err != nil {
		return err
	}
	if err := ask(ctx, m, disks["DEBIAN"], results); err != nil {
		return err
	}
	if err := results.Close(); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	return out.Close()
}

// archive writes results as files of a tar archive.
type archive struct{ *tar.Writer }

func (a *archive) add(name string, data []byte) error {
	if err := a.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := a.Write(data)
	return err
}

// prepare waits for the machine's devices, creates devices that virtual machines do not have, and returns the disks'
// paths by serial number.
func prepare(ctx context.Context, m *boot.Machine) (map[string]string, error) {
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return nil, fmt.Errorf("host name: %w", err)
	}
	<-m.Settled
	want, err := strconv.Atoi(m.Params["facts-disks"])
	if err != nil {
		return nil, fmt.Errorf("facts-disks: %w", err)
	}
	wait, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	devices, err := block.WaitDisks(wait, sysfs.Root{}, func(list []block.Device) bool { return len(list) >= want })
	if err != nil {
		return nil, fmt.Errorf("got %d disks, want %d: %w", len(devices), want, err)
	}
	paths := map[string]string{}
	for _, d := range devices {
		paths[d.Serial] = d.Path
	}
	if m.Params["facts-network"] != "1" {
		return paths, nil
	}
	if err := makeDevices(ctx, m); err != nil {
		return nil, err
	}
	parent, err := changeMAC(m)
	if err != nil {
		return nil, err
	}
	network, err := netboot.Start(ctx, netboot.Config{Log: m.Log})
	if err != nil {
		return nil, err
	}
	if err := network.WaitAddress(wait); err != nil {
		return nil, err
	}
	if err := makeInterfaces(ctx, m, parent); err != nil {
		return nil, err
	}
	return paths, steady(wait)
}

// describe runs the agent's inspection. It writes the data to ours.json and the duration in seconds to took.json.
func describe(ctx context.Context, m *boot.Machine, results *archive) error {
	settings, err := config.Load(config.Sources{Params: m.Params})
	if err != nil {
		return err
	}
	settings.InspectionCollectors = m.Params["facts-collectors"]
	settings.DiskWaitAttempts = 0 // prepare has already waited
	live := config.NewLive(settings)
	managers, err := hardware.Load(ctx,
		[]hardware.Manager{generic.New(generic.Options{Config: live, Log: m.Log})}, m.Log)
	if err != nil {
		return err
	}
	source := inventory.New(inventory.Options{
		Disks: managers, Config: live, Log: m.Log,
	})
	var data posted
	start := time.Now()
	_, err = inspection.Run(ctx, inspection.Options{
		Config: live, Inventory: source, Journal: m.Journal, Managers: managers, Log: m.Log,
		Imager: firstDisk{managers}, Ironic: &data,
	})
	if err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	if err := results.add("ours.json", data); err != nil {
		return err
	}
	if err := results.add("took.json", []byte(strconv.FormatFloat(took, 'f', 3, 64))); err != nil {
		return err
	}
	disks, err := managers.Disks(ctx) // with more names than the inventory contains
	if err != nil {
		return err
	}
	text, err := json.Marshal(disks)
	if err != nil {
		return err
	}
	return results.add("disks.json", text)
}

// firstDisk selects the root disk without hints.
type firstDisk struct{ disks block.Lister }

// RootDisk implements [inspection.Imager].
func (f firstDisk) RootDisk(ctx context.Context, _ bool) (block.Device, error) {
	disks, err := f.disks.Disks(ctx)
	if err != nil {
		return block.Device{}, err
	}
	return hint.RootDisk(nil, disks)
}

// posted is the data of an inspection, as JSON.
type posted []byte

// PostInspection implements [inspection.Receiver].
func (p *posted) PostInspection(_ context.Context, body []byte) (string, error) {
	*p = body
	return "", nil
}
