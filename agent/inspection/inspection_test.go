package inspection

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/hardware/generic"
	"ironroot/agent/inventory"
	"ironroot/agent/journal"
	"ironroot/agent/node"
	"ironroot/internal/goroutine"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/netboot/lldp"
	"ironroot/storage/block"
	"ironroot/storage/hint"
	"ironroot/storage/sysfs"
)

// machine is the machine of an inspection, with the data that was posted.
type machine struct {
	Options
	disk    *block.Device
	posted  map[string]json.RawMessage
	postErr error
}

func newMachine(t *testing.T, c *config.Config) *machine {
	t.Helper()
	m := &machine{}
	live := config.NewLive(c)
	log := slog.New(slog.DiscardHandler)
	sys := sysfs.Root{Path: t.TempDir()}
	disks := disktest.Lister(func(context.Context) ([]block.Device, error) {
		if m.disk == nil {
			return nil, nil
		}
		return []block.Device{*m.disk}, nil
	})
	managers, err := hardware.Load(t.Context(),
		[]hardware.Manager{generic.New(generic.Options{Config: live, System: sys, Disks: disks})}, log)
	if err != nil {
		t.Fatal(err)
	}
	write(t, sys, "sys/class/net/eth0/address", "52:54:00:1a:15:d6\n")
	write(t, sys, "sys/class/net/eth0/device/vendor", "0x1af4\n")
	write(t, sys, "proc/uptime", "1.0 1.0\n")
	m.Options = Options{
		Config: live, Managers: managers, System: sys, Log: log,
		Inventory: inventory.New(inventory.Options{
			System: sys, Disks: disks, Config: live,
		}),
		Journal: journal.New(io.Discard, &slog.LevelVar{}, 1<<20),
		Imager:  m, Ironic: m,
	}
	return m
}

// RootDisk implements [Imager].
func (m *machine) RootDisk(context.Context, bool) (block.Device, error) {
	if m.disk == nil {
		return block.Device{}, fault.DeviceNotFound("%w", hint.ErrNoDisk)
	}
	return *m.disk, nil
}

// PostInspection implements [Receiver].
func (m *machine) PostInspection(_ context.Context, body []byte) (string, error) {
	m.posted = nil
	if err := json.Unmarshal(body, &m.posted); err != nil {
		return "", err
	}
	return "b77a8c26", m.postErr
}

// imager implements [Imager].
type imager func() (block.Device, error)

func (i imager) RootDisk(context.Context, bool) (block.Device, error) { return i() }

