package config

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ipaOptions is ironic-python-agent's list of options: group.option, kernel parameter, type (S string, B boolean,
// I integer, F float, P port, L list, D map) and default, with "-" for none. Integers end in their unit, and
// ranges stand behind them.
const ipaOptions = `
api_url ipa-api-url S -
global_request_id ipa-global-request-id S -
listen_host ipa-listen-host S ::
listen_port ipa-listen-port P 9999
listen_tls - B false
tls_cert_file - S -
tls_key_file - S -
enable_auto_tls - B true
auto_tls_allowed_clock_skew - I>=0 3600s
tls_min_version ipa-tls-min-version S 1.2
tls_cipher_suites ipa-tls-cipher-suites S -
tls_certificate_curve ipa-tls-certificate-curve S p384
advertise_host ipa-advertise-host S -
advertise_port ipa-advertise-port P 9999
advertise_protocol ipa-advertise-protocol S http
ip_lookup_attempts ipa-ip-lookup-attempts I>=1 6
ip_lookup_sleep ipa-ip-lookup-timeout I>=0 10s
network_interface ipa-network-interface S -
lookup_timeout ipa-lookup-timeout I>=0 600s
lookup_interval ipa-lookup-interval I>=0 1s
lldp_timeout ipa-lldp-timeout F 30.0s
collect_lldp ipa-collect-lldp B false
inspection_callback_url ipa-inspection-callback-url S -
inspection_collectors ipa-inspection-collectors S -
inspection_dhcp_wait_timeout ipa-inspection-dhcp-wait-timeout I>=0 60s
inspection_dhcp_all_interfaces ipa-inspection-dhcp-all-interfaces B false
hardware_initialization_delay ipa-hardware-initialization-delay I>=0 0s
disk_wait_attempts ipa-disk-wait-attempts I>=0 10
disk_wait_delay ipa-disk-wait-delay I>=0 3s
insecure ipa-insecure B false
cafile - S -
certfile - S -
keyfile - S -
introspection_daemon - B false
introspection_daemon_post_interval - I 300s
ntp_server ipa-ntp-server S -
fail_if_clock_not_set - B false
agent_token ipa-agent-token S -
image_server_user - S -
image_server_password - S -
image_server_auth_strategy - S noauth
image_download_connection_timeout ipa-image-download-connection-timeout I>=1 60s
image_download_connection_retries ipa-image-download-connection-retries I>=0 9
image_download_connection_retry_interval ipa-image-download-connection-retry-interval I>=0 10s
image_download_max_duration ipa-image-download-max-duration I>=0 0s
ironic_api_version ipa-ironic-api-version S -
enable_vlan_interfaces ipa-enable-vlan-interfaces S -
ignore_bootloader_failure ipa-ignore-bootloader-failure B false
inject_files_priority ipa-inject-files-priority I0-99 0
guard-special-filesystems ipa-guard-special-filesystems B true
enable_discard_erase ipa-enable-discard-erase B false
md5_enabled - B false
http_request_timeout ipa-http-request-timeout I>=1 30s
config_drive_rebuild - B false
disable_deep_image_inspection - B false
permitted_image_formats - L raw,gpt,qcow2
disable_bootc_deploy - B false
enable_bios_bootloader_install - B false
debug ipa-debug B false
log_file - S -
log_dir - S -
disk_utils.efi_system_partition_size - I 550MiB
disk_utils.bios_boot_partition_size - I 1MiB
disk_utils.dd_block_size - S 1M
disk_utils.partition_detection_attempts - I>=1 3
disk_utils.partprobe_attempts - I 10
disk_utils.image_convert_memory_limit - I 2048MiB
disk_utils.image_convert_attempts - I 3
disk_partitioner.check_device_interval - I 1s
disk_partitioner.check_device_max_retries - I 20
metrics.backend - S noop
metrics.prepend_host - B false
metrics.prepend_host_reverse - B true
metrics.global_prefix - S -
metrics_statsd.statsd_host - S localhost
metrics_statsd.statsd_port - P 8125
mdns.use_mdns ipa-use-mdns B false
mdns.allowed_overrides - L inspection_callback_url,ntp_server
mdns.lookup_attempts - I>=1 3
mdns.params - D -
mdns.interfaces - L -
container.allow_arbitrary_containers - B false
container.allowed_containers - L -
container.container_steps_file - S /etc/ironic-python-agent.d/mysteps.yaml
container.runner - S podman
container.pull_options - L -
container.run_options - L --rm,--network=host
`

