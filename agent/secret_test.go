package agent

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"ironroot/agent/config"
)

func TestTokenIsNotLogged(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, nil, "--api-url="+ironic.URL, "--debug", "--image_server_password=hunter22")
	r.beat(ironic)
	r.run("standby.get_partition_uuids", "{}")
	r.run("standby.get_partition_uuids", `{"agent_token":"`+given+`"}`)
	r.do("GET", "/v1/commands?agent_token="+given, "")
	archive := unpack(t, r.run("log.collect_system_logs", "{}"))
	r.journal.Logger().Info("a line of the very end", "url", "http://h/?agent_token="+given, "password", "hunter22")
	for name, text := range map[string]string{"console": r.console.String(), "kept lines": string(r.journal.Bytes()), "archive": archive["journal"]} {
		if strings.Contains(text, given) || strings.Contains(text, "hunter22") {
			t.Errorf("a secret in the %s:\n%s", name, text)
		}
		if !strings.Contains(text, "get_partition_uuids") || !strings.Contains(text, "agent_token=***") {
			t.Errorf("the requests are not in the %s:\n%s", name, text)
		}
	}
}

// A token that was given beforehand shows nowhere: neither in what the agent logs and hands out, nor in an error that
// goes to somebody without it, nor where the configuration is printed, nor when a defect ends a life of the agent.
func TestTokenShowsNowhere(t *testing.T) {
	ironic := newIronic(t)
	ironic.config["agent_token"] = "******"
	var printed string
	panics := 1
	r := startAgent(t, func(o *Options) {
		o.Forever = true
		o.Config.Params = config.Params{
			"ipa-agent-token": given, "rootpwd": "$6$salt$hush", "mirror": "http://user:p%40rameter@h/", "x_password": "hush-by-name", "token_required": "1",
		}
		c := o.Config
		printed = fmt.Sprintf("%v %+v %#v %v %+v %#v %v", c, c, c, *c, *c, *c, o)
		status := o.Status
		o.Status = func(phase string) {
			status(phase)
			if panics--; panics == 0 {
				panic("a defect that shows " + given)
			}
		}
	}, "--api-url="+ironic.URL, "--debug", "--agent_token="+given)
	r.beat(ironic)

	strangers := r.token[:len(given)-1] + "!"
	for _, path := range []string{"/v1/commands/", "/v1/commands", "/commands/", "/v1/commands/x", "/nowhere"} {
		if code, body := r.do("GET", path+"?agent_token="+strangers, ""); code < 300 || strings.Contains(body, given) {
			t.Errorf("GET %s by a stranger: got %d %s, want a refusal without the token", path, code, body)
		}
	}
	r.post("standby.no_such_"+given, "{}")
	r.post("poll.get_hardware_info", `{"x":"`+given+`"}`)
	r.journal.Logger().Error("the kernel repeats its command line", "line", `rootpwd="$6$salt$hush" ipa-agent-token=`+given+
		` mirror=http://user:p%40rameter@h/ x_password=hush-by-name plain=p@rameter token_required=1`)
	_, _ = r.do(http.MethodGet, "/v1/status?token="+given, "")
	r.post("flow.start_flow", `{"flow":[{"`+given+`.x":{}}]}`)
	_, records := r.do(http.MethodGet, "/v1/commands/?agent_token="+given, "")
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
		for _, secret := range []string{given, "$6$salt$hush", "p%40rameter", "p@rameter", "hush-by-name"} {
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
