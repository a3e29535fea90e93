package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// load is Load on a machine with IPv6 whose result must be free of errors.
func load(t *testing.T, s Sources) *Config {
	t.Helper()
	if s.HasIPv6 == nil {
		s.HasIPv6 = new(true)
	}
	c, err := Load(s)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Parity: C2
func TestFileBeatsKernelParameter(t *testing.T) {
	dir := t.TempDir()
	s := Sources{
		Params: ParseCmdline("ipa-listen-port=1111 ipa-advertise-port=2222"),
		Files:  []string{writeFile(t, dir, "a.conf", "[DEFAULT]\nlisten_port = 3333\n"), filepath.Join(dir, "missing")},
	}
	c := load(t, s)
	if c.ListenPort != 3333 {
		t.Errorf("listen_port: got %d, want the file's 3333", c.ListenPort)
	}
	if c.AdvertisePort != 2222 {
		t.Errorf("advertise_port: got %d, want the kernel parameter's 2222", c.AdvertisePort)
	}
}

// Parity: C3
func TestPrecedence(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "10.conf", "[DEFAULT]\nlisten_host=file10\nadvertise_host=file10\nnetwork_interface=file10\n"+
		"log_file=file10\n[mdns]\nlookup_attempts=7\n")
	writeFile(t, dir, "20.conf", "[DEFAULT]\nlisten_host=file20\nadvertise_host=file20\nnetwork_interface=file20\n")
	writeFile(t, dir, "30.txt", "[DEFAULT]\nlisten_host=not a conf file\n")
	c := load(t, Sources{
		ConfigDirs: []string{dir, filepath.Join(dir, "missing")},
		Environ: []string{
			"OS_DEFAULT__LISTEN_HOST=environment", "OS_DEFAULT__ADVERTISE_HOST=environment",
			"OS_MDNS__LOOKUP_ATTEMPTS=8", "OS_DEFAULT__DESTRUCTIVE=true",
		},
		Args: []string{"--listen_host", "flag", "--debug"},
	})
	tests := []struct{ name, got, want string }{
		{"listen_host", c.ListenHost, "flag"},
		{"advertise_host", c.AdvertiseHost, "environment"},
		{"network_interface", c.NetworkInterface, "file20"},
		{"log_file", c.LogFile, "file10"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, tt.got, tt.want)
		}
	}
	if !c.Debug {
		t.Error("--debug: got false, want true")
	}
	if c.MDNS.LookupAttempts != 8 {
		t.Errorf("mdns.lookup_attempts: got %d, want the environment's 8", c.MDNS.LookupAttempts)
	}
	if c.Destructive {
		t.Error("destructive was set by the environment; only the flag may")
	}
}

// Parity: C3
func TestFlagSpellings(t *testing.T) {
	dir := t.TempDir()
	extra := writeFile(t, dir, "extra.conf", "log_dir=/extra\n")
	for _, args := range [][]string{
		{"--listen_port", "80", "--guard-special-filesystems=no", "--standalone", "--destructive"},
		{"--listen-port=80", "--guard_special_filesystems=0", "--standalone=yes", "--destructive=true"},
	} {
		c := load(t, Sources{Args: append(args, "--config-file", extra, "--config-dir="+dir)})
		if c.ListenPort != 80 || c.GuardSpecialFilesystems || !c.Standalone || !c.Destructive || c.LogDir != "/extra" {
			t.Errorf("%q: got port %d, guard %v, standalone %v, destructive %v, log dir %q", args, c.ListenPort,
				c.GuardSpecialFilesystems, c.Standalone, c.Destructive, c.LogDir)
		}
	}
}

func TestFlagErrors(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--no-such-flag"}, "--no-such-flag"},
		{[]string{"positional"}, "positional"},
		{[]string{"--listen-port"}, "--listen-port needs a value"},
		{[]string{"--use_mdns"}, "--use_mdns"},
		{[]string{"--config-file", "/nonexistent/a.conf"}, "/nonexistent/a.conf"},
		{[]string{"--config-dir", "/nonexistent"}, "/nonexistent"},
		{[]string{"--debug=maybe"}, `flag --debug: got "maybe"`},
	} {
		if _, err := Load(Sources{Args: tt.args}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got error %v, want one with %q", tt.args, err, tt.want)
		}
	}
	for _, arg := range []string{"-h", "--help"} {
		if _, err := Load(Sources{Args: []string{arg}}); !errors.Is(err, ErrHelp) {
			t.Errorf("%s: got error %v, want ErrHelp", arg, err)
		}
	}
}