func describe(o option) string {
	kind := map[string]string{
		"string": "S", "boolean": "B", "integer": "I", "float": "F", "port": "P", "list": "L", "map": "D",
	}[o.kind]
	switch {
	case o.kind == "port":
	case o.min != "" && o.max != "":
		kind += o.min + "-" + o.max
	case o.min != "":
		kind += ">=" + o.min
	case o.max != "":
		kind += "<=" + o.max
	}
	kernel, def := o.kernel, o.def
	if kernel == "" {
		kernel = "-"
	}
	switch {
	case def == "" && o.kind == "boolean":
		def = "false"
	case def == "":
		def = "-"
	default:
		def += o.unit
	}
	return strings.Join([]string{o.fullName(), kernel, kind, def}, " ")
}

// All options of ironic-python-agent are declared as it has them, in its order. Options of this agent alone stand
// between them.
//
// Parity: C1
func TestOptionsOfIronicPythonAgent(t *testing.T) {
	want := strings.Split(strings.TrimSpace(ipaOptions), "\n")
	names := map[string]bool{}
	for _, line := range want {
		name, _, _ := strings.Cut(line, " ")
		names[name] = true
	}
	var got []string
	for _, o := range options() {
		if names[o.fullName()] {
			got = append(got, describe(o))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options (-ironic-python-agent +declared):\n%s", diff)
	}
}

// Every option has a line of help, a field of its name, and no tag that the comment of Config does not explain.
func TestDeclarations(t *testing.T) {
	explained := tagsInComment(t)
	for _, o := range options() {
		field := reflect.TypeFor[Config]().FieldByIndex(o.index)
		if o.help == "" {
			t.Errorf("%s has no help", o.fullName())
		}
		if got, want := strings.ToLower(field.Name), strings.ReplaceAll(underscores(o.name), "_", ""); got != want {
			t.Errorf("%s is the field %s, want one called %s in any case", o.fullName(), field.Name, want)
		}
		for _, match := range regexp.MustCompile(`(\w+):"`).FindAllStringSubmatch(string(field.Tag), -1) {
			if !slices.Contains(explained, match[1]) {
				t.Errorf("%s has the tag %s, want one of %s", o.fullName(), match[1], strings.Join(explained, ", "))
			}
		}
	}
}

// Every exported field of Config is an option or a group, except those that no source sets.
func TestFieldsAreOptions(t *testing.T) {
	for i := range reflect.TypeFor[Config]().NumField() {
		field := reflect.TypeFor[Config]().Field(i)
		if field.Tag.Get("file") == "" && field.Tag.Get("group") == "" && field.IsExported() &&
			!slices.Contains([]string{"Params", "Signed", "TokenUnverified"}, field.Name) {
			t.Errorf("Config in agent/config/config.go declares %s without the tag file", field.Name)
		}
	}
}

// tagsInComment returns the names of tags in the comment of Config.
func tagsInComment(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, declaration := range file.Decls {
		d, ok := declaration.(*ast.GenDecl)
		if !ok || d.Tok != token.TYPE || d.Specs[0].(*ast.TypeSpec).Name.Name != "Config" {
			continue
		}
		for _, match := range regexp.MustCompile(`(?m)^\t(\w+) `).FindAllStringSubmatch(d.Doc.Text(), -1) {
			names = append(names, match[1])
		}
	}
	if len(names) == 0 {
		t.Fatal("the comment of Config explains no tags")
	}
	return names
}

// Each option has its declared default, in the unit of its field.
//
// Parity: C1
func TestDefaults(t *testing.T) {
	c := load(t, Sources{})
	for _, o := range options() {
		if got := asWritten(t, o, o.value(c)); got != o.def && (o.def != "" || got != "false") {
			t.Errorf("%s: got %q, want %q", o.fullName(), got, o.def)
		}
	}
	if c.Params == nil || len(c.Params) > 0 {
		t.Errorf("parameters: got %#v, want an empty map", c.Params)
	}
}

// asWritten returns a value as an operator would write it.
func asWritten(t *testing.T, o option, value reflect.Value) string {
	t.Helper()
	switch v := value.Interface().(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		if o.unit == "MiB" {
			return strconv.FormatInt(v/(1<<20), 10)
		}
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case time.Duration:
		if o.kind == "float" {
			return strconv.FormatFloat(v.Seconds(), 'f', 1, 64)
		}
		return strconv.FormatInt(int64(v/time.Second), 10)
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		if len(v) == 0 {
			return ""
		}
	}
	t.Fatalf("%s: no text for %#v", o.fullName(), value.Interface())
	return ""
}

// Numbers with fractions have bounds as integers have, and times among them are converted.
func TestFloats(t *testing.T) {
	var into struct {
		Share float64       `file:"share" min:"0" max:"1.5" unit:"%"`
		Above float64       `file:"above" min:"-0.5"`
		Below float64       `file:"below" max:"7"`
		Pause time.Duration `file:"pause" type:"float" unit:"s" min:"0.5"`
		Wrong float64       `file:"wrong" max:"many"`
	}
	fields := reflect.ValueOf(&into).Elem()
	list := declared(fields.Type())
	for _, tt := range []struct {
		option     int
		text, want string // want: the error, "" for none
	}{
		{0, " 0.25 ", ""},
		{0, "1.5", ""},
		{0, "1.51", `got "1.51", want a number from 0 to 1.5`},
		{0, "-0.1", "from 0 to 1.5"},
		{0, "nan", "from 0 to 1.5"},
		{1, "-0.5", ""},
		{1, "-0.6", `got "-0.6", want a number of at least -0.5`},
		{1, "inf", "at least -0.5"},
		{2, "7.0", ""},
		{2, "7.1", `got "7.1", want a number of at most 7`},
		{3, "0.75", ""},
		{3, "0.4", "at least 0.5"},
		{4, "1", "at most many"},
	} {
		err := list[tt.option].setField(fields.Field(tt.option), tt.text)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s = %q: got error %v, want %q", list[tt.option].name, tt.text, err, tt.want)
		}
	}
	if into.Share != 1.5 || into.Above != -0.5 || into.Below != 7 || into.Pause != 750*time.Millisecond {
		t.Errorf("got %+v", into)
	}
	for i, want := range []string{"float, %, 0 to 1.5", "float, ≥ -0.5", "float, ≤ 7", "float, s, ≥ 0.5"} {
		if got := list[i].typeText(); got != want {
			t.Errorf("type of %s: got %q, want %q", list[i].name, got, want)
		}
	}
	if o := list[0]; o.kind != "float" || o.flagText() != "share FLOAT" {
		t.Errorf("got kind %q and flag %q, want float and share FLOAT", o.kind, o.flagText())
	}
}

