package ironic

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/agent/token"
)

// apply applies a response with the given config object to a configuration from flags.
func apply(
	t *testing.T, object string, tok *token.Token, args ...string,
) (*config.Config, *node.Cache, token.Outcome, string) {
	t.Helper()
	answer, err := parseAnswer([]byte(`{"heartbeat_timeout":300,"node":{"uuid":"` + nodeUUID + `"},"config":` +
		object + `}`))
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	var cache node.Cache
	live := settings(t, args...)
	logger := slog.New(slog.NewTextHandler(&log, nil))
	outcome := answer.AdoptToken(tok, &cache, "", logger)
	answer.Apply(live, &cache, logger)
	if cache.Get() == nil || cache.Get().UUID() != nodeUUID {
		t.Errorf("cached node: got %v, want %s", cache.Get(), nodeUUID)
	}
	return live.Get(), &cache, outcome, log.String()
}

// A preset token is not replaced by a response about another node than the cached or inspected one.
func TestAdoptTokenKeepsGivenTokenOfThisNode(t *testing.T) {
	const own, other = "the-token-that-was-agreed-upon-before-43-cha", "4f7d2a0e-31f5-4a0b-a6a5-0b8a3b0d7d5e"
	for _, tt := range []struct {
		inspected, cached string
		want              token.Outcome
	}{
		{"", "", token.Adopted},
		{nodeUUID, "", token.Adopted},
		{"", nodeUUID, token.Adopted},
		{other, nodeUUID, token.Adopted}, // the cached node takes precedence
		{other, "", token.Rejected},
		{"", other, token.Rejected},
	} {
		answer, err := parseAnswer([]byte(lookupAnswer(`{"heartbeat_timeout":300,"agent_token":"` + secret + `"}`)))
		if err != nil {
			t.Fatal(err)
		}
		var cache node.Cache
		if tt.cached != "" {
			known, err := node.FromJSON([]byte(`{"uuid":"` + tt.cached + `"}`))
			if err != nil {
				t.Fatal(err)
			}
			cache.Set(known)
		}
		var tok token.Token
		tok.Set(own)
		var log strings.Builder
		got := answer.AdoptToken(&tok, &cache, tt.inspected, slog.New(slog.NewTextHandler(&log, nil)))
		after := map[token.Outcome]string{token.Adopted: secret, token.Rejected: own}[tt.want]
		if got != tt.want || tok.Reveal() != after {
			t.Errorf("inspected %q, cached %q: got %v and %q, want %v and %q",
				tt.inspected, tt.cached, got, tok.Reveal(), tt.want, after)
		}
		if rejected := strings.Contains(log.String(), "preset token kept"); rejected != (tt.want == token.Rejected) {
			t.Errorf("inspected %q, cached %q: got log %q", tt.inspected, tt.cached, log.String())
		}
	}
}

// Parity: B15, K7 (permitted formats), U2 (default and Ironic's value)
func TestApplyEveryKey(t *testing.T) {
	for _, tt := range []struct {
		object string
		value  func(*config.Config) any
		want   any
	}{
		{`{"agent_md5_checksum_enable":true}`, func(c *config.Config) any { return c.MD5Enabled }, true},
		{`{"agent_md5_checksum_enable":false}`, func(c *config.Config) any { return c.MD5Enabled }, false},
		{`{"agent_md5_checksum_enable":null}`, func(c *config.Config) any { return c.MD5Enabled }, false},
		{
			`{"disable_deep_image_inspection":true}`,
			func(c *config.Config) any { return c.DisableDeepImageInspection }, true,
		},
		{
			`{"disable_deep_image_inspection":null}`,
			func(c *config.Config) any { return c.DisableDeepImageInspection }, false,
		},
		{
			`{"permitted_image_formats":["raw","iso"]}`, func(c *config.Config) any { return c.PermittedImageFormats },
			[]string{"raw", "iso"},
		},
		{`{"permitted_image_formats":[]}`, func(c *config.Config) any { return c.PermittedImageFormats }, []string{}},
		{
			`{"permitted_image_formats":null}`, func(c *config.Config) any { return c.PermittedImageFormats },
			[]string{"raw", "gpt", "qcow2"},
		},
		{
			`{"enable_bios_bootloader_install":true}`,
			func(c *config.Config) any { return c.EnableBIOSBootloaderInstall }, true,
		},
		{`{"tls_min_version":"1.3"}`, func(c *config.Config) any { return c.TLSMinVersion }, "1.3"},
		{`{"tls_min_version":""}`, func(c *config.Config) any { return c.TLSMinVersion }, "1.2"},
		{`{"tls_min_version":"9"}`, func(c *config.Config) any { return c.TLSMinVersion }, "1.2"},
		{
			`{"tls_cipher_suites":"ECDHE-RSA-AES128-GCM-SHA256"}`,
			func(c *config.Config) any { return c.TLSCipherSuites }, "ECDHE-RSA-AES128-GCM-SHA256",
		},
		{`{"tls_cipher_suites":null}`, func(c *config.Config) any { return c.TLSCipherSuites }, ""},
		{
			`{"tls_cipher_suites":"nonsense"}`, func(c *config.Config) any { return c.CipherSuites() },
			(&config.Config{}).CipherSuites(),
		},
		{
			`{"agent_containers":{"allow_arbitrary_containers":true,"allowed_containers":["a","b"],
				"container_steps_file":"/f",
			"runner":"docker","pull_options":["--p"],"run_options":["--r=1,2"]}}`,
			func(c *config.Config) any { return c.Container },
			config.Container{
				AllowArbitraryContainers: true, AllowedContainers: []string{"a", "b"}, ContainerStepsFile: "/f",
				Runner: "docker", PullOptions: []string{"--p"}, RunOptions: []string{"--r=1,2"},
			},
		},
		{
			`{"metrics":{"backend":"statsd","prepend_host":true,"prepend_uuid":true,"prepend_host_reverse":false,` +
				`"global_prefix":"x"}}`,
			func(c *config.Config) any { return c.Metrics },
			config.Metrics{Backend: "statsd", PrependHost: true, GlobalPrefix: "x"},
		},
		{
			`{"metrics_statsd":{"statsd_host":"h","statsd_port":1234}}`,
			func(c *config.Config) any { return c.MetricsStatsd },
			config.MetricsStatsd{StatsdHost: "h", StatsdPort: 1234},
		},
	} {
		c, _, _, _ := apply(t, tt.object, &token.Token{})
		if diff := cmp.Diff(tt.want, tt.value(c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.object, diff)
		}
	}
}

