package inspection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
)

func TestBootMAC(t *testing.T) {
	for bootif, want := range map[string]string{
		"01-52-54-00-1A-15-D6": "52:54:00:1a:15:d6",
		"52:54:00:1a:15:d6":    "52:54:00:1a:15:d6",
		"52-54-00-1a-15-d6":    "52:54:00:1a:15:d6",
		"":                     "",
	} {
		if got := bootMAC(bootif); got != want {
			t.Errorf("bootMAC(%q): got %q, want %q", bootif, got, want)
		}
	}
}

// links is a network whose addresses, by MAC, the test changes.
type links struct {
	mu        sync.Mutex
	addresses map[string]string // nil: cannot be read
	next      chan struct{}
}

func newLinks(addresses map[string]string) *links {
	return &links{addresses: addresses, next: make(chan struct{})}
}

func (l *links) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

func (l *links) change(addresses map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addresses = addresses
	close(l.next)
	l.next = make(chan struct{})
}

func (l *links) Interfaces(context.Context) ([]inventory.Interface, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.addresses == nil {
		return nil, errors.New("netlink: no buffer space available")
	}
	var list []inventory.Interface
	for mac, address := range l.addresses {
		i := inventory.Interface{Name: fmt.Sprintf("eth%d", len(list)), MACAddress: mac}
		if address != "" {
			i.IPv4Address = &address
		}
		list = append(list, i)
	}
	return list, nil
}

// Parity: H1
func TestWaitDHCP(t *testing.T) {
	const boot, other = "52:54:00:1a:15:d6", "52:54:00:1a:15:d7"
	for _, tt := range []struct {
		name   string
		config config.Config
		first  map[string]string // addresses by MAC when the wait begins
		second map[string]string // after a change 3 s later; nil: no change
		want   time.Duration
	}{
		{
			"boot interface has its address",
			config.Config{Params: config.Params{"BOOTIF": "01-" + boot}},
			map[string]string{boot: "192.0.2.1", other: ""},
			nil, 0,
		},
		{
			"boot interface gets it later",
			config.Config{Params: config.Params{"BOOTIF": "01-" + boot}},
			map[string]string{boot: "", other: "192.0.2.2"},
			map[string]string{boot: "192.0.2.1", other: "192.0.2.2"},
			3 * time.Second,
		},
		{
			"boot interface never gets one",
			config.Config{Params: config.Params{"BOOTIF": boot}},
			map[string]string{boot: "", other: "192.0.2.2"},
			nil, time.Minute,
		},
		{
			"boot interface appears later",
			config.Config{Params: config.Params{"BOOTIF": boot}},
			map[string]string{other: "192.0.2.2"},
			map[string]string{boot: "192.0.2.1"},
			3 * time.Second,
		},
		{
			"interfaces cannot be read at first",
			config.Config{InspectionDHCPAllInterfaces: true},
			nil,
			map[string]string{boot: "192.0.2.1"},
			3 * time.Second,
		},
		{"no BOOTIF", config.Config{}, map[string]string{boot: ""}, nil, 0},
		{
			"all interfaces",
			config.Config{InspectionDHCPAllInterfaces: true, Params: config.Params{"BOOTIF": boot}},
			map[string]string{boot: "192.0.2.1", other: ""},
			map[string]string{boot: "192.0.2.1", other: "192.0.2.2"},
			3 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := tt.config
				c.InspectionDHCPWaitTimeout = time.Minute
				network := newLinks(tt.first)
				i := &inspection{
					Options: Options{Config: config.NewLive(&c), Network: network, Log: slog.New(slog.DiscardHandler)},
				}
				i.links = network
				if tt.second != nil {
					go func() {
						time.Sleep(3 * time.Second) // in the bubble's time
						network.change(tt.second)
					}()
				}
				started := time.Now()
				if err := i.waitDHCP(t.Context()); err != nil {
					t.Error(err)
				}
				if got := time.Since(started); got != tt.want {
					t.Errorf("got a wait of %v, want %v", got, tt.want)
				}
				synctest.Wait()
			})
		})
	}
}

// unlisted fails the test if the interfaces are listed.
type unlisted struct{ t *testing.T }

func (u unlisted) Interfaces(context.Context) ([]inventory.Interface, error) {
	u.t.Error("the interfaces were listed")
	return nil, nil
}

func TestWaitDHCPSwitchedOff(t *testing.T) {
	c := config.Config{Params: config.Params{"BOOTIF": "52:54:00:1a:15:d6"}}
	i := &inspection{
		Options: Options{Config: config.NewLive(&c), Network: newLinks(nil), Log: slog.New(slog.DiscardHandler)},
	}
	i.links = unlisted{t: t}
	if err := i.waitDHCP(t.Context()); err != nil {
		t.Error(err)
	}
}