// Options that name a host have its address without brackets, in canonical form.
func TestHosts(t *testing.T) {
	c := load(t, Sources{Params: ParseCmdline("ipa-listen-host=[::1] ipa-advertise-host=[2001:DB8::0010] " +
		"ipa-ntp-server=[2001:db8::1] ipa-syslog-server=tcp://[fe80::1%25eth0]")})
	if err := c.Set("metrics_statsd.statsd_host", "[2001:db8::2]"); err != nil {
		t.Fatal(err)
	}
	_, syslog := c.Syslog()
	for _, tt := range []struct{ name, got, want string }{
		{"listen_host", c.ListenHost, "::1"},
		{"advertise_host", c.AdvertiseHost, "2001:db8::10"},
		{"ntp_server", c.NTPServer, "2001:db8::1"},
		{"syslog_server", syslog, "[fe80::1%eth0]:601"},
		{"metrics_statsd.statsd_host", c.MetricsStatsd.StatsdHost, "2001:db8::2"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, tt.got, tt.want)
		}
	}
	for text, want := range map[string]string{
		"ntp.example:1123": "ntp.example:1123", "[2001:DB8::1]:1123": "[2001:db8::1]:1123",
		"2001:db8::1": "2001:db8::1",
	} {
		if err := c.Set("ntp_server", text); err != nil || c.NTPServer != want {
			t.Errorf("%s: got %q, %v, want %q", text, c.NTPServer, err, want)
		}
	}
}

