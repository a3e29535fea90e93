package agent

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/internal/test/testenv"
)

// Parity: A16
func TestTokenIsNotLogged(t *testing.T) {
	ironic := newIronic(t)
	ironic.config["tls_min_version"] = testToken // rejected with an error that quotes it
	r := startAgent(t, nil, "--api-url="+ironic.URL, "--debug", "--image_server_password=hunter22")
	r.beat(ironic)
	r.run("standby.get_partition_uuids", "{}")
	r.run("standby.get_partition_uuids", `{"agent_token":"`+testToken+`"}`)
	r.do("GET", "/v1/commands?agent_token="+testToken, "")
	archive := unpack(t, r.run("log.collect_system_logs", "{}"))
	r.journal.Logger().Info("the last line", "url", "http://h/?agent_token="+testToken, "password", "hunter22")
	for name, text := range map[string]string{
		"console": r.console.String(), "kept lines": string(r.journal.Bytes()), "archive": archive["journal"],
	} {
		if strings.Contains(text, testToken) || strings.Contains(text, "hunter22") {
			t.Errorf("a secret in the %s:\n%s", name, text)
		}
		if !strings.Contains(text, "get_partition_uuids") || !strings.Contains(text, "agent_token=***") {
			t.Errorf("the requests are not in the %s:\n%s", name, text)
		}
		if !strings.Contains(text, "tls_min_version") {
			t.Errorf("the rejected option is not in the %s:\n%s", name, text)
		}
	}
}

// A preset token is never disclosed: not in logs or responses, not in errors for callers without the token, not in a
// printed configuration, and not in the log of a panic.
func TestPresetTokenIsNotDisclosed(t *testing.T) {
	testenv.ExpectPanics(t)
	ironic := newIronic(t)
	ironic.config["agent_token"] = "******"
	var printed string
	panics := 1
	r := startAgent(t, func(o *Options) {
		o.Forever = true
		o.Config.Params = config.Params{
			"ipa-agent-token": testToken, "rootpwd": "$6$salt$hash", "mirror": "http://user:p%40rameter@h/",
			"x_password": "secret-by-name", "token_required": "1",
		}
		c := o.Config
		printed = fmt.Sprintf("%v %+v %#v %v %+v %#v %v", c, c, c, *c, *c, *c, o)
		o.Machine.Drivers = onEnter(nil, func(string) {
			if panics--; panics == 0 {
				panic("a panic that contains " + testToken)
			}
		})
	}, "--api-url="+ironic.URL, "--debug", "--agent_token="+testToken)
	r.beat(ironic)

	wrongToken := r.token[:len(testToken)-1] + "!"
	for _, path := range []string{"/v1/commands/", "/v1/commands", "/commands/", "/v1/commands/x", "/nowhere"} {
		code, body := r.do("GET", path+"?agent_token="+wrongToken, "")
		if code < 300 || strings.Contains(body, testToken) {
			t.Errorf("GET %s with a wrong token: got %d %s, want a rejection that does not contain the token",
				path, code, body)
		}
	}
	r.post("standby.no_such_"+testToken, "{}")
	r.post("poll.get_hardware_info", `{"x":"`+testToken+`"}`)
	r.journal.Logger().Error("the kernel repeats its command line",
		"line", `rootpwd="$6$salt$hash" ipa-agent-token=`+testToken+
			` mirror=http://user:p%40rameter@h/ x_password=secret-by-name plain=p@rameter token_required=1`)
	_, _ = r.do(http.MethodGet, "/v1/status?token="+testToken, "")
	r.post("flow.start_flow", `{"flow":[{"`+testToken+`.x":{}}]}`)
	_, records := r.do(http.MethodGet, "/v1/commands/?agent_token="+testToken, "")
	if !strings.Contains(records, "Extension with id *** not found") {
		t.Errorf("got records %s, want the error of the flow without the token", records)
	}

	archive := unpack(t, r.run("log.collect_system_logs", "{}"))
	shown := maps.Clone(archive)
	delete(shown, "ps") // processes of this machine, which are unrelated to the agent
	shown["console"], shown["kept lines"], shown["configuration"] = r.console.String(),
		string(r.journal.Bytes()), printed
	shown["records"] = records
	for name, text := range shown {
		for _, secret := range []string{testToken, "$6$salt$hash", "p%40rameter", "p@rameter", "secret-by-name"} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s shows a secret: ...%s", name, text[max(0, i-80):i+len(secret)])
			}
		}
	}
	if !strings.Contains(shown["console"], "plain=*** token_required=1") {
		t.Error("the console lacks text that is not secret")
	}
	if !strings.Contains(shown["console"], "a panic that contains ***") {
		t.Errorf("the panic is not on the console:\n%s", shown["console"])
	}
}

// Every parameter of a command line can be a secret: the kernel's log contains also those that later ones replace.
func TestRedactCmdline(t *testing.T) {
	j := journal.New(io.Discard, nil, 1<<20)
	RedactCmdline(j, `rootpwd="$6$first word" rootpwd=$6$second ipa-agent-token=t1 token=short `+
		`ipa-agent-token=token-2 mirror=http://u:first-one@h/ mirror=http://u:second-one@h/ x_secret=secret-1 `+
		`x_secret=secret-2`)
	const log = `rootpwd="$6$first word" rootpwd=$6$second t1 token=short token-2 first-one second-one ` +
		`secret-1 secret-2`
	if got, want := j.Clean(log), `rootpwd="***" rootpwd=*** *** token=short *** *** *** *** ***`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
