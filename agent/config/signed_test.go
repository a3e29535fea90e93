package config

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// unsignedFiles marks files as parts of virtual media.
func unsignedFiles(paths ...string) *Unsigned {
	u := &Unsigned{Params: map[string]bool{}, Files: map[string]bool{}}
	for _, path := range paths {
		u.Files[path] = true
	}
	return u
}

// A signed image with secure settings, and a file of virtual media that tries to replace them.
func TestUnsignedFile(t *testing.T) {
	dir := t.TempDir()
	own := writeFile(t, dir, "10.conf", "[DEFAULT]\ncafile=/etc/own.pem\ndebug=false\n")
	medium := writeFile(t, dir, "50.conf",
		"[DEFAULT]\ncafile=/etc/other.pem\ninsecure=true\nlookup_timeout=22\ndebug=true\napi_url=https://ironic\n")
	s := Sources{Files: []string{own, medium}}
	if c := load(t, s); c.CAFile != "/etc/other.pem" || !c.Insecure || c.Signed || len(c.Unused()) != 0 {
		t.Errorf("image without a signature: got cafile %s, insecure %t, signed %t, unused %v",
			c.CAFile, c.Insecure, c.Signed, c.Unused())
	}
	s.Unsigned = unsignedFiles(medium)
	c := load(t, s)
	if c.CAFile != "/etc/own.pem" || c.Insecure || !c.Signed {
		t.Errorf("signed image: got cafile %s, insecure %t, signed %t", c.CAFile, c.Insecure, c.Signed)
	}
	if c.LookupTimeout != 22*time.Second || c.APIURL != "https://ironic" || c.Debug {
		t.Errorf("other options: got timeout %v, URL %s, debug %t, want those of the medium, and the image's debug",
			c.LookupTimeout, c.APIURL, c.Debug)
	}
	var reported []string
	for _, u := range c.Unused() {
		reported = append(reported, u.Name)
	}
	want := []string{"cafile of file " + medium, "debug of file " + medium, "insecure of file " + medium}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("reported settings (-want +got):\n%s", diff)
	}
	// A path in another form is the same file.
	s.Files[1] = filepath.Join(dir, "..", filepath.Base(dir)) + "//50.conf"
	if c := load(t, s); c.Insecure {
		t.Error("path in another form: insecure was set")
	}
}

