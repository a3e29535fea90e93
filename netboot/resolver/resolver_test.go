package resolver

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFileIsKeptUntilServersAreKnown(t *testing.T) {
	addrs := func(list ...string) (servers []netip.Addr) {
		for _, text := range list {
			servers = append(servers, netip.MustParseAddr(text))
		}
		return servers
	}
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("nameserver 203.0.113.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := NewFile(path)
	for _, c := range []struct {
		sources []Names
		want    string
	}{
		{sources: []Names{{}, {Search: []string{"a.example"}}}, want: "nameserver 203.0.113.1\n"},
		{
			sources: []Names{
				{Servers: addrs("192.0.2.1", "192.0.2.2"), Search: []string{"a.example"}},
				{Servers: addrs("198.51.100.1", "192.0.2.1"), Search: []string{"b.example", "a.example"}},
			},
			want: "nameserver 192.0.2.1\nnameserver 198.51.100.1\nnameserver 192.0.2.2\nsearch a.example b.example\n",
		},
	} {
		if err := f.Write(func() []Names { return c.sources }); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("directory: got %v, %v, want the file alone", entries, err)
	}
}

func TestFileInMissingDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc", "resolv.conf")
	f := NewFile(path)
	if err := f.Write(func() []Names { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("without name servers: got %v, want no directory", err)
	}
	if err := f.Write(func() []Names {
		return []Names{{Servers: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "nameserver 192.0.2.1\n" {
		t.Errorf("got %q, %v, want the name server", got, err)
	}
}

func TestIsDomainName(t *testing.T) {
	label := strings.Repeat("a", 63)
	for name, want := range map[string]bool{
		"example.com": true, "a_b.Example-1.com": true, label + ".example": true,
		"": false, "a..b": false, "example.com.": false, "-a.example": false, label + "a.example": false,
		"a b": false, "a\nnameserver 192.0.2.1": false, strings.Repeat(label+".", 3) + label: false,
	} {
		if got := IsDomainName(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}
