//go:build linux

package conformance

import (
	"net/http"
	"strings"
)

// protocol are the scenarios of the API and of the requests to Ironic, without disks that matter.
func protocol() group {
	g := group{name: "protocol", shape: shape{disks: []disk{rootDisk()}}, publish: publishSlow}
	for _, scenarios := range [][]scenario{
		documents(), inspections(), busy(), apiURLs(), versions(), heartbeats(), lookups(),
	} {
		g.scenarios = append(g.scenarios, scenarios...)
	}
	return g
}

func documents() []scenario {
	return []scenario{{name: "documents", do: []request{
		get("/"), get("/v1/"), get("/v1"), get("/v1/status"), get("/status"), get("/v1/status/"), get("/v1/commands"),
		get("/v1/commands/"), get("/commands/"), get("/v1/unknown"), get("/v2/"), get("/v1/commands/unknown"),
		{method: http.MethodDelete, path: "/v1/commands/"},
		{method: http.MethodPut, path: "/v1/status"},
		{method: http.MethodOptions, path: "/"},
		{method: http.MethodPost, path: "/v1/status"},
	}}, {name: "token", do: []request{
		{method: http.MethodGet, path: "/v1/commands/", token: "-"},
		{method: http.MethodGet, path: "/v1/commands/", token: "wrong"},
		{
			method: http.MethodPost,
			path:   "/v1/commands/",
			token:  "-",
			body:   encode(object{"name": "standby.sync", "params": object{}}),
		},
		{
			method: http.MethodPost,
			path:   "/v1/commands/",
			token:  "wrong",
			body:   encode(object{"name": "standby.sync", "params": object{}}),
		},
		{method: http.MethodGet, path: "/v1/status", token: "wrong"},
	}}, {name: "body", do: []request{
		post(
			"",
		),
		post("{"),
		post("[]"),
		post("null"),
		post("1"),
		post(`"text"`),
		post("{}"),
		post(`{"name": "standby.sync"}`),
		post(
			`{"params": {}}`,
		),
		post(`{"name": "standby.sync", "params": []}`),
		post(`{"name": "standby.sync", "params": null}`),
		post(`{"name": "standby.sync", "params": "x"}`),
		post(`{"name": "", "params": {}}`),
		post(`{"name": "standby.sync", "params": {}, "more": 1}`),
		{
			method: http.MethodPost,
			path:   "/v1/commands/",
			kind:   "text/plain",
			body:   `{"name": "standby.sync", "params": {}}`,
		},
		post(`{"name": "standby.sync", "params": {}} x`),
		post(`{"name": "standby.sync", "name": "x.y", "params": {}}`),
		post("\xff\xfe"),
		post(`{"name": "` + strings.Repeat("x", 5000) + `.y", "params": {}}`),
	}}, {name: "names", do: []request{
		command("sync", object{}), command("unknown.command", object{}), command("standby.unknown", object{}),
		command("standby.", object{}), command(".sync", object{}), command("standby.sync.more", object{}),
		command("standby.__init__", object{}), command("STANDBY.sync", object{}), command("a.b.c", object{}),
	}}, {name: "records", do: []request{
		command(
			"standby.sync",
			object{},
		),
		get("/v1/commands/{id}"),
		get("/commands/{id}"),
		get("/v1/commands/{id}?wait=true"),
		get(
			"/v1/commands/{id}/",
		),
		command("standby.get_partition_uuids", object{}),
		command("standby.unknown", object{}),
		get("/v1/commands/"),
		{method: http.MethodGet, path: "/v1/commands/{id}", token: "-"},
	}}}
}

func post(body string) request {
	return request{method: http.MethodPost, path: "/v1/commands/", body: body}
}

