package hostname

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, tt := range []struct{ text, want string }{ // want is "" for an error
		{"ironic", "ironic"},
		{"Ironic.example.com", "Ironic.example.com"},
		{"ironic.example.com.", "ironic.example.com."},
		{"my_host-1", "my_host-1"},
		{"3com.example", "3com.example"},
		{"10.0.0.1", "10.0.0.1"},
		{"::", "::"},
		{"2001:db8::10", "2001:db8::10"},
		{"[2001:db8::10]", "2001:db8::10"},
		{"[2001:DB8:0:0::0010]", "2001:db8::10"},
		{"::ffff:10.0.0.1", "::ffff:10.0.0.1"},
		{"fe80::1%eth0", "fe80::1%eth0"},
		{"[fe80::1%eth0.100]", "fe80::1%eth0.100"},
		{long + "." + long + "." + long + "." + long[:61], long + "." + long + "." + long + "." + long[:61]},

		{"", ""},
		{"[]", ""},
		{".", ""},
		{"a..b", ""},
		{".example", ""},
		{"-a", ""},
		{"a-", ""},
		{"a b", ""},
		{" a", ""},
		{"a\n", ""},
		{"a;reboot", ""},
		{"http://a", ""},
		{"a/b", ""},
		{"user@a", ""},
		{"a:80", ""},
		{"é.example", ""},
		{"[ironic]", ""},
		{"[10.0.0.1]", ""},
		{"[[::1]]", ""},
		{"[::1", ""},
		{"::1]", ""},
		{"[::1]:80", ""},
		{"fe80::1%", ""},
		{"fe80::1%a b", ""},
		{"fe80::1%an-interface-too-long", ""},
		{"10.0.0.256", ""},
		{"10.0.0", ""},
		{"010.0.0.1", ""},
		{"0x7f.0.0.0x1", ""},
		{"2001:db8::g", ""},
		{long + "a", ""},
		{long + "." + long + "." + long + "." + long[:62], ""},
	} {
		got, err := Parse(tt.text)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q: got %q, %v, want %q", tt.text, got, err, tt.want)
		}
		if err != nil && !strings.Contains(err.Error(), "got ") {
			t.Errorf("%q: got %v, want an error with the value", tt.text, err)
		}
	}
}

func TestParsePort(t *testing.T) {
	for _, tt := range []struct{ text, host, port string }{ // "" for an error
		{"a", "a", "123"},
		{"a:1", "a", "1"},
		{"10.0.0.1:65535", "10.0.0.1", "65535"},
		{"2001:db8::1", "2001:db8::1", "123"},
		{"2001:db8::1:6385", "2001:db8::1:6385", "123"},
		{"[2001:db8::1]", "2001:db8::1", "123"},
		{"[2001:db8::1]:1123", "2001:db8::1", "1123"},
		{"[fe80::1%eth0]:1123", "fe80::1%eth0", "1123"},
		{"fe80::1%eth0", "fe80::1%eth0", "123"},

		{"", "", ""},
		{":", "", ""},
		{":1", "", ""},
		{"a:", "", ""},
		{"a:0", "", ""},
		{"a:65536", "", ""},
		{"a:-1", "", ""},
		{"a:+1", "", ""},
		{"a:ntp", "", ""},
		{"a:1:2", "", ""},
		{"[a]:1", "", ""},
		{"[::1]:", "", ""},
		{"[::1]1", "", ""},
		{"]:1", "", ""},
	} {
		host, port, err := ParsePort(tt.text, "123")
		if host != tt.host || port != tt.port || (err == nil) != (tt.host != "") {
			t.Errorf("%q: got %q, %q, %v, want %q, %q", tt.text, host, port, err, tt.host, tt.port)
		}
	}
}

// A parsed host and port keep their form.
func FuzzParsePort(f *testing.F) {
	for _, text := range []string{"a", "[::1]:1", "fe80::1%eth0", "10.0.0.1:1", "]:"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, port, err := ParsePort(text, "123")
		if err != nil {
			return
		}
		if again, err := Parse(host); again != host || err != nil {
			t.Errorf("%q: got %q from %q, %v, want it unchanged", text, again, host, err)
		}
		joined := host + ":" + port
		if strings.Contains(host, ":") {
			joined = "[" + host + "]:" + port
		}
		if h, p, err := ParsePort(joined, ""); h != host || p != port || err != nil {
			t.Errorf("%q: got %q and %q, %v, want %q and %q", joined, h, p, err, host, port)
		}
		if address, err := netip.ParseAddr(host); err == nil && address.String() != host {
			t.Errorf("%q: got %s, want %s", text, host, address)
		}
	})
}