// Parity: C4
func TestKernelDebugOverridesFiles(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		cmdline, file string
		args          []string
		want          bool
	}{
		{"ipa-debug=1", "debug=false", nil, true},
		{"ipa-debug=1", "debug=false", []string{"--debug=false"}, true},
		{"ipa-debug=0", "debug=true", nil, false},
		{"", "debug=true", nil, true},
	} {
		c := load(t, Sources{
			Params: ParseCmdline(tt.cmdline), Files: []string{writeFile(t, dir, "a.conf", tt.file)}, Args: tt.args,
		})
		if c.Debug != tt.want {
			t.Errorf("%q, file %q, flags %q: got debug %v, want %v", tt.cmdline, tt.file, tt.args, c.Debug, tt.want)
		}
	}
}

// Parity: C5
func TestBooleanSpellings(t *testing.T) {
	for _, tt := range []struct {
		text string
		want bool
	}{
		{"1", true},
		{"t", true},
		{"true", true},
		{"on", true},
		{"y", true},
		{"yes", true},
		{"TRUE", true},
		{"Yes", true},
		{"0", false},
		{"f", false},
		{"false", false},
		{"off", false},
		{"n", false},
		{"no", false},
		{"OFF", false},
	} {
		c := load(t, Sources{Params: Params{"ipa-insecure": tt.text, "ipa-guard-special-filesystems": tt.text}})
		if c.Insecure != tt.want || c.GuardSpecialFilesystems != tt.want {
			t.Errorf("%q: got %v and %v, want %v", tt.text, c.Insecure, c.GuardSpecialFilesystems, tt.want)
		}
	}
}

// Parity: C5
func TestInvalidValues(t *testing.T) {
	for _, tt := range []struct {
		cmdline string
		want    []string // must all be in the error
	}{
		{"ipa-insecure=maybe", []string{"insecure", "ipa-insecure", `"maybe"`, "boolean"}},
		{"ipa-insecure=", []string{"ipa-insecure", `""`}},
		{"ipa-listen-port=http", []string{"listen_port", "ipa-listen-port", `"http"`, "0 to 65535"}},
		{"ipa-listen-port=65536", []string{`"65536"`, "0 to 65535"}},
		{"ipa-ip-lookup-attempts=0", []string{"ip_lookup_attempts", `"0"`, "at least 1"}},
		{"ipa-inject-files-priority=100", []string{`"100"`, "from 0 to 99"}},
		{"ipa-lookup-timeout=99999999999999", []string{"ipa-lookup-timeout"}},
		{"ipa-lldp-timeout=nan", []string{"ipa-lldp-timeout", `"nan"`}},
		{"ipa-tls-min-version=1.1", []string{"tls_min_version", `"1.1"`, "1.2, 1.3"}},
		{"ipa-api-url=ftp://host", []string{"api_url", "ftp://host", "http://"}},
		{"ipa-api-url=http://a,b", []string{"api_url", "http://a,b"}},
		{"ipa-api-url=http://2001:db8::1:6385", []string{"api_url", "http://2001:db8::1:6385", "brackets"}},
		{"ipa-api-url=http://a:99999/", []string{"api_url", "http://a:99999/", "URLs with a host"}},
		{"ipa-api-url=http://u:hidden@a:0", []string{"api_url", "got a URL with a user, want URLs with a host"}},
		{"ipa-api-url=http://u:hid#den@a", []string{"api_url", "got a URL with a user, want URLs with a host"}},
		{"ipa-api-url=ftp://u:hidden@a", []string{"api_url", "got a URL with a user, want mdns or"}},
		{"ipa-api-url=http://u:%zzhidden@a", []string{"api_url", "got a URL with a user, want URLs with a host"}},
		{"ipa-syslog-server=udp://u:hidden@a", []string{"syslog_server", "want udp://HOST:PORT"}},
		{"ipa-api-url=http:///v1", []string{"api_url", "http:///v1", "URLs with a host"}},
		{"ipa-listen-host=[::", []string{"listen_host", "[::", "brackets"}},
		{"ipa-advertise-host=[::1]:9999", []string{"advertise_host", "[::1]:9999", "brackets"}},
		{"ipa-advertise-host=10.0.0.256", []string{"advertise_host", "10.0.0.256", "host name or an IP address"}},
		{"ipa-syslog-server=udp://a:syslog", []string{"syslog_server", "udp://a:syslog"}},
		{"ipa-syslog-server=udp://:514", []string{"syslog_server", "udp://:514", `got ""`}},
		{"ipa-syslog-server=http://a", []string{"syslog_server", "http://a", "want udp://HOST:PORT"}},
		{"ipa-ntp-server=a:0", []string{"ntp_server", `port "0"`}},
		{"ipa-ntp-server=a;reboot", []string{"ntp_server", "a;reboot"}},
		{"ipa-ironic-api-version=latest", []string{"ironic_api_version", "latest"}},
		{"ipa-debug=perhaps", []string{"ipa-debug", "perhaps"}},
		{"ipa-listen-port=x ipa-advertise-port=y", []string{"ipa-listen-port", "ipa-advertise-port"}},
	} {
		_, err := Load(Sources{Params: ParseCmdline(tt.cmdline)})
		if err == nil {
			t.Errorf("%q: got no error", tt.cmdline)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got error %v, want %q in it", tt.cmdline, err, want)
			}
		}
		if strings.Contains(err.Error(), "hid") {
			t.Errorf("%q: got error %v, which has the password", tt.cmdline, err)
		}
	}
	for _, url := range []string{
		"http://ironic:/v1", "https://ironic.bücher.example", "http://u:p@[2001:db8::1]:6385/v1",
	} {
		if c := load(t, Sources{Params: Params{"ipa-api-url": url}}); c.APIURL != url {
			t.Errorf("%s: got %s, want it unchanged", url, c.APIURL)
		}
	}
}

