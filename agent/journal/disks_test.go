package journal

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/inventory/machinetest"
	"ironroot/internal/test/testenv"
)

// disksFixture is a machine with a SCSI disk that has a partition, a read-only USB stick, and a disk whose size the
// kernel does not report.
const disksFixture = `
sys/block/sda -> ../class/block/sda
sys/class/block/sda/size: 8192\n
sys/class/block/sda/ro: 0\n
sys/class/block/sda/queue/rotational: 1\n
sys/class/block/sda/queue/logical_block_size: 512\n
sys/class/block/sda/queue/physical_block_size: 4096\n
sys/class/block/sda/device/model: SPINNER    \n
sys/class/block/sda/device/vendor: SEAGATE \n
sys/class/block/sda/device/scsi_device/0:0:0:0/
sys/class/block/sda/device/vpd_pg83= 0083000c010300085000c500a1b2c3d4
sys/class/block/sda/sda1/partition: 1\n
sys/class/block/sda/sda1/size: 2048\n
sys/class/block/sda1 -> sda/sda1
sys/block/sdb -> ../class/block/sdb
sys/class/block/sdb/size: 4096\n
sys/class/block/sdb/ro: 1\n
sys/class/block/sdb/removable: 1\n
sys/class/block/sdb/queue/rotational: 0\n
sys/class/block/sdb/device/model: STICK\n
sys/block/sdc -> ../class/block/sdc
sys/class/block/sdc/size: I/O error\n
`

// If a disk cannot be read, the archive contains the others.
func TestArchiveOfDisks(t *testing.T) {
	testenv.Programs(t, "sgdisk")
	sys := machinetest.Unpack(t, disksFixture)
	disk := sys.Dev("sda")
	if err := os.MkdirAll(filepath.Dir(disk), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(disk, make([]byte, 8192*512), 0o600); err != nil {
		t.Fatal(err)
	}
	const uuid = "c2e9ff26-9b0c-4d2b-8a8e-0d6a3c3b0f11"
	testenv.Run(t, "sgdisk", "-n", "1:2048:4095", "-t", "1:8300", "-c", "1:root", "-u", "1:"+uuid, disk)
	got := unpack(t, New(io.Discard, nil, 1<<20), sys)
	for name, want := range map[string]string{
		"lsblk": `KNAME TYPE SIZE ROTA RO TRAN MODEL SERIAL WWN
sda disk 4194304 1 0 SPINNER 5000c500a1b2c3d4 0x5000c500a1b2c3d4
sda1 part 1048576 1 0
sdb disk 2097152 0 1 STICK
`,
		"lsblk-full": `KNAME="sda" PATH="/dev/sda" TYPE="disk" SIZE="4194304" MODEL="SPINNER" VENDOR="SEAGATE" ` +
			`SERIAL="5000c500a1b2c3d4" WWN="0x5000c500a1b2c3d4" HCTL="0:0:0:0" TRAN="" ROTA="1" RO="0" RM="0" ` +
			`LOG-SEC="512" PHY-SEC="4096"
KNAME="sda1" PATH="/dev/sda1" TYPE="part" SIZE="1048576" MODEL="" VENDOR="" SERIAL="" ` +
			`WWN="" HCTL="" TRAN="" ROTA="1" RO="0" RM="0" LOG-SEC="512" PHY-SEC="4096"
KNAME="sdb" PATH="/dev/sdb" TYPE="disk" SIZE="2097152" MODEL="STICK" VENDOR="" SERIAL="" ` +
			`WWN="" HCTL="" TRAN="" ROTA="0" RO="1" RM="1" LOG-SEC="512" PHY-SEC="512"
`,
		"parted": `/dev/sda: 4194304 bytes, sectors of 512 bytes
partition table: gpt
1 start 1048576 size 1048576 type 0FC63DAF-8483-4772-8E79-3D69D8477DE4 uuid ` + uuid + ` name "root"
/dev/sdb: 2097152 bytes, sectors of 512 bytes
open ` + sys.Dev("sdb") + `: no such file or directory
`,
		"multipath": "",
	} {
		if diff := cmp.Diff(want, columns(got[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range []string{"lsblk", "lsblk-full", "parted", "multipath"} {
		if want := name + ": disk cannot be described: block device sdc: "; !strings.Contains(got["errors"], want) {
			t.Errorf("errors: got no %q in\n%s", want, got["errors"])
		}
	}
	var properties map[string]string
	if err := json.Unmarshal([]byte(got["udev/sda"]), &properties); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"DEVNAME": "/dev/sda", "ID_MODEL": "SPINNER", "ID_WWN": "0x5000c500a1b2c3d4",
	} {
		if properties[name] != want {
			t.Errorf("udev/sda: %s: got %q, want %q", name, properties[name], want)
		}
	}
}

// columns joins the words of each line by single spaces.
func columns(table string) string {
	var out strings.Builder
	for line := range strings.Lines(table) {
		out.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return out.String()
}
