//go:build linux

package conformance

import (
	"net/http"
	"strings"
	"time"

	"ironroot/lab/imageserver"
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
		return scenario{name: "wait " + query, config: noDownloadRetries, do: []request{hiddenNode, {
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
		{name: "wait for a record", config: noDownloadRetries, do: []request{
			hiddenNode, started("standby.prepare_image", slow(slowImage)), get("/v1/commands/{id}?wait=true"),
			get("/v1/commands/{id}?wait=true"), command("standby.sync", object{}), get("/v1/commands/"),
		}},
		{name: "end of a command forces a heartbeat", config: noDownloadRetries, do: []request{
			hiddenNode, command("standby.prepare_image", slow(slowImage)),
		}, then: until{heartbeatRequest, 2}},
	}
}

// noDownloadRetries lets downloads fail at once.
const noDownloadRetries = "image_download_connection_retries = 0\nimage_download_connection_retry_interval = 0\n"

// publishSlow publishes the images that keep a command busy.
func publishSlow(m *machine) {
	m.images.Bytes(slowImage, make([]byte, 4096))
	m.images.Fault(slowImage, imageserver.Fault{Delay: 2 * time.Second})
	m.images.Bytes(stalledImage, make([]byte, mib))
	m.images.Fault(stalledImage, imageserver.Fault{Stall: 4096})
}