// requests are requests to the agent whose replies do not depend on earlier ones.
func requests() []scenario {
	const sync = `{"name": "standby.sync", "params": {}}`
	method := func(method string, paths ...string) (all []request) {
		for _, path := range paths {
			all = append(all, request{method: method, path: path, body: sync})
		}
		return all
	}
	return []scenario{
		{
			name: "head",
			do: method(http.MethodHead, "/", "/v1/", "/v1", "/v1/status", "/status", "/v1/commands/", "/commands/",
				"/v1/commands/unknown", "/v1/unknown"),
		},
		{name: "head without token", do: []request{
			{
				method: http.MethodHead,
				path:   "/v1/commands/",
				token:  "-",
			},
			{method: http.MethodHead, path: "/", token: "-"},
		}},
		{name: "redirects", do: append(method(http.MethodPost, "/v1/commands", "/commands", "/commands?wait=true"),
			append(method(http.MethodDelete, "/v1/commands"), get("/v1?a=b&c=%20d"), get("/commands?x"))...)},
		{name: "redirect without token", do: []request{{method: http.MethodGet, path: "/v1/commands", token: "-"}}},
		{
			name: "method PATCH",
			do:   method(http.MethodPatch, "/", "/v1/", "/v1/status", "/v1/commands/", "/v1/commands/x", "/v1/x"),
		},
		{name: "method DELETE", do: method(http.MethodDelete, "/", "/v1/", "/v1/status", "/v1/commands/x", "/v1/x")},
		{
			name: "method POST",
			do:   method(http.MethodPost, "/", "/v1/", "/status", "/v1/commands/x", "/commands/x", "/v1/x"),
		},
		{name: "method unknown", do: method("PROPFIND", "/", "/v1/commands/", "/v1/x")},
		{name: "method OPTIONS without token", do: []request{
			{
				method: http.MethodOptions,
				path:   "/v1/commands/",
				token:  "-",
			},
			{method: http.MethodOptions, path: "/", token: "-"},
		}},
		{name: "paths", do: []request{
			get(
				"/V1/",
			),
			get("/v1/Status"),
			get("/v1/commands/a/b"),
			get("/v1.0/"),
			get("/v1/commands/%20"),
			get("/favicon.ico"),
			get("/v1/status?x=y"),
			get("/v1/command/"),
			get("/index.html"),
			get("/v1/v1/status"),
		}},
		{name: "path with two slashes", do: []request{get("/v1//status"), get("/v1//commands/")}},
		{name: "path with dots", do: []request{get("/v1/../v1/status"), get("/v1/./status")}},
		{name: "path with escapes", do: []request{get("/v1/%73tatus"), get("/%76%31/status"), get("/v1%2Fstatus")}},
		{name: "token empty", do: []request{
			{method: http.MethodGet, path: "/v1/commands/?agent_token=", token: "-"},
			{method: http.MethodPost, path: "/v1/commands/?agent_token=", token: "-", body: sync},
		}},
		{name: "token twice", do: []request{
			{method: http.MethodGet, path: "/v1/commands/x?agent_token=" + token + "&agent_token=x", token: "-"},
			{method: http.MethodGet, path: "/v1/commands/x?agent_token=x&agent_token=" + token, token: "-"},
		}},
		{name: "token of other letters", do: []request{
			{method: http.MethodGet, path: "/v1/commands/", token: strings.ToLower(token)},
			{method: http.MethodGet, path: "/v1/commands/", token: token + " "},
			{method: http.MethodGet, path: "/v1/commands/", token: token[:42]},
			{method: http.MethodGet, path: "/v1/commands/?AGENT_TOKEN=" + token, token: "-"},
		}},
		{name: "token in the body", do: []request{
			{
				method: http.MethodPost,
				path:   "/v1/commands/",
				token:  "-",
				kind:   "application/x-www-form-urlencoded",
				body:   "agent_token=" + token,
			},
		}},
		{name: "token and a wrong body", do: []request{
			{method: http.MethodPost, path: "/v1/commands/", token: "-", body: "{"},
			{method: http.MethodPost, path: "/v1/commands/", token: "wrong", body: ""},
		}},
		{name: "token of one record", do: []request{
			command("standby.sync", object{}),
			{method: http.MethodGet, path: "/v1/commands/{id}", token: "wrong"},
			{method: http.MethodGet, path: "/commands/{id}", token: "-"},
			get("/v1/commands/{id}"),
		}},
		{name: "content types", do: []request{
			{method: http.MethodPost, path: "/v1/commands/", kind: "application/x-www-form-urlencoded", body: sync},
			{method: http.MethodPost, path: "/v1/commands/", kind: "application/json; charset=latin-1", body: sync},
			{method: http.MethodPost, path: "/v1/commands/", kind: "multipart/form-data", body: sync},
			{method: http.MethodPost, path: "/v1/commands/", kind: "nonsense", body: sync},
		}},
		{name: "body NaN", do: []request{post(`{"name": "standby.unknown", "params": {"x": NaN}}`)}},
		{name: "body with a byte order mark", do: []request{post("\ufeff" + sync)}},
		{
			name: "body with comments",
			do:   []request{post(sync + "// x"), post("{'name': 'standby.sync', 'params': {}}")},
		},
		{name: "body with white space", do: []request{post(" \r\n\t" + sync + "\n\n")}},
		{name: "body nested", do: []request{
			post(
				`{"name": "standby.unknown", "params": {"x": ` + strings.Repeat(
					"[",
					200,
				) + strings.Repeat(
					"]",
					200,
				) + `}}`,
			),
		}},
		{name: "body large", do: []request{
			post(`{"name": "standby.unknown", "params": {"x": "` + strings.Repeat("y", 2<<20) + `"}}`),
		}},
		{name: "body with names of other types", do: []request{
			post(
				`{"name": null, "params": {}}`,
			),
			post(`{"name": 5, "params": {}}`),
			post(`{"name": ["standby.sync"], "params": {}}`),
			post(`{"name": {}, "params": {}}`),
			post(`{"name": true, "params": {}}`),
		}},
		{name: "body with keys of other cases", do: []request{
			post(`{"Name": "standby.sync", "Params": {}}`), post(`{"NAME": "standby.sync", "params": {}}`),
		}},
		{name: "names with spaces", do: []request{
			command(" standby.sync", object{}), command("standby.sync ", object{}), command("standby. sync", object{}),
			command("standby..sync", object{}), command("standby.sync\n", object{}), command("ståndby.sync", object{}),
		}},
		{name: "records with unknown ids", do: []request{
			get(
				"/v1/commands/1",
			),
			get("/v1/commands/1be26c0b-03f2-4d2e-ae87-c02d7f33c123"),
			get("/v1/commands/x?wait=true"),
			get("/commands/null"),
		}},
	}
}

