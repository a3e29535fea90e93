//go:build linux

package conformance

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/imageserver"
	"ironroot/lab/ipa"
	"ironroot/lab/netns"
	"ironroot/lab/qemu"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// configFile is the agent's configuration file.
const configFile = "/etc/ironic-python-agent/ironic-python-agent.conf"

// shape is a machine that the scenarios of a group share.
type shape struct {
	memory   int64 // bytes, 0 means 3 GiB
	firmware qemu.Firmware
	disks    []disk
	nic      string     // QEMU's model of the interface to Ironic, "" means virtio-net-pci
	nics     []qemu.NIC // in addition to that one
	append   string     // more kernel parameters
	extra    []string   // additional arguments of QEMU
	// variables are the UEFI variables that the machine has before its first boot.
	variables map[string][]byte
}

// disk is a disk of a machine.
type disk struct {
	qemu.Disk // without File
	prepare   func(path string) error
}

// rootDisk is a disk that is large enough for the agent's default root disk.
func rootDisk() disk {
	return disk{Disk: qemu.Disk{Bus: qemu.Virtio, Size: 5 * gib, Serial: "ROOT"}}
}

// noMultipath is a kernel parameter that saves time in an emulated machine: udev does not search for several paths to a
// disk. In the machine of ironic-python-agent, the programs that udev starts also read the agent's parameters.
const noMultipath = "nompath"

// ramdisk is kernel and initramfs of a machine.
type ramdisk struct{ kernel, initramfs string }

// machine is a running machine with an agent, an Ironic and a server of images.
type machine struct {
	t         *testing.T
	vm        *qemu.Machine
	namespace *netns.Namespace
	conductor *scriptedIronic
	images    *imageserver.Server
	control   ipa.Control
	disks     map[string]qemu.Disk // by serial number
	order     []string             // serial numbers in the order of QEMU's disks
	contents  contents             // what requests can refer to
}

// boot starts a machine. Its agent does not run before play.
func boot(t *testing.T, rd ramdisk, s shape) *machine {
	t.Helper()
	testenv.Programs(t, "qemu-system-x86_64")
	namespace, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.Close() })
	m := &machine{t: t, namespace: namespace, conductor: &scriptedIronic{}, disks: map[string]qemu.Disk{}}
	m.control.Namespace = namespace
	m.serve()
	dir := t.TempDir()
	config := qemu.Config{
		Name: t.Name(), Dir: dir, Memory: s.memory, Firmware: s.firmware, NetNS: namespace.Path(),
		Kernel: rd.kernel, Initrd: rd.initramfs,
		Append: fmt.Sprintf("console=ttyS0,115200n8 loglevel=4 net.ifnames=0 %s ipa-api-url=http://%s:%d",
			strings.TrimSpace(qemu.KernelHints+" "+s.append), hostAddress, apiPort),
		NICs: append([]qemu.NIC{{MAC: nodeMAC, Model: s.nic, Forwards: []qemu.Forward{
			{Host: agentPort, Guest: agentPort}, {Host: ipa.ControlPort, Guest: ipa.ControlPort},
		}}}, s.nics...),
		Extra: s.extra,
	}
	if config.Memory == 0 {
		config.Memory = 3 << 30
	}
	for _, d := range s.disks {
		d.File = filepath.Join(dir, d.Serial)
		m.disks[d.Serial], m.order = d.Disk, append(m.order, d.Serial)
		if d.prepare != nil {
			if err := os.Truncate(d.File, 0); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if err := d.prepare(d.File); err != nil {
				t.Fatalf("disk %s: %v", d.Serial, err)
			}
		}
		config.Disks = append(config.Disks, d.Disk)
	}
	if err := setVariables(filepath.Join(dir, flashFile), s); err != nil {
		t.Fatal(err)
	}
	if m.vm, err = qemu.Start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.vm.Stop() // it may have ended already
		if t.Failed() {
			t.Logf("the console ends with\n%s", m.vm.Console().Tail(100))
		}
	})
	if _, err := m.vm.Console().Follow(testenv.Context(t, 30*time.Minute), ipa.Ready); err != nil {
		t.Fatalf("%v; the console ends with\n%s", err, m.vm.Console().Tail(60))
	}
	return m
}

// flashFile is the file of a machine's variables in its directory.
const flashFile = "vars.fd"

// setVariables creates the file of a machine's variables if the shape has some.
func setVariables(file string, s shape) error {
	if len(s.variables) == 0 {
		return nil
	}
	flash, err := qemu.NewFlash(file, s.firmware)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.variables)) {
		if err := flash.Set(qemu.GlobalVariable, name, s.variables[name]); err != nil {
			return err
		}
	}
	return nil
}

