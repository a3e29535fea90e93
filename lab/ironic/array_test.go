//go:build linux && long

package ironic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/osimage/osimagetest"
	"ironroot/lab/qemu"
	"ironroot/storage/md"
	"ironroot/storage/partition"
)

// TestRealIronicArray creates the mirror of target_raid_config in manual cleaning. Automated cleaning keeps it. Then
// the test deploys a system to it with another boot of the ramdisk, which must assemble it, and boots the system from
// each of the two disks alone. Automated cleaning after the deployment keeps the mirror, too.
//
// Parity: N6 (real Ironic)
func TestRealIronicArray(t *testing.T) {
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 60*time.Minute)
	system := osimagetest.Disk(t, func(root string) { osimagetest.AddRAID(t, root) })
	i := start(t, Options{
		KernelParams: "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1", Config: "[deploy]\nfast_track = true\n",
	})
	n, err := i.Enroll(ctx, NodeOptions{
		Kernel: kernel, Ramdisk: ramdisk, Memory: memory,
		Disks: []qemu.Disk{{Size: 7 << 28, Serial: "DISK0"}, {Size: 7 << 28, Serial: "DISK1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	step(t, "manage", n.Manage(ctx))
	setTarget(t, ctx, n, raidTarget)
	step(t, "manual cleaning", n.Clean(ctx, Step{Interface: "raid", Step: "create_configuration"}))
	checkRAIDConfig(t, ctx, n)
	created := checkArray(t, ctx, n, 1)
	step(t, "automated cleaning", n.Provide(ctx))
	if kept := checkArray(t, ctx, n, 1); kept != created {
		t.Errorf("automated cleaning: got array %+v, want it kept: %+v", kept, created)
	}
	powerOff(t, ctx, n) // otherwise the ramdisk that created the array, and runs it, would deploy to it
	image := publish(t, i, system, "os.raw")
	image.Format = "raw"
	deploy(t, ctx, n.Deploy, n, image)
	powerOff(t, ctx, n)
	for d, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) { bootFrom(t, ctx, n, d) })
	}
	step(t, "undeploy", n.Undeploy(ctx))
	// Each disk also has a partition of the mirror with the EFI system partition, which was erased.
	if kept := checkArray(t, ctx, n, 2); kept != created {
		t.Errorf("automated cleaning after a deployment: got array %+v, want it kept: %+v", kept, created)
	}
}

// powerOff makes Ironic switch the machine off, and waits until it is off.
func powerOff(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	step(t, "power off", n.ironic.call(ctx, http.MethodPut, "/v1/nodes/"+n.UUID+"/states/power",
		map[string]any{"target": "power off"}, nil))
	for {
		s, err := n.State(ctx)
		step(t, "state", err)
		if text(s.Power) == "power off" && !n.On() {
			return
		}
		select {
		case <-time.After(500 * time.Millisecond): // Ironic sends no notification of changes
		case <-ctx.Done():
			t.Fatalf("the machine stays %q: %v", text(s.Power), ctx.Err())
		}
	}
}

// bootFrom boots the machine, which is off, with a copy of one of its disks, and checks that the system runs on one
// half of the mirror. The disk itself does not change, so that the array stays complete.
func bootFrom(t *testing.T, ctx context.Context, n *Node, disk int) {
	t.Helper()
	alone := n.machine
	alone.Disks = slices.Clone(alone.Disks[disk : disk+1])
	alone.Disks[0].File = filepath.Join(t.TempDir(), "copy")
	testenv.Run(t, "cp", "--sparse=always", n.diskFile(disk), alone.Disks[0].File)
	m, err := qemu.Start(ctx, alone)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	if _, err := m.Console().Follow(ctx, osimage.Up); err != nil {
		t.Fatal(err)
	}
	for _, detail := range strings.Split(qemu.Plain(m.Console().String()), "/dev/md") {
		if !strings.Contains(detail, "Name : any:root") {
			continue
		}
		for _, want := range []string{"Raid Level : raid1", "Raid Devices : 2", "Total Devices : 1", "degraded"} {
			if !strings.Contains(detail, want) {
				t.Errorf("mdadm --detail lacks %q:\n%s", want, detail)
			}
		}
		return
	}
	t.Errorf("mdadm --detail shows no array any:root:\n%s", m.Console().Tail(60))
}

// raidTarget is a target_raid_config.
const raidTarget = `{"logical_disks": [
	{"controller": "software", "raid_level": "1", "size_gb": 1, "volume_name": "root", "is_root_volume": true}
]}`

// setTarget sets the node's target_raid_config.
func setTarget(t *testing.T, ctx context.Context, n *Node, config string) {
	t.Helper()
	step(t, "target_raid_config", n.ironic.call(ctx, http.MethodPut, "/v1/nodes/"+n.UUID+"/states/raid",
		json.RawMessage(config), nil))
}

// checkRAIDConfig checks the field that Ironic's hook has set.
func checkRAIDConfig(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	var node struct {
		Config struct {
			LogicalDisks []any  `json:"logical_disks"`
			LastUpdated  string `json:"last_updated"`
		} `json:"raid_config"`
		Properties map[string]any `json:"properties"`
	}
	step(t, "node", n.ironic.call(ctx, http.MethodGet, "/v1/nodes/"+n.UUID, nil, &node))
	want := []any{map[string]any{
		"controller": "software", "raid_level": "1", "size_gb": 1.0, "volume_name": "root", "is_root_volume": true,
	}}
	if diff := cmp.Diff(want, node.Config.LogicalDisks); diff != "" || node.Config.LastUpdated == "" {
		t.Errorf("raid_config was updated at %q, and differs (-want +got):\n%s", node.Config.LastUpdated, diff)
	}
	if capabilities, _ := node.Properties["capabilities"].(string); !strings.Contains(capabilities, "raid_level:1") {
		t.Errorf("capabilities: got %q, want raid_level:1 in it", capabilities)
	}
}

// array holds the fields that the members of an array have in common.
type array struct {
	UUID, Level, Name string
	at                int64 // offset of the array's data on the disk, in bytes
}

// checkArray returns the array on the machine's disks. Each has a number of partitions, and a member on one of them.
func checkArray(t *testing.T, ctx context.Context, n *Node, partitions int) array {
	t.Helper()
	var found [2]array
	for d := range found {
		path := n.diskFile(d)
		table, err := partition.Read(ctx, path)
		if err != nil || len(table.Partitions) != partitions {
			t.Fatalf("disk %d: got table %+v and %v, want %d partitions", d, table, err, partitions)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var members []array
		for _, p := range table.Partitions {
			superblocks, err := md.Find(io.NewSectionReader(f, p.Start, p.Size), p.Size)
			if err != nil {
				t.Fatalf("disk %d: %v", d, err)
			}
			for _, m := range superblocks {
				if m.Problem != nil {
					t.Fatalf("disk %d: %v", d, m.Problem)
				}
				members = append(members, array{m.UUID, m.Level, m.Name, p.Start + m.DataOffset})
			}
		}
		_ = f.Close() // only read
		if len(members) != 1 {
			t.Fatalf("disk %d: got members %+v, want one", d, members)
		}
		found[d] = members[0]
	}
	if found[0] != found[1] || found[0].Name != "any:root" {
		t.Errorf("got members of %+v and %+v, want both of one array any:root", found[0], found[1])
	}
	return found[0]
}

// diskFile returns the path of a disk that the lab created.
func (n *Node) diskFile(number int) string {
	return filepath.Join(n.ironic.path("vm/"+n.Name), fmt.Sprintf("disk%d.raw", number))
}