func TestListenHostWithoutIPv6(t *testing.T) {
	without := new(false)
	if c := load(t, Sources{HasIPv6: without}); c.ListenHost != "0.0.0.0" {
		t.Errorf("got %q, want 0.0.0.0", c.ListenHost)
	}
	c := load(t, Sources{HasIPv6: without, Params: Params{"ipa-listen-host": "10.0.0.1"}})
	if c.ListenHost != "10.0.0.1" {
		t.Errorf("got %q, want the operator's 10.0.0.1", c.ListenHost)
	}
}

// sample returns a value for an option that is not its default.
func sample(t *testing.T, o option) string {
	t.Helper()
	value := map[string]string{
		"string": "text", "boolean": "true", "integer": "7", "port": "7", "float": "7", "list": "x,y", "map": "x:y",
	}[o.kind]
	switch {
	case len(o.choices) > 0:
		value = o.choices[0]
		if value == o.def {
			value = o.choices[1]
		}
	case o.check != "":
		value = map[string]string{
			"urls": "http://x", "host": "x", "hostport": "x", "syslog": "udp://x", "version": "1.2", "file": "/x",
		}[o.check]
	case o.def == "true":
		value = "false"
	case o.kind == "integer" && !o.inRange(7), o.kind == "float" && !o.inRange(7):
		if value = o.min; value == o.def {
			value = o.max
		}
	}
	if value == "" || value == o.def {
		t.Fatalf("%s: no value to set it to", o.fullName())
	}
	return value
}

// TestEveryOptionIsSettable sets each option by its kernel parameter, file entry, environment variable and flag.
func TestEveryOptionIsSettable(t *testing.T) {
	dir := t.TempDir()
	for _, o := range options() {
		value := sample(t, o)
		sources := map[string]Sources{
			"file":        {Files: []string{writeFile(t, dir, "a.conf", "["+o.group+"]\n"+o.name+"="+value)}},
			"environment": {Environ: []string{o.envNames()[0] + "=" + value}},
		}
		if o.flagOnly {
			clear(sources)
		}
		if o.kernel != "" {
			sources["kernel"] = Sources{Params: Params{o.kernel: value}}
		}
		if o.group == defaultGroup {
			sources["flag"] = Sources{Args: []string{"--" + o.name + "=" + value}}
		}
		want := &Config{}
		if err := o.set(want, value); err != nil {
			t.Errorf("%s: %v", o.fullName(), err)
		}
		for source, s := range sources {
			got := o.value(load(t, s)).Interface()
			if diff := cmp.Diff(o.value(want).Interface(), got); diff != "" {
				t.Errorf("%s by %s (-want +got):\n%s", o.fullName(), source, diff)
			}
		}
	}
}