// Parameters of media are refused by name, unless they are open and the image does not contain them.
func TestUnsignedParameters(t *testing.T) {
	params := ParseCmdline("ipa-insecure=1 ironroot.shell=1 rootpwd=x sshkey=y ipa-debug=1 ipa-api-url=https://a " +
		"ipa-standalone=1 ipa-lookup-timeout=5 BOOTIF=1 ironroot.network_disks=1 unknown=1 =2")
	own := func(name string) bool { return name == "ipa-debug" }
	got := map[string]error{}
	for _, r := range params.DropRefused(own) {
		got[r.Name] = r.Reason
	}
	want := map[string]error{
		"ipa-insecure": errClosed, "ironroot.shell": errClosed, "rootpwd": errClosed, "sshkey": errClosed,
		"ipa-standalone": errClosed, "ironroot.network_disks": errClosed, "": errClosed, "ipa-debug": errFromImage,
	}
	if !maps.Equal(got, want) {
		t.Errorf("refused: got %v, want %v", got, want)
	}
	kept := slices.Sorted(maps.Keys(params))
	if diff := cmp.Diff([]string{"BOOTIF", "ipa-api-url", "ipa-lookup-timeout"}, kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	// Load ignores closed ones, too.
	c := load(t, Sources{
		Params:   ParseCmdline("ipa-insecure=1"),
		Unsigned: &Unsigned{Params: map[string]bool{"ipa-insecure": true}},
	})
	if c.Insecure {
		t.Error("ipa-insecure of virtual media was set")
	}
	known := ParseCmdline("ipa-insecure=1 rootpwd=x part=of-a-secret").KnownNames()
	if diff := cmp.Diff([]string{"ipa-insecure", "rootpwd"}, known); diff != "" {
		t.Errorf("known names (-want +got):\n%s", diff)
	}
}

func TestAllowsNetworkDisks(t *testing.T) {
	for _, tt := range []struct {
		cmdline string
		signed  bool
		want    bool
	}{
		{"", false, true},
		{"ironroot.network_disks=0", false, true},
		{"", true, false},
		{"ironroot.network_disks=0", true, false},
		{"ironroot.network_disks=", true, false},
		{"ironroot.network_disks=1", true, true},
	} {
		if got := ParseCmdline(tt.cmdline).AllowsNetworkDisks(tt.signed); got != tt.want {
			t.Errorf("%q, signed %t: got %t, want %t", tt.cmdline, tt.signed, got, tt.want)
		}
	}
}

// openOptions are the options that sources outside of a signed image can set. Before adding one, see Source.
const openOptions = "api_url media, global_request_id media, ip_lookup_attempts media, ip_lookup_sleep media, " +
	"lookup_timeout media, lookup_interval media, lldp_timeout media mdns, collect_lldp media mdns, " +
	"inspection_callback_url media mdns, inspection_collectors media mdns, " +
	"inspection_dhcp_wait_timeout media mdns, inspection_dhcp_all_interfaces media mdns, " +
	"hardware_initialization_delay media, agent_token media, image_download_connection_timeout media, " +
	"image_download_connection_retries media, image_download_connection_retry_interval media, " +
	"image_download_max_duration media, image_download_min_rate media, erase_evidence_key media, " +
	"http_request_timeout media, progress_interval media, debug media mdns"

// Every option says which sources outside of a signed image can set it.
func TestSourcesOfOptions(t *testing.T) {
	classes := []string{"none", "media", "mdns", "media,mdns"}
	var open []string
	for _, o := range options() {
		tag := reflect.TypeFor[Config]().FieldByIndex(o.index).Tag.Get("unsigned")
		if !slices.Contains(classes, tag) {
			t.Errorf("%s: tag unsigned in agent/config/config.go: got %q, want one of %q", o.fullName(), tag, classes)
		}
		if tag != "none" {
			open = append(open, o.fullName()+" "+strings.ReplaceAll(tag, ",", " "))
		}
	}
	if diff := cmp.Diff(strings.Split(openOptions, ", "), open); diff != "" {
		t.Errorf("tags unsigned in config.go differ from openOptions in signed_test.go (-openOptions +tags):\n%s", diff)
	}
}

// Each kernel parameter that the ramdisk reads belongs to an option, or is in one of the two lists of others.
func TestParametersAreClassified(t *testing.T) {
	indexed := regexp.MustCompile(`[pP]arams(?:\(\))?\["([^"]+)"\]`)
	for _, root := range []string{"..", "../../netboot", "../../uinit"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err == nil && d.IsDir() && d.Name() == "testdata":
				return fs.SkipDir
			case err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range indexed.FindAllSubmatch(text, -1) {
				if known, _ := parameterClass(string(match[1])); !known {
					t.Errorf("%s reads the parameter %s: neither mediaParams nor closedParams in "+
						"agent/config/signed.go lists it, and no option in config.go has it", path, match[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Of a medium and of multicast DNS, each option is accepted or ignored as its tag says, and the report names the option
// and the source, but no value.
func TestEachOptionFromUnsignedSource(t *testing.T) {
	for _, o := range options() {
		if o.flagOnly {
			continue
		}
		value := sample(t, o)
		if slices.Contains(ironicURLs, o.fullName()) {
			value = "https://x"
		}
		medium := writeFile(t, t.TempDir(), "50.conf", "["+o.group+"]\n"+o.name+"="+value+"\n")
		s := Sources{Files: []string{medium}, HasIPv6: new(true)}
		if slices.Contains(ironicURLs, o.fullName()) {
			s.Files = append(s.Files, writeFile(t, t.TempDir(), "90.conf", ownCA))
		}
		set := func(c *Config) bool { return !sameValue(o.value(c), o.value(load(t, Sources{}))) }
		if c := load(t, s); !set(c) {
			t.Errorf("%s=%s: got the default in an image without a signature", o.fullName(), value)
		}
		s.Unsigned = unsignedFiles(medium)
		c := load(t, s)
		if got, want := set(c), o.opensTo(FromMedia); got != want {
			t.Errorf("%s of a medium: set %t, want %t", o.fullName(), got, want)
		}
		reported := slices.ContainsFunc(c.Unused(), func(u Unused) bool {
			return u.Name == o.fullName()+" of file "+medium && !strings.Contains(u.Reason, value)
		})
		if reported == o.opensTo(FromMedia) {
			t.Errorf("%s of a medium: reported %t", o.fullName(), reported)
		}
		if err := c.Accept(FromMDNS, o.fullName(), value); (err == nil) != o.opensTo(FromMDNS) {
			t.Errorf("%s by multicast DNS: got %v", o.fullName(), err)
		}
		// Values that the image sets stay.
		initial := asWritten(t, o, o.value(load(t, Sources{})))
		own := writeFile(t, t.TempDir(), "60.conf", "["+o.group+"]\n"+o.name+"="+initial+"\n")
		for _, files := range [][]string{{own, medium}, {medium, own}} {
			s.Files = files
			c := load(t, s)
			if set(c) {
				t.Errorf("%s: the medium replaced the value of the image", o.fullName())
			}
			if err := c.Accept(FromMDNS, o.fullName(), value); err == nil {
				t.Errorf("%s: multicast DNS replaced the value of the image", o.fullName())
			}
		}
	}
}

// A token of a medium counts as unverified, unless the image has one, and is ignored without an Ironic.
func TestUnsignedToken(t *testing.T) {
	for _, tt := range []struct {
		cmdline, file string // of the image
		token         string
		unverified    bool
	}{
		{token: "medium", unverified: true},
		{file: "agent_token=image", token: "image"},
		{file: "standalone=true", token: ""},
	} {
		own := writeFile(t, t.TempDir(), "10.conf", "[DEFAULT]\n"+tt.file+"\n")
		s := Sources{Params: Params{"ipa-agent-token": "medium"}, Files: []string{own}, Unsigned: unsignedFiles()}
		s.Unsigned.Params["ipa-agent-token"] = true
		c := load(t, s)
		if c.AgentToken != tt.token || c.TokenUnverified != tt.unverified {
			t.Errorf("%q: got token %q, unverified %t, want %q, %t",
				tt.file, c.AgentToken, c.TokenUnverified, tt.token, tt.unverified)
		}
		s.Unsigned = nil
		if c := load(t, s); c.AgentToken == "" || c.TokenUnverified {
			t.Errorf("%q without a signature: got token %q, unverified %t", tt.file, c.AgentToken, c.TokenUnverified)
		}
	}
}

// Files that options of the image name must be of the image, but the key for evidence, which no image contains.
func TestUnsignedNamedFile(t *testing.T) {
	for _, o := range options() {
		if o.check != "file" {
			continue
		}
		named := filepath.Join(t.TempDir(), "named.pem")
		own := writeFile(t, t.TempDir(), "own.conf", "["+o.group+"]\n"+o.name+"="+named+"\n")
		_, err := Load(Sources{Files: []string{own}, Unsigned: unsignedFiles(named), HasIPv6: new(true)})
		if (err == nil) != (o.name == "erase_evidence_key") || err != nil && !strings.Contains(err.Error(), named) {
			t.Errorf("%s: got %v", o.fullName(), err)
		}
	}
}

// ownCA is a file of the image with the authority of Ironic.
const ownCA = "[DEFAULT]\ncafile=/etc/ironic.pem\n"

// A URL of Ironic from virtual media does not lead to a server that proves nothing, or that only a public authority has
// certified.
func TestUnsignedURL(t *testing.T) {
	const inspection = "ipa-inspection-callback-url"
	for _, tt := range []struct {
		name, cmdline, file string
		unsigned            []string // parameters
		public              bool     // the image has no authority of Ironic
		ok                  bool
	}{
		{name: "signed http", cmdline: "ipa-api-url=http://a", ok: true},
		{name: "floppy https", cmdline: "ipa-api-url=https://a", unsigned: []string{"ipa-api-url"}, ok: true},
		{name: "floppy http", cmdline: "ipa-api-url=http://a", unsigned: []string{"ipa-api-url"}},
		{name: "floppy both", cmdline: "ipa-api-url=https://a,http://b", unsigned: []string{"ipa-api-url"}},
		{name: "floppy mdns", cmdline: "ipa-api-url=mdns", unsigned: []string{"ipa-api-url"}, ok: true},
		{
			name: "signed insecure", cmdline: "ipa-insecure=1 ipa-api-url=http://a", unsigned: []string{"ipa-api-url"},
			ok: true,
		},
		{
			name: "unsigned insecure", cmdline: "ipa-insecure=1 ipa-api-url=http://a",
			unsigned: []string{"ipa-api-url", "ipa-insecure"},
		},
		{
			name: "boot ISO http", cmdline: "ipa-api-url=https://a", file: "[DEFAULT]\napi_url=http://b\n",
			unsigned: []string{"ipa-api-url"},
		},
		{
			name: "boot ISO, signed URL", cmdline: "ipa-api-url=https://a", file: "[DEFAULT]\napi_url=http://b\n",
			ok: true,
		},
		{
			name: "boot ISO https", cmdline: "ipa-api-url=http://a", file: "[DEFAULT]\napi_url=https://b\n",
			unsigned: []string{"ipa-api-url"}, ok: true,
		},
		{name: "inspection https", cmdline: inspection + "=https://a", unsigned: []string{inspection}, ok: true},
		{name: "inspection http", cmdline: inspection + "=http://a", unsigned: []string{inspection}},
		{name: "inspection other", cmdline: inspection + "=//a", unsigned: []string{inspection}},
		{name: "signed inspection http", cmdline: inspection + "=http://a", ok: true},
		{name: "public, floppy", cmdline: "ipa-api-url=https://a", unsigned: []string{"ipa-api-url"}, public: true},
		{name: "public, mdns", cmdline: "ipa-api-url=mdns", unsigned: []string{"ipa-api-url"}, public: true},
		{name: "public, boot ISO", file: "[DEFAULT]\napi_url=https://b\n", public: true},
		{name: "public, inspection", cmdline: inspection + "=https://a", unsigned: []string{inspection}, public: true},
		{name: "public, signed", cmdline: "ipa-api-url=https://a", public: true, ok: true},
		{
			name: "public, signed insecure", cmdline: "ipa-insecure=1 ipa-api-url=http://a",
			unsigned: []string{"ipa-api-url"}, public: true, ok: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := writeFile(t, t.TempDir(), "50.conf", tt.file)
			s := Sources{
				Params: ParseCmdline(tt.cmdline), Files: []string{file}, Unsigned: unsignedFiles(file),
				HasIPv6: new(true),
			}
			for _, name := range tt.unsigned {
				s.Unsigned.Params[name] = true
			}
			want := "option cafile is not set in the signed image"
			if !tt.public {
				s.Files = append(s.Files, writeFile(t, t.TempDir(), "90.conf", ownCA))
				want = "want https"
			}
			_, err := Load(s)
			if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want success: %t, otherwise %s", err, tt.ok, want)
			}
			s.Unsigned = nil
			if _, err := Load(s); err != nil {
				t.Errorf("image without a signature: got %v", err)
			}
		})
	}
}

// Copies of a configuration remain signed: the live one is a copy.
func TestSignedIsCloned(t *testing.T) {
	c := load(t, Sources{Unsigned: unsignedFiles()})
	if live := NewLive(c).Get(); !live.Signed || !slices.Equal(live.ignored, c.ignored) {
		t.Errorf("got signed %t, want true", live.Signed)
	}
}
