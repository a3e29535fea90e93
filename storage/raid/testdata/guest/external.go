package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"

	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// external lets mdadm create arrays with the metadata of firmware RAID on the machine's disks. At each stage it prints
// what package md and mdadm read from the disks.
func external(ctx context.Context) error {
	if err := os.Setenv("IMSM_NO_PLATFORM", "1"); err != nil { // a machine without Intel's firmware
		return err
	}
	disks, err := block.Disks(ctx, sysfs.Root{})
	if err != nil {
		return err
	}
	groups := map[int64][]block.Device{} // by the size of sectors, as in an array
	for _, d := range disks {
		groups[d.LogicalSector] = append(groups[d.LogicalSector], d)
	}
	for sector, group := range groups {
		for _, format := range []string{"imsm", "ddf"} {
			if format == "ddf" && sector != 512 {
				continue // mdadm cannot read its own metadata on such disks
			}
			if err := externalOn(ctx, format, group); err != nil {
				return fmt.Errorf("%s on sectors of %d bytes: %w", format, sector, err)
			}
		}
	}
	return nil
}

// externalOn creates a container on all disks, and two volumes on the first two: the metadata of IMSM then have more
// than 512 bytes.
func externalOn(ctx context.Context, format string, disks []block.Device) error {
	const container = "/dev/md7"
	volumes := []string{"/dev/md8", "/dev/md9"}
	create := []string{
		"--create", container, "--run", "--metadata=" + format, "--raid-devices", fmt.Sprint(len(disks)),
	}
	for _, d := range disks {
		create = append(create, d.Path)
	}
	volume := func(path string) []string {
		return []string{
			"--create", path, "--run", "--level=0", "--size=16384", "--raid-devices=2", disks[0].Path, disks[1].Path,
		}
	}
	for stage, commands := range [][][]string{
		{create},
		{volume(volumes[0]), volume(volumes[1])},
		{
			{"--stop", volumes[1]},
			{"--stop", volumes[0]},
			{"--kill-subarray=1", container},
			{"--kill-subarray=0", container},
			{"--stop", container},
		},
	} {
		for _, d := range disks {
			found, err := raid.ReadExternal(ctx, d.Path)
			if want := stage > 0; err != nil || (found != "") != want {
				return fmt.Errorf("%s before stage %d: got metadata %q (%v), want some: %v", d.Path, stage, found, err, want)
			}
		}
		for _, args := range commands {
			if _, err := mdadm(args...); err != nil {
				return err
			}
		}
		name := format + " " + []string{"container", "volume", "deleted"}[stage]
		for _, d := range disks {
			if err := membership(ctx, name, d); err != nil {
				return err
			}
		}
	}
	return clearEnds(disks)
}

// examined matches the state of the disk itself that mdadm --examine shows for IMSM.
var examined = regexp.MustCompile(`Serial : (.*)\n +State :(.*)`)

// membership prints what package md and mdadm read from a disk.
func membership(ctx context.Context, name string, d block.Device) error {
	m, err := raid.ReadMembership(ctx, d.Path, d.Serials)
	if err != nil {
		return err
	}
	out, err := mdadm("--examine", d.Path)
	if err != nil {
		return err
	}
	match := examined.FindStringSubmatch(out)
	if m.Format == md.DDF {
		match = regexp.MustCompile(` (\w{8}) .* ` + d.Path + ` +(\S+)`).FindStringSubmatch(out)
	}
	if match == nil {
		return fmt.Errorf("%s: mdadm does not list the disk:\n%s", d.Path, out)
	}
	fmt.Printf("\nMEMBER %s %s: active %v (%v), mdadm: %q %q\n", name, d.Serial, m.IsActive(), m.Reason,
		match[1], match[2])
	return nil
}

// clearEnds overwrites the metadata of firmware RAID.
func clearEnds(disks []block.Device) error {
	for _, d := range disks {
		f, err := os.OpenFile(d.Path, os.O_WRONLY|os.O_SYNC, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(make([]byte, 33*mib), d.Size-33*mib)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
