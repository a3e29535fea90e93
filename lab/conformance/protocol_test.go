//go:build linux

package conformance

import (
	"net/http"
	"strings"
)

// protocol are the scenarios of the API and of the requests to Ironic, without disks that matter.
func protocol() group {
	g := group{name: "protocol", shape: shape{disks: []disk{rootDisk()}}}
	g.scenarios = append(g.scenarios, documents()...)
	g.scenarios = append(g.scenarios, lookups()...)
	return g
}

func documents() []scenario {
	return []scenario{{name: "documents", do: []request{
		get("/"), get("/v1/"), get("/v1"), get("/v1/status"), get("/status"), get("/v1/status/"), get("/v1/commands"),
		get("/v1/commands/"), get("/commands/"), get("/v1/unknown"), get("/v2/"), get("/v1/commands/unknown"),
		{method: http.MethodDelete, path: "/v1/commands/"}, {method: http.MethodPut, path: "/v1/status"},
		{method: http.MethodOptions, path: "/"}, {method: http.MethodPost, path: "/v1/status"},
	}}, {name: "token", do: []request{
		{method: http.MethodGet, path: "/v1/commands/", token: "-"},
		{method: http.MethodGet, path: "/v1/commands/", token: "wrong"},
		{method: http.MethodPost, path: "/v1/commands/", token: "-", body: encode(object{"name": "standby.sync", "params": object{}})},
		{method: http.MethodPost, path: "/v1/commands/", token: "wrong", body: encode(object{"name": "standby.sync", "params": object{}})},
		{method: http.MethodGet, path: "/v1/status", token: "wrong"},
	}}, {name: "body", do: []request{
		post(""), post("{"), post("[]"), post("null"), post("1"), post(`"text"`), post("{}"), post(`{"name": "standby.sync"}`),
		post(`{"params": {}}`), post(`{"name": "standby.sync", "params": []}`), post(`{"name": "standby.sync", "params": null}`),
		post(`{"name": "standby.sync", "params": "x"}`), post(`{"name": "", "params": {}}`),
		post(`{"name": "standby.sync", "params": {}, "more": 1}`),
		{method: http.MethodPost, path: "/v1/commands/", kind: "text/plain", body: `{"name": "standby.sync", "params": {}}`},
		post(`{"name": "standby.sync", "params": {}} x`), post(`{"name": "standby.sync", "name": "x.y", "params": {}}`),
		post("\xff\xfe"), post(`{"name": "` + strings.Repeat("x", 5000) + `.y", "params": {}}`),
	}}, {name: "names", do: []request{
		command("sync", object{}), command("unknown.command", object{}), command("standby.unknown", object{}),
		command("standby.", object{}), command(".sync", object{}), command("standby.sync.more", object{}),
		command("standby.__init__", object{}), command("STANDBY.sync", object{}), command("a.b.c", object{}),
	}}, {name: "records", do: []request{
		command("standby.sync", object{}), get("/v1/commands/{id}"), get("/commands/{id}"), get("/v1/commands/{id}?wait=true"),
		get("/v1/commands/{id}/"), command("standby.get_partition_uuids", object{}), command("standby.unknown", object{}),
		get("/v1/commands/"), {method: http.MethodGet, path: "/v1/commands/{id}", token: "-"},
	}}}
}

func post(body string) request {
	return request{method: http.MethodPost, path: "/v1/commands/", body: body}
}

func lookups() []scenario {
	return []scenario{
		{name: "lookup 404 twice", cmdline: "ipa-lookup-interval=1", ironic: replies{lookup: []reply{
			{status: 404}, {status: 404}, {},
		}}},
		{name: "lookup 409", cmdline: "ipa-lookup-interval=1", ironic: replies{lookup: []reply{{status: 409}, {}}}},
		{name: "lookup 500", cmdline: "ipa-lookup-interval=1", ironic: replies{lookup: []reply{{status: 500}, {}}}},
		{name: "lookup html", cmdline: "ipa-lookup-interval=1", ironic: replies{lookup: []reply{
			{body: "<html>", kind: "text/html"}, {},
		}}},
		{name: "root without a version", ironic: replies{root: []reply{{body: object{"versions": []object{}}}}}},
		{name: "heartbeat 409", ironic: replies{heartbeat: []reply{{status: 409}, {}}}, until: until{heartbeatRequest, 2}},
	}
}
