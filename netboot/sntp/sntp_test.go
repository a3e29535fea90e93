package sntp

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"ironroot/netboot/sntp/sntptest"
)

func TestAsk(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		server := sntptest.Start(t, address, sntptest.Reply{Ahead: -40 * 365 * 24 * time.Hour})
		answer, err := Ask(t.Context(), server.Address())
		if err != nil {
			t.Fatal(err)
		}
		if off := (answer.Offset() + 40*365*24*time.Hour).Abs(); off > time.Second {
			t.Errorf("%s: got a time that is off by %v", address, off)
		}
		if d := time.Since(answer.Now()) - 40*365*24*time.Hour; d.Abs() > time.Second {
			t.Errorf("%s: Now is %v off", address, d)
		}
	}
}

// What a server says about itself, and what others say in its name, is not taken for the time.
func TestAskRefuses(t *testing.T) {
	for want, reply := range map[string]sntptest.Reply{
		`kiss of death, code "RATE"`: {Kiss: "RATE"},
		"stratum 16":                 {Stratum: 16},
		"leap indicator 3":           {Unsynced: true},
		"origin timestamp":           {OtherOrigin: true},
		"no answer":                  {Silent: true},
	} {
		server := sntptest.Start(t, "127.0.0.1:0", reply)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := Ask(ctx, server.Address())
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), server.Address()) {
			t.Errorf("got error %v, want one that names the server and says %q", err, want)
		}
	}
	server := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Silent: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ask(ctx, server.Address()); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want the context's", err)
	}
}

// A question that is lost is asked again.
func TestAskAgain(t *testing.T) {
	server := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Silent: true})
	go func() {
		for server.Asked() == 0 {
			time.Sleep(time.Millisecond)
		}
		server.Set(sntptest.Reply{})
	}()
	if _, err := Ask(t.Context(), server.Address()); err != nil || server.Asked() != 2 {
		t.Errorf("got %v after %d questions, want an answer to the second one", err, server.Asked())
	}
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1 123", "2001:db8::1": "2001:db8::1 123", "fe80::1%eth0": "fe80::1%eth0 123",
		"ntp.example": "ntp.example 123", "ntp.example:1123": "ntp.example 1123", "[2001:db8::1]:5": "2001:db8::1 5", ":5": ":5 123",
	} {
		if host, service := Address(text); host+" "+service != want {
			t.Errorf("%s: got %s and %s, want %s", text, host, service, want)
		}
	}
}

// An answer of chronyd 4.3, a server without a reference of its own, to a question with the transmit timestamp
// 0123456789abcdef.
const captured = "240800e600000000000000007f7f0101eeac32a62d35124e0123456789abcdefeeac32a81ca0c2b5eeac32a81ca5412a"

func TestParse(t *testing.T) {
	data, err := hex.DecodeString(captured)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	if got, want := p.transmit.Format(time.RFC3339), "2026-11-21T15:09:28Z"; got != want || p.stratum != 8 || hex.EncodeToString(p.origin[:]) != "0123456789abcdef" {
		t.Errorf("got %s, stratum %d, origin %x, want %s, 8 and that of the question", got, p.stratum, p.origin, want)
	}
}

func TestStamp(t *testing.T) {
	for want, data := range map[string][8]byte{
		"0001-01-01T00:00:00Z":   {},
		"1970-01-01T00:00:00Z":   {0x83, 0xaa, 0x7e, 0x80},
		"2036-02-07T06:28:15Z":   {0xff, 0xff, 0xff, 0xff},
		"2036-02-07T06:28:16.5Z": {0, 0, 0, 0, 0x80},
		"2100-01-01T00:00:00Z":   {0x78, 0x30, 0xd5, 0x80},
	} {
		if got := stamp(data[:]).Format(time.RFC3339Nano); got != want {
			t.Errorf("%x: got %s, want %s", data, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	if data, err := hex.DecodeString(captured); err == nil {
		f.Add(data)
	}
	for _, reply := range []sntptest.Reply{{}, {Kiss: "DENY"}, {Stratum: 16}, {Unsynced: true}, {At: time.Unix(0, 0)}, {Ahead: 80 * 365 * 24 * time.Hour}} {
		f.Add(sntptest.Answer([48]byte{}, reply))
	}
	f.Add([]byte("too short"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parse(data)
		if err != nil || p.check() != nil {
			return
		}
		if p.transmit.Before(p.receive) || p.transmit.Year() < 1968 || p.transmit.Year() > 2104 || p.stratum == 0 || p.stratum > 15 {
			t.Errorf("believed %+v", p)
		}
	})
}