// serve starts Ironic and the server of images.
func (m *machine) serve() {
	m.t.Helper()
	listener, err := m.namespace.Listen(m.t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", apiPort))
	if err != nil {
		m.t.Fatal(err)
	}
	server := &http.Server{
		Handler: m.conductor, ConnState: m.conductor.connection, ReadHeaderTimeout: time.Minute,
	}
	go server.Serve(listener) //nolint:errcheck // returns when it is closed
	m.t.Cleanup(func() { _ = server.Close() })
	err = m.namespace.Do(func() (err error) {
		m.images, err = imageserver.New(imageserver.Options{Addr: fmt.Sprintf("127.0.0.1:%d", imagePort)})
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = m.images.Close() })
}

// start starts the agent for a scenario.
func (m *machine) start(ctx context.Context, s scenario) error {
	cmdline := fmt.Sprintf("ipa-api-url=http://%s:%d ipa-debug=1", hostAddress, apiPort)
	if strings.Contains(s.cmdline, "ipa-api-url") {
		cmdline = "ipa-debug=1"
	}
	return m.control.Start(ctx, strings.TrimSpace(cmdline+" "+s.cmdline),
		map[string]string{configFile: "[DEFAULT]\n" + s.config})
}

// client returns a client for the agent. The agent's certificate is not verified.
func (m *machine) client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return m.namespace.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", agentPort))
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // generated for this start
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// forget makes Ironic ignore the connections of an agent that was stopped. A server accepts connections in order: the
// reply on a new one shows that the agent's have been accepted.
func (m *machine) forget(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return m.namespace.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", apiPort))
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://ironic/none", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	m.conductor.forget()
	return response.Body.Close()
}

// observation holds the compared data of a scenario.
type observation struct {
	Ironic []ironicRequest       `json:"ironic,omitempty"`
	Agent  []exchange            `json:"agent,omitempty"`
	Disks  map[string]*diskState `json:"disks,omitempty"`
	Marked []string              `json:"marked,omitempty"`
	Files  map[string]string     `json:"files,omitempty"`
	Boot   *bootState            `json:"boot,omitempty"`
	// Passes is the number of times that the agent overwrote a disk, by serial number, rounded.
	Passes map[string]int64 `json:"passes,omitempty"`
	// problems are the requirements that this ramdisk violates. They do not depend on the recording.
	problems []string
}

// play runs a scenario with an agent of its own, or with the running one if shared, and returns what it observes.
func (m *machine) play(ctx context.Context, s scenario, shared bool) (observation, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	client := m.client()
	defer client.CloseIdleConnections()
	for _, r := range s.clear {
		x, _, err := send(ctx, client, r, "")
		if err != nil {
			return observation{}, err
		}
		if x.failed() {
			return observation{}, fmt.Errorf("%s, which clears the disks: %s", x.Request, encode(x.Body))
		}
	}
	for _, serial := range s.disks {
		if s.before != nil {
			if err := s.before(m.disks[serial].File); err != nil {
				return observation{}, fmt.Errorf("disk %s: %w", serial, err)
			}
		}
	}
	if !shared { // the former agent must send nothing to this scenario
		if err := m.control.Stop(ctx); err != nil {
			return observation{}, err
		}
		if err := m.forget(ctx); err != nil {
			return observation{}, err
		}
	}
	if err := m.clearMarked(s.marker); err != nil {
		return observation{}, err
	}
	reached := m.conductor.play(s)
	onDisks := len(s.disks) > 0 || s.marker != "" || len(s.files) > 0 || s.unwritten
	var written map[string]writes
	if onDisks {
		var err error
		if written, err = m.written(ctx); err != nil {
			return observation{}, err
		}
	}
	var o observation
	if !shared {
		if err := m.start(ctx, s); err != nil {
			return observation{}, err
		}
		select {
		case <-reached:
			o.Ironic = normaliseRequests(m.conductor.received())
		case <-ctx.Done():
			text, _ := m.control.Log(context.WithoutCancel(ctx)) // only helps to find the fault
			return observation{}, fmt.Errorf("request %s %d: %w; so far %v\n%s", s.until.kind, s.until.n, ctx.Err(),
				m.conductor.received(), text)
		}
	}
	if s.then != (until{}) {
		reached = m.conductor.await(s.then)
	}
	id := ""
	for _, r := range s.do {
		r.body = m.contents.fill(r.body)
		x, next, err := send(ctx, client, r, id)
		if err != nil {
			return observation{}, err
		}
		id = next
		if !r.hidden {
			o.Agent = append(o.Agent, recordedExchange(x))
		} else if x.failed() {
			return observation{}, fmt.Errorf("%s, which prepares the scenario: %s", x.Request, encode(x.Body))
		}
	}
	if s.then != (until{}) {
		select {
		case <-reached:
			o.Ironic = normaliseRequests(m.conductor.received())
		case <-ctx.Done():
			return observation{}, fmt.Errorf("request %s %d: %w", s.then.kind, s.then.n, ctx.Err())
		}
	}
	if s.boot {
		var err error
		if o.Boot, err = describeBoot(ctx, filepath.Join(m.vm.Dir(), flashFile)); err != nil {
			return observation{}, err
		}
	}
	if !onDisks {
		return o, nil
	}
	err := m.observeDisks(ctx, s, &o, written)
	return o, err
}

// observeDisks adds what a scenario left on the disks. before is the number of bytes that had been written to each disk
// before the scenario, by serial number.
func (m *machine) observeDisks(ctx context.Context, s scenario, o *observation, before map[string]writes) error {
	if err := m.control.Sync(ctx); err != nil {
		return err
	}
	written, err := m.written(ctx)
	if err != nil {
		return err
	}
	for serial, n := range before {
		written[serial] = writes{written[serial].bytes - n.bytes, written[serial].discarded - n.discarded}
	}
	if s.passes {
		if o.Passes, err = m.passes(s.disks, written); err != nil {
			return err
		}
	}
	if o.Files, err = readFiles(m.disks["ROOT"].File, s.files); err != nil {
		return err
	}
	if o.Marked, err = m.marked(s.marker); err != nil {
		return err
	}
	compared := slices.Concat(s.disks, o.Marked)
	if len(s.files) > 0 {
		compared = append(compared, "ROOT")
	}
	for _, serial := range m.order {
		if w := written[serial]; w != (writes{}) && (s.unwritten || !slices.Contains(compared, serial)) {
			o.problems = append(o.problems, fmt.Sprintf("%+v of the disk %s, which must not be written", w, serial))
		}
	}
	failed := slices.ContainsFunc(o.Agent, exchange.failed)
	if failed {
		s.ranges = nil
	}
	for _, serial := range s.disks {
		state, err := describeDisk(m.disks[serial].File, m.disks[serial].Sector, s.ranges)
		if err != nil {
			return fmt.Errorf("disk %s: %w", serial, err)
		}
		if o.Disks == nil {
			o.Disks = map[string]*diskState{}
		}
		o.Disks[serial] = normaliseDisk(state)
		if s.gpt && !failed && state.Table != nil && state.Table.Label == "gpt" {
			if err := checkGPT(m.disks[serial].File, max(512, m.disks[serial].Sector)); err != nil {
				o.problems = append(o.problems, fmt.Sprintf("disk %s: %v", serial, err))
			}
		}
	}
	o.problems = append(o.problems, contradictions(*o, m.disks, written)...)
	o.problems = append(o.problems, withoutBitmap(*o)...)
	return nil
}

// writes are the bytes of a disk that the machine has written and discarded.
type writes struct{ bytes, discarded int64 }

// written returns what the machine has written to each disk since its start, by serial number.
func (m *machine) written(ctx context.Context) (map[string]writes, error) {
	reply, err := m.vm.QMP(ctx, "query-blockstats", nil)
	if err != nil {
		return nil, err
	}
	var devices []struct {
		Device string `json:"qdev"`
		Stats  struct {
			Written   int64 `json:"wr_bytes"`
			Discarded int64 `json:"unmap_bytes"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(reply, &devices); err != nil {
		return nil, fmt.Errorf("query-blockstats: %w", err)
	}
	written := map[string]writes{}
	for i, serial := range m.order {
		id := fmt.Sprintf("disk%d", i)
		for _, d := range devices {
			if slices.Contains(strings.Split(d.Device, "/"), id) {
				written[serial] = writes{d.Stats.Written, d.Stats.Discarded}
			}
		}
		if _, ok := written[serial]; !ok {
			return nil, fmt.Errorf("query-blockstats: got no device %s in %s", id, reply)
		}
	}
	return written, nil
}

// passes returns how often each disk was overwritten: the bytes written divided by its size, rounded.
func (m *machine) passes(serials []string, written map[string]writes) (map[string]int64, error) {
	passes := map[string]int64{}
	for _, serial := range serials {
		info, err := os.Stat(m.disks[serial].File)
		if err != nil {
			return nil, err
		}
		passes[serial] = (written[serial].bytes + info.Size()/2) / info.Size()
	}
	return passes, nil
}