func write(t *testing.T, sys sysfs.Root, path, content string) {
	t.Helper()
	path = filepath.Join(sys.Path, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// keys returns the keys of the posted data.
func keys(m map[string]json.RawMessage) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }

func TestDefaultCollector(t *testing.T) {
	m := newMachine(t,
		&config.Config{InspectionCollectors: "default", Params: config.Params{"BOOTIF": "01-52-54-00-1a-15-d6"}})
	m.disk = &block.Device{Name: "sda", Path: "/dev/sda", Size: 8 << 30}
	uuid, err := Run(t.Context(), m.Options)
	if err != nil || uuid != "b77a8c26" {
		t.Fatalf("got %q and %v", uuid, err)
	}
	if got, want := keys(m.posted), "boot_interface configuration error inventory root_disk"; got != want {
		t.Errorf("got keys %q, want %q", got, want)
	}
	for key, want := range map[string]string{
		"error": "null", "boot_interface": `"01-52-54-00-1a-15-d6"`,
		"configuration": `{"collectors":["default"],"managers":[{"name":"generic_hardware_manager","version":"` +
			(&generic.Manager{}).Version() + `"}]}`,
	} {
		if got := string(m.posted[key]); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	var disk inventory.Disk
	if err := json.Unmarshal(m.posted["root_disk"], &disk); err != nil || disk.Name != "/dev/sda" ||
		disk.Size != 8<<30 {
		t.Errorf("root_disk: got %s, want /dev/sda", m.posted["root_disk"])
	}
	var inv inventory.Inventory
	if err := json.Unmarshal(m.posted["inventory"], &inv); err != nil || len(inv.Interfaces) != 1 {
		t.Errorf("inventory: got %s, want one interface", m.posted["inventory"])
	}

	m.disk = nil
	if _, err := Run(t.Context(), m.Options); err != nil {
		t.Errorf("without a disk: %v", err)
	}
	if _, ok := m.posted["root_disk"]; ok {
		t.Errorf("without a disk: got root_disk %s, want no such key", m.posted["root_disk"])
	}
}

// The collector default waits for addresses before it collects the inventory.
//
// Parity: H1
func TestDefaultCollectorWaitsForAddresses(t *testing.T) {
	m := newMachine(t, &config.Config{
		InspectionCollectors: "default", InspectionDHCPWaitTimeout: time.Millisecond,
		Params: config.Params{"BOOTIF": "01-52-54-00-1a-15-d6"},
	})
	var log strings.Builder
	m.Log, m.Network = slog.New(slog.NewTextHandler(&log, nil)), newLinks(nil)
	if _, err := Run(t.Context(), m.Options); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "not all interfaces got an address in time") {
		t.Errorf("got no warning that an address is missing:\n%s", &log)
	}
}

func TestLogsCollector(t *testing.T) {
	m := newMachine(t, &config.Config{})
	m.Journal.Logger().Info("a line of the journal")
	if _, err := Run(t.Context(), m.Options); err != nil {
		t.Fatal(err)
	}
	if got := string(m.posted["configuration"]); !strings.Contains(got, `["default","logs"]`) {
		t.Errorf("configuration: got %s, want the logs last", got)
	}
	if got := unpack(t, m.posted["logs"])["journal"]; !strings.Contains(got, "a line of the journal") {
		t.Errorf("got journal %q", got)
	}
}

// unpack returns the members of a log archive.
func unpack(t *testing.T, posted json.RawMessage) map[string]string {
	t.Helper()
	var text string
	if err := json.Unmarshal(posted, &text); err != nil {
		t.Fatal(err)
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Untar(t, packed)
}

func TestPCIDevices(t *testing.T) {
	m := newMachine(t, &config.Config{InspectionCollectors: " pci-devices ,, "})
	for file, content := range map[string]string{
		"0000:00:02.0/vendor": "0x1af4\n", "0000:00:02.0/device": "0x1000\n", "0000:00:02.0/class": "0x020000\n",
		"0000:00:02.0/revision": "0x00\n", "0000:00:02.0/numa_node": "-1\n",
		"0000:00:03.0/vendor": "0x8086\n", "0000:00:03.0/device": "0x100e\n", "0000:00:03.0/class": "0x010601\n",
		"0000:00:04.0/vendor": "0x8086\n", // cannot be read in full
	} {
		write(t, m.System, "sys/bus/pci/devices/"+file, content)
	}
	if _, err := Run(t.Context(), m.Options); err != nil {
		t.Fatal(err)
	}
	want := `[{"vendor_id":"1af4","product_id":"1000","class":"020000","revision":"00","bus":"0000:00:02.0",` +
		`"numa_node_id":"-1"},` +
		`{"vendor_id":"8086","product_id":"100e","class":"010601","revision":null,"bus":"0000:00:03.0",` +
		`"numa_node_id":null}]`
	if diff := cmp.Diff(want, string(m.posted["pci_devices"])); diff != "" {
		t.Errorf("devices differ (-want +got):\n%s", diff)
	}
}

func TestUnknownCollector(t *testing.T) {
	m := newMachine(t, &config.Config{InspectionCollectors: "pci-devices,colour"})
	_, err := Run(t.Context(), m.Options)
	if err == nil || !strings.Contains(err.Error(), `"colour"`) ||
		!strings.Contains(err.Error(), "default, pci-devices, ") {
		t.Errorf("got %v, want an error that names the collector and those there are", err)
	}
	if got, want := keys(m.posted), "boot_interface configuration error inventory"; got != want {
		t.Errorf("got keys %q, want the error and the inventory, which Ironic demands: %q", got, want)
	}
	if got := string(m.posted["configuration"]); !strings.HasPrefix(got, `{"collectors":["default"],`) {
		t.Errorf("configuration: got %s, want the collector that ran", got)
	}
	if got := string(m.posted["error"]); !strings.HasPrefix(got, `"The following errors were encountered:\n* `) ||
		!strings.Contains(got, "colour") {
		t.Errorf("got error %s", got)
	}
}

// Collectors of a stage run concurrently. The logs are collected last, independent of the configured order.
func TestStages(t *testing.T) {
	m := newMachine(t, &config.Config{InspectionCollectors: "logs,extra-hardware,default,lldp,default"})
	meeting := make(chan struct{})
	m.Imager = imager(func() (block.Device, error) {
		meeting <- struct{}{} // blocks unless the collector lldp runs concurrently
		return block.Device{}, hint.ErrNoDisk
	})
	m.Neighbours = hearing(func() { <-meeting })
	log := m.Journal.Logger()
	m.Log = log
	if _, err := Run(t.Context(), m.Options); err != nil {
		t.Fatal(err)
	}
	members := unpack(t, m.posted["logs"])
	if got := members["journal"]; !strings.Contains(got, "collector=extra-hardware") ||
		!strings.Contains(got, "collector=lldp") {
		t.Errorf("got journal %s, want the lines of all other collectors", got)
	}
	if !strings.Contains(members["lshw"], `"mac_address": "52:54:00:1a:15:d6"`) {
		t.Errorf("got lshw %s, want the inventory", members["lshw"])
	}
	if got := string(m.posted["configuration"]); !strings.Contains(got, `["logs","extra-hardware","default","lldp"]`) {
		t.Errorf("configuration: got %s, want each collector once, in the order of the option", got)
	}
}

// The log archive contains the configured log files, like the archive of log.collect_system_logs.
//
// Parity: H6 (log_file and log_dir)
func TestLogFiles(t *testing.T) {
	dir := t.TempDir()
	file, below := filepath.Join(dir, "agent.log"), filepath.Join(dir, "logs", "manager", "a.log")
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(below), 0o755), os.WriteFile(below, []byte("from the directory"), 0o600),
		os.WriteFile(file, []byte("from the file"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, &config.Config{
		InspectionCollectors: "default,logs", LogFile: file, LogDir: filepath.Join(dir, "logs"),
	})
	if _, err := Run(t.Context(), m.Options); err != nil {
		t.Fatal(err)
	}
	members := unpack(t, m.posted["logs"])
	if members[file[1:]] != "from the file" || members[below[1:]] != "from the directory" {
		t.Errorf("got members %q, want the files in %s", slices.Sorted(maps.Keys(members)), dir)
	}
}

// hearing calls a function while it listens.
type hearing func()

func (h hearing) WaitLLDP(context.Context, time.Duration) (map[string]lldp.Frame, error) {
	h()
	return nil, nil
}

// Parity: H3
func TestFailedCollectorDoesNotKeepTheRest(t *testing.T) {
	m := newMachine(t, &config.Config{InspectionCollectors: "default,pci-devices"})
	m.Imager = imager(func() (block.Device, error) { return block.Device{}, errors.New("invalid hints") })
	uuid, err := Run(t.Context(), m.Options)
	if err == nil || uuid != "b77a8c26" {
		t.Errorf("got %q and %v, want the node's uuid and an error", uuid, err)
	}
	if got, want := keys(m.posted), "boot_interface configuration error inventory pci_devices"; got != want {
		t.Errorf("got keys %q, want %q", got, want)
	}
	const want = `"The following errors were encountered:\n* collector default failed: invalid hints"`
	if string(m.posted["error"]) != want {
		t.Errorf("got error %s, want %s", m.posted["error"], want)
	}
}

// A panic of a collector is an error of that collector, and Ironic receives the data of the others.
func TestCollectContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	m := newMachine(t, &config.Config{InspectionCollectors: "default,lldp,pci-devices"})
	m.Neighbours = hearing(func() { panic("in a frame") })
	uuid, err := Run(t.Context(), m.Options)
	var caught *goroutine.PanicError
	if !errors.As(err, &caught) || uuid != "b77a8c26" {
		t.Errorf("got %q and %v, want the node's uuid and the panic", uuid, err)
	}
	if got, want := keys(m.posted), "boot_interface configuration error inventory pci_devices"; got != want {
		t.Errorf("got keys %q, want %q", got, want)
	}
	const want = "collector lldp failed: internal error: panic: in a frame"
	if !strings.Contains(string(m.posted["error"]), want) {
		t.Errorf("got error %s, want %s", m.posted["error"], want)
	}
}

func TestPostFails(t *testing.T) {
	m := newMachine(t, &config.Config{InspectionCollectors: "pci-devices"})
	m.postErr, m.Log = errors.New("status 404"), nil
	if _, err := Run(t.Context(), m.Options); !errors.Is(err, m.postErr) {
		t.Errorf("got %v, want %v", err, m.postErr)
	}
}

// slowDisks is a manager whose disks appear late.
type slowDisks struct {
	hardware.Manager
	wait func(context.Context) error
}

func (s slowDisks) WaitDisks(ctx context.Context, _ *node.Node) error { return s.wait(ctx) }

// The collector default waits for disks and addresses concurrently before it reads the inventory. If
// either wait fails, there is no inventory: it would be incomplete.
func TestDefaultCollectorWaits(t *testing.T) {
	for _, tt := range []struct {
		name      string
		disks     time.Duration // until they are there
		diskError error
		cancel    time.Duration // until the inspection is cancelled; 0: it is not
		want      time.Duration
		err       string // in the posted data; "" is success
	}{
		{name: "addresses are late", disks: time.Second, want: time.Minute},
		{name: "disks are late", disks: 90 * time.Second, want: 90 * time.Second},
		{
			name: "disks fail", diskError: errors.New("no driver"), want: time.Minute,
			err: "default failed: wait for disks: no driver",
		},
		{
			name: "cancelled", cancel: 20 * time.Second, want: 20 * time.Second,
			err: "default failed: " + context.Canceled.Error(),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, &config.Config{
					InspectionCollectors: "default", InspectionDHCPWaitTimeout: time.Minute,
					InspectionDHCPAllInterfaces: true,
				})
				wait := func(context.Context) error {
					time.Sleep(tt.disks) // in the bubble's time
					m.disk = &block.Device{Name: "sda", Path: "/dev/sda", Size: 8 << 30}
					return tt.diskError
				}
				var err error
				generic := generic.New(generic.Options{Config: m.Config, System: m.System})
				m.Managers, err = hardware.Load(t.Context(), []hardware.Manager{slowDisks{generic, wait}}, m.Log)
				if err != nil {
					t.Fatal(err)
				}
				m.Network = newLinks(nil) // where nothing ever changes
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				started := time.Now()
				_, err = Run(ctx, m.Options)
				if took := time.Since(started); took != tt.want {
					t.Errorf("got data after %v, want %v", took, tt.want)
				}
				if (err != nil) != (tt.err != "") || !strings.Contains(string(m.posted["error"]), tt.err) {
					t.Errorf("got %v and the posted error %s, want %q", err, m.posted["error"], tt.err)
				}
				want := "boot_interface configuration error inventory root_disk"
				if tt.err != "" {
					want = "error"
				}
				if got := keys(m.posted); got != want {
					t.Errorf("got keys %q, want %q", got, want)
				}
			})
		})
	}
}

