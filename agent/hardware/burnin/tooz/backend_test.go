package tooz

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]Backend{
		"zookeeper://zk.example":              {Hosts: []string{"zk.example:2181"}},
		"kazoo://192.0.2.1:1234/":             {Hosts: []string{"192.0.2.1:1234"}},
		"zookeeper://a,b:1,[2001:db8::1]:2/x": {Hosts: []string{"a:2181", "b:1", "[2001:db8::1]:2"}},
		"zookeeper://[2001:db8::1]":           {Hosts: []string{"[2001:db8::1]:2181"}},
		"zookeeper://?hosts=a,b&hosts=c:7":    {Hosts: []string{"a:2181", "b:2181", "c:7"}},
		"zookeeper://a?hosts=b:1":             {Hosts: []string{"a:2181", "b:1"}},
		"zookeeper://u:p%40%2F@a?timeout=2.5": {
			Hosts: []string{"a:2181"}, user: "u", password: "p@/", session: 2500 * time.Millisecond,
		},
		"ZooKeeper://a?randomize_hosts=0#answer": {Hosts: []string{"a:2181"}},
	} {
		if want.session == 0 {
			want.session = 10 * time.Second
		}
		got, err := ParseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, *got, cmp.AllowUnexported(Backend{})); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", text, diff)
		}
	}
}

// Errors name what is wrong, and no password.
func TestParseURLFailures(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "got no URL of a backend",
		"192.0.2.1:2181":               "got no URL of a backend",
		"etcd3+http://u:hidden@a":      `backend "etcd3+http" is not supported, want zookeeper`,
		"etcd3://a":                    `backend "etcd3" is not supported`,
		"redis://a":                    `backend "redis" is not supported`,
		"memcached://a":                `backend "memcached" is not supported`,
		"mysql://a":                    `backend "mysql" is not supported`,
		"postgresql://a":               `backend "postgresql" is not supported`,
		"consul://a":                   `backend "consul" is not supported`,
		"file:///hidden":               `backend "file" is not supported`,
		"ipc://":                       `backend "ipc" is not supported`,
		"zake://":                      `backend "zake" is not supported`,
		"zookeeper://":                 "got no host",
		"zookeeper://a:b":              `got port "b" of "a:b", want a number`,
		"zookeeper://a:0":              `got port "0"`,
		"zookeeper://a:65536":          `got port "65536"`,
		"zookeeper://:1":               `got "", want a host name`,
		"zookeeper://a,":               `got "", want a host name`,
		"zookeeper://[::1":             `got "[::1", want an IPv6 address in brackets`,
		"zookeeper://a?timeout=0":      `option timeout: got "0"`,
		"zookeeper://a?timeout=NaN":    `option timeout: got "NaN"`,
		"zookeeper://a?timeout=1e300":  `option timeout: got "1e300"`,
		"zookeeper://a?use_ssl=true":   "option use_ssl is not supported",
		"zookeeper://a?%zz":            "options: invalid URL escape",
		"zookeeper://hidden@a":         "invalid user",
		"zookeeper://u:hid/hidden@a":   "invalid user",
		"zookeeper://u:p?hidden@a":     "invalid user",
		"zookeeper://u:p#hidden@a":     "invalid user",
		"zookeeper://hidden:1234/x@a":  "invalid user",
		"zookeeper://u:hidden@x@a":     "invalid user",
		"zookeeper://u:hidden%zz@a":    "invalid user",
		"zookeeper://%zz:hidden@a":     "invalid user",
		"zookeeper://:hidden@a":        "invalid user",
		"zookeeper://u:hidden@a:b":     `port "b" of "a:b"`,
		"zookeeper://u:hidden@a?x=y":   "option x is not supported",
		"zookeeper://u:hidden@":        "got no host",
		"u:hidden":                     "got no URL of a backend",
		"zookeeper://u:hidden@a?\x00=": "option",
	} {
		_, err := ParseURL(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestCheckGroup(t *testing.T) {
	for name, valid := range map[string]bool{
		"ironic.network-burnin": true, "a": true, "": false, "a/b": false, ".": false, "..": false, "locks": false,
		"a b": false, "a\n": false, "é": false, "a\x7f": false,
	} {
		if err := CheckGroup(name); (err == nil) != valid {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

// Contenders are ordered by their numbers, and other nodes are ignored.
func TestPredecessor(t *testing.T) {
	list := []string{
		"b__lock__0000000003", "a__lock__0000000010", "z__lock__0000000002", "c__lock__000000000",
		"d__rlock__0000000001",
		"e__lock__00000000x1", "__lock__0000000011",
	}
	for own, want := range map[string]string{
		"z__lock__0000000002": "", "b__lock__0000000003": "z__lock__0000000002",
		"a__lock__0000000010": "b__lock__0000000003", "__lock__0000000011": "a__lock__0000000010",
	} {
		if got := predecessor(list, own); got != want {
			t.Errorf("%s: got %q, want %q", own, got, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("zookeeper://u:p%40@a:1,[::1]:2?timeout=5&hosts=b")
	f.Add("kazoo://")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseURL(text)
		if err != nil {
			return
		}
		if len(b.Hosts) == 0 || b.session < time.Second || (b.user == "") != (b.password == "") {
			t.Errorf("got %+v", b)
		}
	})
}
