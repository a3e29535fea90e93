package inspection

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/agent/journal"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
)

// noise returns bytes that gzip cannot compress.
func noise(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	return data
}

// A machine with 512 disks, 256 network cards and 64 MiB of logs that cannot be compressed: the inspection's data have
// at most 16 MiB and are no deeper than Ironic allows. They contain all disks and cards, and say what was truncated.
//
// Parity: T6
func TestLargeMachine(t *testing.T) {
	const disks, cards, maxDepth = 512, 256, 25
	m := newMachine(t, &config.Config{InspectionCollectors: "default,pci-devices,logs"})
	var list []block.Device
	for n := range disks {
		name := fmt.Sprintf("sd%d", n)
		list = append(list, block.Device{Name: name, Path: "/dev/" + name, Size: 8 << 40, Serial: name})
	}
	for n := range cards - 1 { // newMachine has one
		write(t, m.System, fmt.Sprintf("sys/class/net/eth%d/address", n+1), fmt.Sprintf("52:54:00:00:00:%02x\n", n))
		write(t, m.System, fmt.Sprintf("sys/class/net/eth%d/device/vendor", n+1), "0x1af4\n")
	}
	m.Inventory = inventory.New(inventory.Options{
		System: m.System,
		Disks:  disktest.List(list),
	})
	m.Journal = journal.New(io.Discard, nil, 64<<20)
	for line := range slices.Chunk(noise(48<<20), 3000) { // 64 MiB in base64
		m.Journal.Logger().Info(base64.StdEncoding.EncodeToString(line))
	}
	m.Journal.Logger().Info("the last line")
	if _, err := m.Journal.Keep("noise", noise(15<<20)); err != nil {
		t.Fatal(err)
	}
	var body received
	m.Ironic = &body
	if _, err := Run(t.Context(), m.Options); err != nil {
		t.Fatal(err)
	}
	if len(body) > 16<<20 || len(body) < 8<<20 {
		t.Errorf("got %d bytes, want 16 MiB at most, and use of most of them", len(body))
	}
	if got := depth(t, body); got > maxDepth {
		t.Errorf("got depth %d, want %d at most", got, maxDepth)
	}
	var got struct {
		Inventory inventory.Inventory
		Error     *string
		Truncated []string
		Logs      []byte // base64
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Inventory.Disks) != disks || len(got.Inventory.Interfaces) != cards || got.Error != nil {
		t.Errorf("got %d disks, %d cards and error %v, want %d, %d and none",
			len(got.Inventory.Disks), len(got.Inventory.Interfaces), got.Error, disks, cards)
	}
	if len(got.Truncated) != 1 || !strings.HasPrefix(got.Truncated[0], "logs: ") {
		t.Errorf("truncated: got %q, want the logs", got.Truncated)
	}
	files := testenv.Untar(t, got.Logs)
	cut := files["truncated"]
	if !strings.Contains(cut, "journal: last ") || !strings.Contains(cut, "noise: first ") ||
		!strings.HasSuffix(files["journal"], "the last line\n") || !strings.Contains(files["lshw"], "sd511") {
		t.Errorf("got truncated %q, the journal's end %q, want both named, the last line, and the inventory",
			cut, files["journal"][max(0, len(files["journal"])-80):])
	}
}

// depth returns how deep the arrays and objects of a JSON text are nested.
func depth(t *testing.T, text []byte) (deepest int) {
	t.Helper()
	current := 0
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return deepest
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			current++
			deepest = max(deepest, current)
		case json.Delim('}'), json.Delim(']'):
			current--
		}
	}
}

func TestBodyError(t *testing.T) {
	i := &inspection{data: map[string]any{"inventory": 1, "dmi": make(chan int)}}
	body, err := i.body(t.Context(), maxBodyBytes)
	if err == nil || !strings.HasPrefix(err.Error(), "encode inspection data: dmi: ") || body != nil {
		t.Errorf("got %q and %v, want an error that names dmi", body, err)
	}
}

// Data of optional collectors are left out, the largest first, and named. The inventory never is.
func TestReduce(t *testing.T) {
	for _, c := range []struct {
		name     string
		sizes    map[string]int
		limit    int
		keys     string // that remain
		notes    []string
		tooLarge bool
	}{
		{
			name: "all fit", sizes: map[string]int{"inventory": 100, "pci_devices": 100}, limit: 1000,
			keys: "inventory pci_devices",
		},
		{
			name: "the largest is enough", sizes: map[string]int{"inventory": 300, "pci_devices": 100, "data": 900},
			limit: 1000, keys: "inventory pci_devices truncated", notes: []string{"data: all 902 bytes left out"},
		},
		{
			name: "no space for logs", sizes: map[string]int{"inventory": 300, "logs": 900},
			limit: 1000, keys: "inventory truncated", notes: []string{"logs: all 902 bytes left out"},
		},
		{name: "inventory", sizes: map[string]int{"inventory": 1100, "dmi": 10}, limit: 1000, tooLarge: true},
	} {
		m := newMachine(t, &config.Config{})
		i := &inspection{Options: m.Options, data: map[string]any{}}
		for key, size := range c.sizes {
			i.data[key] = strings.Repeat("x", size)
		}
		body, err := i.body(t.Context(), c.limit)
		if c.tooLarge {
			if err == nil || !strings.Contains(err.Error(), "want at most 1000") {
				t.Errorf("%s: got %v, want an error with the limit", c.name, err)
			}
			continue
		}
		var parts map[string]json.RawMessage
		var notes []string
		if err != nil || json.Unmarshal(body, &parts) != nil {
			t.Fatalf("%s: got %q and %v", c.name, body, err)
		}
		_ = json.Unmarshal(parts[truncatedKey], &notes) // nil without notes
		if got := keys(parts); len(body) > c.limit || got != c.keys || fmt.Sprint(notes) != fmt.Sprint(c.notes) {
			t.Errorf("%s: got %d bytes, keys %q, notes %q, want %d, %q, %q",
				c.name, len(body), got, notes, c.limit, c.keys, c.notes)
		}
	}
}

// received implements [Receiver].
type received []byte

func (r *received) PostInspection(_ context.Context, body []byte) (string, error) {
	*r = body
	return "", nil
}