func TestSet(t *testing.T) {
	c := load(t, Sources{})
	for _, tt := range []struct {
		name  string
		value any
		want  string // in the error, "" for none
	}{
		{"container.runner", "docker", ""},
		{"container.run_options", []any{"--a=1,2", "--b"}, ""},
		{"container.allow_arbitrary_containers", true, ""},
		{"metrics_statsd.statsd_port", float64(1234), ""},
		{"md5_enabled", "true", ""},
		{"container.runner", "sh", "container.runner"},
		{"container.run_options", []any{1.0}, "run_options"},
		{"md5_enabled", float64(1), "boolean"},
		{"md5_enabled", nil, "boolean"},
		{"metrics_statsd.statsd_port", 1.5, "1.5"},
		{"container.runner", []any{"docker"}, "want a string"},
		{"mdns.params", "a:b,c", "key:value"},
		{"mdns.params", ":b", "key:value"},
		{"no_such", "x", "unknown"},
	} {
		err := c.Set(tt.name, tt.value)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("Set(%s, %v): got error %v, want %q", tt.name, tt.value, err, tt.want)
		}
	}
	if c.Container.Runner != "docker" || !c.Container.AllowArbitraryContainers || c.MetricsStatsd.StatsdPort != 1234 ||
		!c.MD5Enabled {
		t.Errorf("got %v", c)
	}
	if diff := cmp.Diff([]string{"--a=1,2", "--b"}, c.Container.RunOptions); diff != "" {
		t.Errorf("run_options (-want +got):\n%s", diff)
	}
}

func TestPrintingHidesSecrets(t *testing.T) {
	c := load(t, Sources{
		Params:  Params{"ipa-agent-token": "planted-token"},
		Environ: []string{"OS_DEFAULT__IMAGE_SERVER_PASSWORD=planted-password"},
	})
	for _, got := range []string{
		c.String(), fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprintf("%v %+v %#v", *c, *c, *c), c.LogValue().String(),
	} {
		if strings.Contains(got, "planted") {
			t.Errorf("got %q, want no secret in it", got)
		}
	}
	if want := "agent_token=*** image_server_password=***"; c.String() != want {
		t.Errorf("got %q, want %q", c.String(), want)
	}
}

// full is a writer without free space.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestReferenceAndUsage(t *testing.T) {
	var reference, usage bytes.Buffer
	if err := Reference(&reference); err != nil {
		t.Fatal(err)
	}
	if err := Usage(&usage); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## [DEFAULT]\n\n| Option | Kernel parameter | Type | Default | Meaning |\n|---|---|---|---|---|\n" +
			"| `api_url` | `ipa-api-url` | string | none |",
		"\n## [disk_utils]\n", "| `inject_files_priority` | `ipa-inject-files-priority` | integer, 0 to 99 | `0` |",
		"| `efi_system_partition_size` | – | integer, MiB | `550` |",
		"| `tls_min_version` | `ipa-tls-min-version` | 1.2 or 1.3 | `1.2` |",
		"| `ip_lookup_attempts` | `ipa-ip-lookup-attempts` | integer, ≥ 1 | `6` |",
	} {
		if !strings.Contains(reference.String(), want) {
			t.Errorf("reference lacks %q", want)
		}
	}
	if !strings.HasPrefix(reference.String(), "# Configuration of the agent\n") {
		t.Errorf("reference begins with %.40q, want an introduction", reference.String())
	}
	if strings.Contains(usage.String(), "--use-mdns") {
		t.Error("usage has a flag of group mdns, want those of the default group")
	}
	// Options without a heading follow under the heading of the option before.
	_, ironic, _ := strings.Cut(usage.String(), "\nIronic:\n")
	ironic, _, _ = strings.Cut(ironic, "\n\n")
	for _, want := range []string{"--api-url", "--global-request-id"} {
		if !strings.Contains(ironic, want+" ") {
			t.Errorf("usage: got %q under Ironic, want %s in it", ironic, want)
		}
	}
	for name, write := range map[string]func(io.Writer) error{"reference": Reference, "usage": Usage} {
		if err := write(full{}); !errors.Is(err, errFull) {
			t.Errorf("%s: got %v, want %v", name, err, errFull)
		}
	}
	if !strings.HasPrefix(usage.String(), "General:\n  --config-file FILE\n") {
		t.Errorf("usage begins with %.40q, want what every user needs", usage.String())
	}
	for _, want := range []string{
		"--listen-port PORT\n", "--standalone\n", "--destructive\n", "--config-dir DIR\n", "(default 600 s)",
		"\nIronic:\n  --api-url", "--tls-min-version 1.2|1.3\n",
		"--inject-files-priority INTEGER\n" +
			"        priority of the deploy and service step inject_files (default 0)\n",
		"--disable-bootc-deploy\n        refuse to deploy bootable containers\n",
	} {
		if !strings.Contains(usage.String(), want) {
			t.Errorf("usage lacks %q", want)
		}
	}
}

