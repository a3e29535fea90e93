package multipath

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/devmapper"
	"ironroot/storage/sysfs"
)

const (
	lun = "\x60\x0c\x0f\xf0\x00\xd1\xa2\xb3\xc4\xd5\xe6\xf7\x08\x09\x10\x11"
	id  = "3600c0ff000d1a2b3c4d5e6f708091011"
)

// machine is a directory with the kernel's description of disks, and a device mapper that adds maps to it.
type machine struct {
	t      *testing.T
	root   string
	joiner *Joiner
	log    bytes.Buffer
	hosts  int
	lun    int // of the disks made next
	done   []string
	synced []string
	absent bool // the kernel has no device mapper
	refuse func(parameters string) error
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir()}
	for _, dir := range []string{"sys/block", "sys/class/block", "dev"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.joiner = &Joiner{
		System: sysfs.Root{Path: m.root}, Log: slog.New(slog.NewTextHandler(&m.log, nil)), kernel: m,
	}
	return m
}

func (m *machine) open() (mapper, error) {
	if m.absent {
		return nil, fmt.Errorf("device mapper: %w", unix.ENODEV)
	}
	return m, nil
}

func (m *machine) sync(_ context.Context, _ sysfs.Root, device string) error {
	m.synced = append(m.synced, device)
	return nil
}

func (m *machine) write(file, content string) {
	m.t.Helper()
	file = filepath.Join(m.root, file)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) link(target, name string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(m.root, name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(m.root, target), filepath.Join(m.root, name)); err != nil {
		m.t.Fatal(err)
	}
}

// disk adds a SCSI disk on a host of its own. designators are the designators of page 0x83, nil for a disk without the
// page.
func (m *machine) disk(name string, sectors int, designators []byte, files map[string]string) {
	m.t.Helper()
	hardware := fmt.Sprintf("sys/devices/pci0000:00/0000:00:05.0/host%d/target%d:0:0/%d:0:0:%d",
		m.hosts, m.hosts, m.hosts, m.lun)
	dir := hardware + "/block/" + name
	m.write(dir+"/size", fmt.Sprint(sectors))
	m.write(dir+"/dev", fmt.Sprintf("8:%d", 16*m.hosts))
	m.write(dir+"/queue/logical_block_size", "512")
	if designators != nil {
		page := binary.BigEndian.AppendUint16([]byte{0, 0x83}, uint16(len(designators)))
		m.write(hardware+"/vpd_pg83", string(append(page, designators...)))
	}
	for file, content := range files {
		m.write(strings.ReplaceAll(file, "HOST", fmt.Sprintf("host%d", m.hosts)), content)
	}
	for _, name := range []string{"inquiry", "vpd_pg80"} {
		m.write(hardware+"/"+name, files[name])
	}
	m.link(hardware, dir+"/device")
	m.link(dir, "sys/block/"+name)
	m.link(dir, "sys/class/block/"+name)
	m.hosts++
}

// designator returns a binary designator of the logical unit.
func designator(kind byte, identifier string) []byte {
	return append([]byte{0x01, kind, 0, byte(len(identifier))}, identifier...)
}

// addMap adds a map over disks.
func (m *machine) addMap(uuid string, sectors int, paths ...string) {
	const dir = "sys/devices/virtual/block/dm-0"
	m.write(dir+"/dm/uuid", uuid)
	m.write(dir+"/size", fmt.Sprint(sectors))
	m.write(dir+"/queue/logical_block_size", "512")
	for _, path := range paths {
		m.link("sys/class/block/"+path, dir+"/slaves/"+path)
	}
	m.write(dir+"/dev", "253:0\n")
	m.link(dir, "sys/block/dm-0")
	m.link(dir, "sys/class/block/dm-0")
	m.write("dev/dm-0", "")
}

func (m *machine) disks() []block.Device {
	m.t.Helper()
	disks, err := block.Disks(m.t.Context(), m.joiner.System)
	if err != nil {
		m.t.Fatal(err)
	}
	return disks
}