// Parity: B15
func TestApplyLeavesTheOperatorsPermission(t *testing.T) {
	c, _, _, _ := apply(t, `{"enable_bios_bootloader_install":false}`, &token.Token{},
		"--enable-bios-bootloader-install")
	if !c.EnableBIOSBootloaderInstall {
		t.Error("Ironic disabled what the operator enabled")
	}
}

// Parity: B15
func TestApplySkipBMCDetect(t *testing.T) {
	for object, want := range map[string]bool{
		`{"agent_skip_bmc_detect":true}`: true, `{"agent_skip_bmc_detect":false}`: false, `{}`: false,
		`{"agent_skip_bmc_detect":null}`: false,
	} {
		if _, cache, _, _ := apply(t, object, &token.Token{}); cache.SkipBMCDetect() != want {
			t.Errorf("%s: got %v, want %v", object, cache.SkipBMCDetect(), want)
		}
	}
}

// Parity: B15
func TestApplyToleratesNonsense(t *testing.T) {
	for object, logged := range map[string]string{
		`{"agent_containers":{"no_such_key":1,"runner":"podman2","run_options":"--a",` +
			`"pull_options":7}}`: "container.no_such_key",
		`{"agent_containers":"x"}`:                   "agent_containers",
		`{"agent_containers":null}`:                  "",
		`{"agent_containers":{"runner":null}}`:       "",
		`{"metrics":[]}`:                             "metrics",
		`{"metrics":{"backend":"carrier pigeon"}}`:   "carrier pigeon",
		`{"agent_md5_checksum_enable":"perhaps"}`:    "md5_enabled",
		`{"permitted_image_formats":{"a":1}}`:        "permitted_image_formats",
		`{"agent_token_required":true,"unknown":{}}`: "",
		`{"metrics_statsd":{"statsd_port":99999}}`:   "99999",
	} {
		c, _, outcome, log := apply(t, object, &token.Token{})
		if logged == "" && log != "" || !strings.Contains(log, logged) {
			t.Errorf("%s: got log %q, want %q in it", object, log, logged)
		}
		if outcome != token.Ignored || c.Container.Runner != "podman" || c.Metrics.Backend != "noop" ||
			c.MetricsStatsd.StatsdPort != 8125 {
			t.Errorf("%s: got outcome %v, %v", object, outcome, c)
		}
	}
	c, _, _, _ := apply(t, `{"agent_containers":{"aaa":1,"runner":"docker","zzz":2,"run_options":7}}`, &token.Token{})
	if c.Container.Runner != "docker" {
		t.Errorf("got runner %q, want docker: an invalid key must not affect the others", c.Container.Runner)
	}
}

// Parity: B9
func TestApplyToken(t *testing.T) {
	for _, tt := range []struct {
		name, before, answer string
		want                 token.Outcome
		after                string
	}{
		{"minted, 43 characters", "", `"` + secret + `"`, token.Adopted, secret},
		{"minted over an own one", strings.Repeat("o", 43), `"` + secret + `"`, token.Adopted, secret},
		{"masked with an own one", secret, `"******"`, token.Kept, secret},
		{"masked without", "", `"******"`, token.Locked, ""},
		{"short", "", `"short"`, token.Ignored, ""},
		{"null", secret, `null`, token.Ignored, secret},
		{"of another type", secret, `7`, token.Ignored, secret},
	} {
		tok := &token.Token{}
		tok.Set(tt.before)
		c, _, outcome, log := apply(t, `{"agent_token":`+tt.answer+`}`, tok)
		if outcome != tt.want || tok.Reveal() != tt.after {
			t.Errorf("%s: got %v and %q, want %v and %q", tt.name, outcome, tok.Reveal(), tt.want, tt.after)
		}
		if strings.Contains(log+fmt.Sprint(c), secret) {
			t.Errorf("%s: the token was printed", tt.name)
		}
	}
}