func TestLive(t *testing.T) {
	live := NewLive(load(t, Sources{}))
	before := live.Get()
	live.Update(func(c *Config) {
		c.Debug = true
		c.PermittedImageFormats[0] = "iso"
		c.Params["a"] = "b"
	})
	if before.Debug || before.PermittedImageFormats[0] != "raw" || before.Params["a"] != "" {
		t.Errorf("the snapshot changed: %v", before)
	}
	if after := live.Get(); !after.Debug || after.PermittedImageFormats[0] != "iso" || after.Params["a"] != "b" {
		t.Errorf("the update is lost: %v", after)
	}
}

// No update changes a snapshot, whichever list or map it edits in place.
func TestLiveSharesNothing(t *testing.T) {
	c := load(t, Sources{})
	var edits []func(*Config)
	for _, o := range options() {
		switch o.kind {
		case "list":
			edits = append(edits, func(c *Config) {
				reflect.ValueOf(c).Elem().FieldByIndex(o.index).Index(0).SetString("changed")
			})
			if err := o.set(c, "a,b"); err != nil {
				t.Fatal(err)
			}
		case "map":
			edits = append(edits, func(c *Config) {
				reflect.ValueOf(c).Elem().FieldByIndex(o.index).SetMapIndex(reflect.ValueOf("a"),
					reflect.ValueOf("changed"))
			})
			if err := o.set(c, "a:b"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(edits) < 7 {
		t.Fatalf("got %d lists and maps, want all", len(edits))
	}
	live := NewLive(c)
	before, shown := live.Get(), fmt.Sprintf("%+v %+v", live.Get().MDNS, live.Get().Container)
	for _, edit := range edits {
		live.Update(edit)
		edit(c) // the loaded configuration is not shared either
	}
	got := fmt.Sprintf("%+v %+v", before.MDNS, before.Container)
	if got != shown || before.PermittedImageFormats[0] != "a" {
		t.Errorf("the snapshot changed: got %s, want %s", got, shown)
	}
}

func TestSyslog(t *testing.T) {
	for text, want := range map[string][2]string{
		"":                          {},
		"udp://log.example":         {"udp", "log.example:514"},
		"tcp://192.0.2.1":           {"tcp", "192.0.2.1:601"},
		"tls://[2001:db8::1]/":      {"tls", "[2001:db8::1]:6514"},
		"tcp://log.example:10514":   {"tcp", "log.example:10514"},
		"log.example":               {},
		"http://log.example":        {},
		"udp://":                    {},
		"udp://u:p@log.example":     {},
		"udp://log.example/path":    {},
		"udp://log.example?x=y":     {},
		"udp://log.example:port":    {},
		"tls://log.example\x00:514": {},
	} {
		c, err := Load(Sources{Params: Params{"ipa-syslog-server": text}})
		if (err == nil) != (want[0] != "" || text == "") {
			t.Errorf("%q: got error %v", text, err)
		}
		if err != nil {
			continue
		}
		if transport, address := c.Syslog(); transport != want[0] || address != want[1] {
			t.Errorf("%q: got %s %s, want %v", text, transport, address, want)
		}
	}
}
