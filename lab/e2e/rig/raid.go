//go:build linux

package rig

import (
	"io"
	"os"
	"testing"

	"ironroot/lab/conductor"
	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
)

// RAIDStep runs a step of the interface raid.
func (r *Rig) RAIDStep(t *testing.T, kind, name string, fields, args map[string]any) *conductor.Record {
	t.Helper()
	node := map[string]any{"uuid": r.Node.UUID(), "properties": map[string]any{}, "instance_info": map[string]any{}}
	for key, value := range fields {
		node[key] = value
	}
	step := map[string]any{"step": name, "interface": "raid"}
	if args != nil {
		step["args"] = args
	}
	return r.Command(t, kind+".execute_"+kind+"_step", map[string]any{"step": step, "node": node, "ports": []any{}})
}

// RAIDDisk is an entry of logical_disks.
func RAIDDisk(level string, size any, fields map[string]any) map[string]any {
	disk := map[string]any{"controller": "software", "raid_level": level, "size_gb": size}
	for key, value := range fields {
		disk[key] = value
	}
	return disk
}

// DeleteRAID deletes all arrays. No superblock is left where the partitions were.
func (r *Rig) DeleteRAID(t *testing.T, files map[string]string) {
	tables := map[string]*partition.Table{}
	for serial, path := range files {
		table, err := partition.Read(t.Context(), path)
		if err != nil || len(table.Partitions) != 2 {
			t.Fatalf("%s: got %+v and %v, want two partitions", serial, table, err)
		}
		tables[serial] = table
	}
	record := r.RAIDStep(t, "clean", "delete_configuration", nil, nil)
	if record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	for serial, path := range files {
		if _, err := partition.Read(t.Context(), path); err == nil {
			t.Errorf("%s: a partition table is left", serial)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, p := range append(tables[serial].Partitions, partition.Partition{Size: tables[serial].DiskSize}) {
			left, err := md.Find(io.NewSectionReader(f, p.Start, p.Size), p.Size)
			if err != nil || len(left) > 0 {
				t.Errorf("%s: got superblocks %+v and %v at byte %d, want none", serial, left, err, p.Start)
			}
		}
	}
}

// DeployArray writes an image to the root disk of a node with arrays.
func (r *Rig) DeployArray(t *testing.T, config map[string]any, image string, drive string) *conductor.Record {
	t.Helper()
	r.Images.File("mbr.raw", image)
	r.WaitAgent(t)
	r.DiskNames(t, "disk0", "disk1")
	r.Succeed(t, "deploy.get_deploy_steps", map[string]any{"ports": []any{}, "node": map[string]any{
		"uuid": r.Node.UUID(), "properties": map[string]any{"root_device": map[string]any{"serial": "disk0"}},
		"instance_info": map[string]any{}, "driver_internal_info": map[string]any{}, "raid_config": config,
	}})
	return r.Command(t, "standby.prepare_image", map[string]any{
		"image_info": r.RawInfo("mbr.raw", SumAll(t, image)), "configdrive": drive,
	})
}

// MembersIn returns the members of arrays on the partitions of a disk, with the offsets of the partitions.
func MembersIn(t *testing.T, path string) []raid.Member {
	t.Helper()
	table, err := partition.Read(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var members []raid.Member
	for _, p := range table.Partitions {
		found, err := md.Find(io.NewSectionReader(f, p.Start, p.Size), p.Size)
		if err != nil || len(found) != 1 || found[0].Problem != nil {
			t.Fatalf("%s: got %+v and %v, want a superblock", path, found, err)
		}
		members = append(members, raid.Member{Device: block.Device{Start: p.Start, Size: p.Size}, Superblock: found[0]})
	}
	return members
}