// Forms of numbers that ironic-python-agent accepts. An empty one is not set.
//
// Parity: C5 (numbers)
func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		cmdline, file string
		want          int
	}{
		{"ipa-advertise-port=7_001", "", 7001},
		{"ipa-advertise-port=+007001", "", 7001},
		{"", "advertise_port = ' 7001 '", 7001},
		{"ipa-advertise-port=", "", 9999},
		{"ipa-advertise-port=7001", "advertise_port =", 9999},
		{"ipa-advertise-port=", "advertise_port = 7001", 7001},
	} {
		c := load(t, Sources{
			Params: ParseCmdline(tt.cmdline), Files: []string{writeFile(t, t.TempDir(), "a.conf", tt.file)},
		})
		if c.AdvertisePort != tt.want {
			t.Errorf("%q, file %q: got %d, want %d", tt.cmdline, tt.file, c.AdvertisePort, tt.want)
		}
	}
	for _, text := range []string{"_1", "1_", "1__0", "0x10", "1 0", "1.0"} {
		if _, err := Load(Sources{Params: Params{"ipa-advertise-port": text}}); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

// The names that options had before work in the environment as they do in files.
func TestAliasesInTheEnvironment(t *testing.T) {
	c := load(t, Sources{Environ: []string{"OS_SSL__CERT_FILE=/c", "OS_DEFAULT__TLS_KEY_FILE=/k"}})
	if c.TLSCertFile != "/c" || c.TLSKeyFile != "/k" {
		t.Errorf("got %q and %q, want /c and /k", c.TLSCertFile, c.TLSKeyFile)
	}
}

// A file of any size must not fill the memory.
func TestFileTooLarge(t *testing.T) {
	dir := t.TempDir()
	comment := "# " + strings.Repeat("x", 1<<20)
	_, err := Load(Sources{Files: []string{writeFile(t, dir, "large.conf", comment)}})
	if err == nil || !strings.Contains(err.Error(), "large.conf") || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("got %v, want an error that names the file and the limit", err)
	}
	load(t, Sources{Files: []string{writeFile(t, dir, "largest.conf", comment[:1<<20])}})
}