func (m *machine) names() string {
	var names []string
	for _, d := range m.disks() {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

// Create implements mapper.
func (m *machine) Create(of devmapper.Map) (string, error) {
	parameters := of.Targets[0].Parameters
	m.done = append(m.done, fmt.Sprintf("create %s %s %d: %s", of.Name, of.UUID, of.Targets[0].Size, parameters))
	if m.refuse != nil {
		if err := m.refuse(parameters); err != nil {
			return "", err
		}
	}
	m.addMap(of.UUID, int(of.Targets[0].Size/512), m.pathsIn(parameters)...)
	return "/dev/dm-0", nil
}

// pathsIn returns the disks in a table that do not belong to a map yet.
func (m *machine) pathsIn(parameters string) []string {
	var paths []string
	for _, d := range m.disks() {
		number, err := os.ReadFile(filepath.Join(m.root, "sys/class/block", d.Name, "dev"))
		if err == nil && strings.Contains(parameters, " "+string(number)+" ") {
			paths = append(paths, d.Name)
		}
	}
	return paths
}

// Reload implements mapper.
func (m *machine) Reload(uuid string, targets []devmapper.Target) error {
	m.done = append(m.done, fmt.Sprintf("reload %s %d: %s", uuid, targets[0].Size, targets[0].Parameters))
	for _, path := range m.pathsIn(targets[0].Parameters) {
		m.link("sys/class/block/"+path, "sys/devices/virtual/block/dm-0/slaves/"+path)
	}
	return nil
}

// Close implements mapper.
func (m *machine) Close() error { return nil }

const (
	head  = "1 retain_attached_hw_handler 0 "
	group = " service-time 0 1 1 "
)

func TestJoin(t *testing.T) {
	naa := designator(3, lun)
	for name, tt := range map[string]struct {
		prepare func(m *machine)
		want    []string // what the device mapper is asked for
		names   string   // of the disks afterwards
		warning string
	}{
		"two paths": {
			prepare: func(m *machine) { m.disk("sda", 4096, naa, nil); m.disk("sdb", 4096, naa, nil) },
			want: []string{
				"create " + id + " mpath-" + id + " 2097152: " + head + "2 1" + group + "8:0 1" + group + "8:16 1",
			},
			names: "dm-0",
		},
		"one path": {
			prepare: func(m *machine) { m.disk("sda", 4096, naa, nil) }, names: "sda",
		},
		"two disks": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, naa, nil)
				m.disk("sdb", 4096, designator(3, "\x50\x00\xc5\x00\xa1\xb2\xc3\xd4"), nil)
			},
			names: "sda sdb",
		},
		"by EUI-64": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, designator(2, "\x00\x25\x38\x5b\x71\xb0\x00\x01"), nil)
				m.disk("sdb", 4096, designator(2, "\x00\x25\x38\x5b\x71\xb0\x00\x01"), nil)
			},
			want: []string{"create 20025385b71b00001 mpath-20025385b71b00001 2097152: " + head + "2 1" + group +
				"8:0 1" + group + "8:16 1"},
			names: "dm-0",
		},
		"names of the vendor's own": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, designator(0, "IET     00010001"), nil)
				m.disk("sdb", 4096, designator(1, "IET     00010001"), nil)
				m.disk("sdc", 4096, designator(0, "IET     00010001"), nil)
				m.disk("sdd", 4096, designator(1, "IET     00010001"), nil)
			},
			names: "sda sdb sdc sdd",
		},
		"by the name of the target's unit": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, []byte("\x03\x08\x00\x14iqn.2003-01.org:a,L,0"[:24]), nil)
				m.disk("sdb", 4096, []byte("\x03\x08\x00\x14iqn.2003-01.org:a,L,0"[:24]), nil)
			},
			want: []string{
				"create 8iqn.2003-01.org:a,l, mpath-8iqn.2003-01.org:a,l, 2097152: " + head + "2 1" + group + "8:0 1" +
					group + "8:16 1",
			},
			names: "dm-0",
		},
		"by T10 vendor ID and serial number": {
			prepare: func(m *machine) {
				serial := map[string]string{"vpd_pg80": "\x00\x80\x00\x06SERIAL"}
				m.disk("sda", 4096, designator(1, "ACME    DISK  SERIAL"), serial)
				m.disk("sdb", 4096, designator(1, "ACME    DISK  SERIAL"), serial)
			},
			want: []string{
				"create 1ACME_DISK_SERIAL mpath-1ACME_DISK_SERIAL 2097152: " + head + "2 1" + group + "8:0 1" +
					group + "8:16 1",
			},
			names: "dm-0",
		},
		"T10 vendor ID without the serial number": {
			prepare: func(m *machine) {
				serial := map[string]string{"vpd_pg80": "\x00\x80\x00\x06beaf11"}
				m.disk("sda", 4096, designator(1, "IET     00010001"), serial)
				m.disk("sdb", 4096, designator(1, "IET     00010001"), serial)
			},
			names: "sda sdb",
			warning: `paths="[/dev/sda /dev/sdb]" err="same vendor, model, serial number and size, ` +
				`no unique designator"`,
		},
		"locally assigned NAA": {
			prepare: func(m *machine) {
				local := designator(3, "\x30\x00\x00\x00\x00\x00\x00\x01")
				m.disk("sda", 4096, local, nil)
				m.disk("sdb", 4096, local, nil)
				m.disk("sdc", 8192, local, nil)
			},
			names: "sda sdb sdc",
			warning: `paths="[/dev/sda /dev/sdb]" err="same vendor, model, serial number and size, ` +
				`no unique designator"`,
		},
		"one without the page": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, naa, nil)
				m.disk("sdb", 4096, nil, nil)
				m.disk("sdc", 4096, nil, nil)
			},
			names: "sda sdb sdc",
		},
		"the name of a port": {
			prepare: func(m *machine) {
				port := designator(3|1<<4, lun)
				m.disk("sda", 4096, port, nil)
				m.disk("sdb", 4096, port, nil)
			},
			names: "sda sdb",
		},
		"other sizes": {
			prepare: func(m *machine) { m.disk("sda", 4096, naa, nil); m.disk("sdb", 8192, naa, nil) },
			names:   "sda sdb", warning: "differ in size, sectors, model or serial number: " + id,
		},
		"two units of one target": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, naa, nil)
				m.hosts--
				m.lun = 1
				m.disk("sdb", 4096, naa, nil)
			},
			names: "sda sdb", warning: "different logical unit numbers of one target: " + id,
		},
		"other serial numbers": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, naa, map[string]string{"vpd_pg80": "\x00\x80\x00\x02S1"})
				m.disk("sdb", 4096, naa, map[string]string{"vpd_pg80": "\x00\x80\x00\x02S2"})
			},
			names: "sda sdb", warning: "differ in size",
		},
		"the same serial number": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, naa, map[string]string{"vpd_pg80": "\x00\x80\x00\x02S1"})
				m.disk("sdb", 4096, naa, map[string]string{"vpd_pg80": "\x00\x80\x00\x02S1"})
			},
			want: []string{
				"create " + id + " mpath-" + id + " 2097152: " + head + "2 1" + group + "8:0 1" + group + "8:16 1",
			},
			names: "dm-0",
		},
		"SATA": {
			prepare: func(m *machine) {
				sata := map[string]string{"sys/class/scsi_host/HOST/proc_name": "ahci"}
				m.disk("sda", 4096, naa, sata)
				m.disk("sdb", 4096, naa, sata)
			},
			names: "sda sdb",
		},
		"in use": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, naa, nil)
				m.disk("sdb", 4096, naa, nil)
				m.refuse = func(string) error { return fmt.Errorf("load table: %w", unix.EBUSY) }
			},
			want: []string{
				"create " + id + " mpath-" + id + " 2097152: " + head + "2 1" + group + "8:0 1" + group + "8:16 1",
			},
			names: "sda sdb", warning: "device or resource busy",
		},
		"active and passive paths": {
			prepare: func(m *machine) {
				asymmetric := map[string]string{"inquiry": "\x00\x00\x06\x02\x1f\x10"}
				m.disk("sda", 4096, naa, asymmetric)
				m.disk("sdb", 4096, naa, asymmetric)
			},
			want: []string{
				"create " + id + " mpath-" + id + " 2097152: 1 retain_attached_hw_handler 1 alua 2 1" + group +
					"8:0 1" + group + "8:16 1",
			},
			names: "dm-0",
		},
		"no handler for them": {
			prepare: func(m *machine) {
				asymmetric := map[string]string{"inquiry": "\x00\x00\x06\x02\x1f\x30"}
				m.disk("sda", 4096, naa, asymmetric)
				m.disk("sdb", 4096, naa, asymmetric)
				m.refuse = func(parameters string) error {
					if strings.Contains(parameters, "alua") {
						return unix.EINVAL
					}
					return nil
				}
			},
			want: []string{
				"create " + id + " mpath-" + id + " 2097152: 1 retain_attached_hw_handler 1 alua 2 1" + group +
					"8:0 1" + group + "8:16 1",
				"create " + id + " mpath-" + id + " 2097152: " + head + "2 1" + group + "8:0 1" + group + "8:16 1",
			},
			names: "dm-0",
		},
		"a map that is there": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, naa, nil)
				m.disk("sdb", 4096, naa, nil)
				m.addMap("mpath-"+id, 4096, "sda", "sdb")
			},
			names: "dm-0",
		},
		"a path that comes late": {
			prepare: func(m *machine) {
				m.disk("sdc", 4096, naa, nil)
				m.disk("sda", 4096, naa, nil)
				m.disk("sdb", 4096, naa, nil)
				m.addMap("mpath-"+id, 4096, "sdb", "sdc")
			},
			want: []string{"reload mpath-" + id + " 2097152: " + head + "3 1" + group + "8:32 1" + group + "8:0 1" +
				group + "8:16 1"},
			names: "dm-0",
		},
		"a path that comes back under another name": {
			prepare: func(m *machine) {
				m.disk("sdb", 4096, naa, nil)
				m.disk("sdc", 4096, naa, nil)
				m.addMap("mpath-"+id, 4096, "sda", "sdb") // sda is gone
			},
			want:  []string{"reload mpath-" + id + " 2097152: " + head + "2 1" + group + "8:0 1" + group + "8:16 1"},
			names: "dm-0",
		},
		"a late path of another size": {
			prepare: func(m *machine) {
				m.disk("sda", 4096, naa, nil)
				m.disk("sdb", 8192, naa, nil)
				m.addMap("mpath-"+id, 4096, "sda")
			},
			names: "sdb dm-0", warning: "differ in size",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tt.prepare(m)
			var asked []string
			for range 2 { // what goes wrong is told of once
				m.done = nil
				changed := m.joiner.Join(t.Context(), m.disks())
				if want := len(tt.want) > 0 && tt.warning == "" && m.done != nil; changed != want {
					t.Errorf("got changed %v, want %v", changed, want)
				}
				if asked == nil {
					asked = m.done
				}
			}
			if diff := cmp.Diff(tt.want, asked); diff != "" {
				t.Errorf("maps (-want +got):\n%s", diff)
			}
			if want := strings.HasPrefix(strings.Join(tt.want, ""), "create") &&
				tt.warning == ""; want != (len(m.synced) == 1) {
				t.Errorf("got partitions made of %q, want them to be made of a new map only", m.synced)
			}
			if got := m.names(); got != tt.names {
				t.Errorf("got disks %s, want %s", got, tt.names)
			}
			warnings := 0
			for line := range strings.Lines(m.log.String()) {
				if strings.Contains(line, "not joined") && strings.Contains(line, tt.warning) {
					warnings++
				}
			}
			if want := map[bool]int{true: 1}[tt.warning != ""]; warnings != want {
				t.Errorf("got %d warnings with %q, want %d:\n%s", warnings, tt.warning, want, m.log.String())
			}
		})
	}
}