// A cancelled collector posts an error instead of incomplete data.
func TestCancelledCollectors(t *testing.T) {
	for _, collector := range []string{"lldp", "numa-topology"} {
		m := newMachine(t, &config.Config{InspectionCollectors: collector})
		m.Neighbours = hearing(func() {})
		write(t, m.System, "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1024 kB\n")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Run(ctx, m.Options); !errors.Is(err, context.Canceled) || keys(m.posted) != "error" {
			t.Errorf("%s: got %v and the keys %q, want %v", collector, err, keys(m.posted), context.Canceled)
		}
	}
}

// If interfaces cannot be listed, neither the inventory nor LLDP data is posted.
func TestInterfacesNotListed(t *testing.T) {
	for _, collector := range []string{"default", "extra-hardware", "lldp"} {
		m := newMachine(t, &config.Config{InspectionCollectors: collector})
		m.Neighbours = hearing(func() {})
		if err := os.RemoveAll(m.System.Sys("class/net")); err != nil {
			t.Fatal(err)
		}
		_, err := Run(t.Context(), m.Options)
		if err == nil || !strings.Contains(err.Error(), "sys/class/net") {
			t.Errorf("%s: got %v, want an error that names the directory", collector, err)
		}
		for _, key := range []string{"inventory", "data", "lldp_raw"} {
			if got, posted := m.posted[key]; posted {
				t.Errorf("%s: got %s: %s, want none", collector, key, got)
			}
		}
	}
}

// Parity: H1
func TestEnabled(t *testing.T) {
	const url, callback, collectors = "http://ironic:6385", "http://ironic:6385/v1/continue_inspection", "default"
	for _, tt := range []struct {
		config config.Config
		want   bool
	}{
		{config.Config{}, false},
		{config.Config{APIURL: url}, false},
		{config.Config{InspectionCollectors: collectors}, false},
		{config.Config{InspectionCollectors: collectors, APIURL: url}, true},
		{config.Config{InspectionCallbackURL: callback}, true},
		{config.Config{InspectionCallbackURL: callback, APIURL: url}, true},
	} {
		if got := Enabled(&tt.config); got != tt.want {
			t.Errorf("callback %q, collectors %q, API %q: got %v, want %v",
				tt.config.InspectionCallbackURL, tt.config.InspectionCollectors, tt.config.APIURL, got, tt.want)
		}
	}
}