func TestErrorsNameEverySource(t *testing.T) {
	file := writeFile(t, t.TempDir(), "a.conf", "listen_port=x")
	_, err := Load(Sources{
		Files: []string{file}, Environ: []string{"OS_DEFAULT__LISTEN_PORT=y"}, Args: []string{"--listen_port=z"},
	})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"file " + file, "environment OS_DEFAULT__LISTEN_PORT", "flag --listen_port"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
}

// Parity: C5
func TestUnknownKernelParametersAreTolerated(t *testing.T) {
	c := load(t, Sources{
		Params: ParseCmdline(ironicAppend + " ipa-driver-name=x ipa-agent-token-required=1 lldp-timeout=x"),
	})
	if c.APIURL != "http://10.0.0.1:6385" || !c.Insecure || c.Params["BOOTIF"] != "52:54:00:1a:15:d6" {
		t.Errorf("got api_url %q, insecure %v, BOOTIF %q", c.APIURL, c.Insecure, c.Params["BOOTIF"])
	}
	if c.Params["selinux"] != "0" {
		t.Errorf("Params[selinux]: got %q, want 0", c.Params["selinux"])
	}
}

// Parity: C6
func TestIPLookupTimeoutSetsTheSleep(t *testing.T) {
	if c := load(t, Sources{Params: ParseCmdline("ipa-ip-lookup-timeout=17")}); c.IPLookupSleep != 17*time.Second {
		t.Errorf("ip_lookup_sleep: got %v, want 17s", c.IPLookupSleep)
	}
}

func TestFileForm(t *testing.T) {
	file := writeFile(t, t.TempDir(), "a.conf", `# comment
api_url = http://a:6385/,  https://b/ ; not a comment = kept
[DEFAULT]
; another comment
listen_host: "a.example"
permitted_image_formats = raw,
    qcow2 ,
    gpt
no_such_option = 1
[ssl]
cert_file=/c
key_file=/k
[mdns]
params = a:b, c:d:e
use-mdns=yes
[container]
run_options=
[disk_utils]
efi_system_partition_size=2
[no_such_group]
x=y
`)
	c := load(t, Sources{Files: []string{file}})
	if got := strings.Join(c.PermittedImageFormats, "|"); got != "raw|qcow2|gpt" {
		t.Errorf("permitted_image_formats: got %s", got)
	}
	if c.ListenHost != "a.example" || c.TLSCertFile != "/c" || c.TLSKeyFile != "/k" || !c.MDNS.UseMDNS {
		t.Errorf("got %q, %q, %q, %v", c.ListenHost, c.TLSCertFile, c.TLSKeyFile, c.MDNS.UseMDNS)
	}
	if c.MDNS.Params["a"] != "b" || c.MDNS.Params["c"] != "d:e" || len(c.Container.RunOptions) != 0 {
		t.Errorf("got params %v, run options %q", c.MDNS.Params, c.Container.RunOptions)
	}
	if c.DiskUtils.EFISystemPartitionSize != 2<<20 {
		t.Errorf("efi_system_partition_size: got %d bytes, want 2 MiB", c.DiskUtils.EFISystemPartitionSize)
	}
	for _, broken := range []string{"[DEFAULT\n", "just words\n"} {
		if _, err := Load(Sources{Files: []string{writeFile(t, t.TempDir(), "broken.conf", broken)}}); err == nil ||
			!strings.Contains(err.Error(), "broken.conf") {
			t.Errorf("%q: got error %v, want one that names the file", broken, err)
		}
	}
}

func TestAPIURLs(t *testing.T) {
	c := &Config{APIURL: " http://a:6385/ ,,https://b//", InspectionCallbackURL: "http://a/v1/continue/,http://b"}
	if got := strings.Join(c.APIURLs(), " "); got != "http://a:6385 https://b" {
		t.Errorf("APIURLs: got %s", got)
	}
	if got := strings.Join(c.InspectionCallbackURLs(), " "); got != "http://a/v1/continue/ http://b" {
		t.Errorf("InspectionCallbackURLs: got %s", got)
	}
	c = &Config{APIURL: "mdns", InspectionCallbackURL: "mdns"}
	if len(c.APIURLs())+len(c.InspectionCallbackURLs()) != 0 {
		t.Errorf("mdns: got URLs %q and %q", c.APIURLs(), c.InspectionCallbackURLs())
	}
}