func TestSuspects(t *testing.T) {
	scsi := func(name, hctl, serial, wwid string) block.Device {
		return block.Device{Path: name, Type: "disk", HCTL: hctl, Serial: serial, WWID: wwid, Transport: "fc", Size: 1}
	}
	nvme := func(name, wwn string) block.Device {
		return block.Device{Path: name, Type: "disk", Serial: "S", WWN: wwn, Transport: "nvme", Size: 1}
	}
	usb, virtio := scsi("c", "2:0:0:0", "S", ""), scsi("d", "", "S", "")
	usb.Transport, virtio.Transport = "usb", "virtio"
	larger := scsi("e", "3:0:0:0", "S", "")
	larger.Size = 2
	for _, tt := range []struct {
		name  string
		disks []block.Device
		want  []string
	}{
		{
			"two without a name",
			[]block.Device{scsi("a", "0:0:0:0", "S", ""), scsi("b", "1:0:0:0", "S", "")},
			[]string{"a", "b"},
		},
		{
			"one without a name",
			[]block.Device{scsi("a", "0:0:0:0", "S", "3"), scsi("b", "1:0:0:0", "S", "")},
			[]string{"a", "b"},
		},
		{"two names", []block.Device{scsi("a", "0:0:0:0", "S", "3"), scsi("b", "1:0:0:0", "S", "4")}, nil},
		{"units of one target", []block.Device{scsi("a", "0:0:0:0", "S", ""), scsi("b", "0:0:0:1", "S", "")}, nil},
		{"other serial numbers", []block.Device{scsi("a", "0:0:0:0", "S", ""), scsi("b", "1:0:0:0", "T", "")}, nil},
		{"no serial numbers", []block.Device{scsi("a", "0:0:0:0", "", ""), scsi("b", "1:0:0:0", "", "")}, nil},
		{"other buses and sizes", []block.Device{scsi("a", "0:0:0:0", "S", ""), usb, virtio, larger}, nil},
		{"one namespace twice", []block.Device{nvme("a", "eui.1"), nvme("b", "eui.1")}, []string{"a", "b"}},
		{"two namespaces", []block.Device{nvme("a", "eui.1"), nvme("b", "eui.2"), nvme("c", ""), nvme("d", "")}, nil},
	} {
		for i := range tt.disks {
			tt.disks[i].Name = tt.disks[i].Path
		}
		var got []string
		for _, s := range suspects(tt.disks) {
			got = append(got, s.paths...)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

// A call with an outdated list reports that it has changed, and creates no second map.
func TestJoinTwice(t *testing.T) {
	m := newMachine(t)
	m.disk("sda", 4096, designator(3, lun), nil)
	m.disk("sdb", 4096, designator(3, lun), nil)
	old := m.disks()
	for range 2 {
		if !m.joiner.Join(t.Context(), old) {
			t.Error("got no change")
		}
	}
	if len(m.done) != 1 || len(m.synced) != 1 || m.synced[0] != "/dev/dm-0" {
		t.Errorf("the device mapper was asked for %q, and the partitions of %q; want one map with its partitions",
			m.done, m.synced)
	}
}

// Without a device mapper in the kernel, the disks are not changed.
func TestWithoutDeviceMapper(t *testing.T) {
	m := newMachine(t)
	m.disk("sda", 4096, designator(3, lun), nil)
	m.disk("sdb", 4096, designator(3, lun), nil)
	m.absent = true
	for range 2 {
		if m.joiner.Join(context.Background(), m.disks()) {
			t.Error("got changed")
		}
	}
	if got := strings.Count(m.log.String(), "no such device"); got != 1 {
		t.Errorf("got %d warnings, want one:\n%s", got, m.log.String())
	}
}