// slowImage is an image that arrives after some seconds, and stalledImage one that never does. Their content is not an
// image.
const (
	slowImage    = "slow"
	stalledImage = "stalled"
)

func busy() []scenario {
	slow := func(name string) object {
		return object{"image_info": object{
			"id": "11111111-1111-1111-1111-111111111111", "urls": []string{imageURL + "/" + name}, "disk_format": "raw",
			"container_format": "bare", "os_hash_algo": "sha256", "os_hash_value": strings.Repeat("0", 64),
			"node_uuid": nodeUUID, "stream_raw_images": false, "image_type": "whole-disk",
		}}
	}
	stalled := started("standby.prepare_image", slow(stalledImage))
	hiddenNode := hidden(command("deploy.get_deploy_steps", object{"node": nodeWith(nil), "ports": ports()}))
	wait := func(query string) scenario {
		return scenario{name: "wait " + query, config: quick, do: []request{hiddenNode, {
			method: http.MethodPost, path: "/v1/commands/?" + query,
			body: encode(object{"name": "standby.prepare_image", "params": slow(slowImage)}),
		}}}
	}
	return []scenario{
		{name: "list after failures", do: []request{
			command("unknown.command", object{}),
			command("standby.unknown", object{}),
			command("sync", object{}),
			get(
				"/v1/commands/",
			),
			command("standby.sync", object{}),
			command("log.unknown", object{}),
			get("/v1/commands/"),
		}},
		{name: "busy", do: []request{
			hiddenNode, stalled, command("standby.sync", object{}), command("standby.prepare_image", slow(slowImage)),
			get("/v1/commands/"), get("/v1/commands/{id}"), get("/v1/status"), get("/v1/commands/{id}?wait=false"),
			get("/v1/commands/unknown?wait=true"), get("/v1/commands/?wait=true"),
		}},
		{name: "busy with unknown commands", do: []request{
			hiddenNode, stalled, command("unknown.command", object{}), command("standby.unknown", object{}),
			command("nodot", object{}), post("{"), post(`{"name": "standby.sync"}`),
			{method: http.MethodPost, path: "/v1/commands/", token: "wrong", body: "{}"},
		}},
		wait("wait=TRUE"), wait("wait=1"),
		{name: "wait for a record", config: quick, do: []request{
			hiddenNode, started("standby.prepare_image", slow(slowImage)), get("/v1/commands/{id}?wait=true"),
			get("/v1/commands/{id}?wait=true"), command("standby.sync", object{}), get("/v1/commands/"),
		}},
		{name: "end of a command forces a heartbeat", config: quick, do: []request{
			hiddenNode, command("standby.prepare_image", slow(slowImage)),
		}, then: until{heartbeatRequest, 2}},
	}
}

// quick lets downloads fail at once.
const quick = "image_download_connection_retries = 0\nimage_download_connection_retry_interval = 0\n"
