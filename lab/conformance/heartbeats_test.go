//go:build linux

package conformance

import (
	"slices"
	"strings"
)

// ordered sorts scenarios by name.
func ordered(all []scenario) []scenario {
	slices.SortFunc(all, func(a, b scenario) int { return strings.Compare(a.name, b.name) })
	return all
}

// versionReply is the document at the root of an Ironic whose newest API version is the given one.
func versionReply(version any) reply {
	v1 := object{
		"id": "v1", "links": []object{{"href": "http://10.0.2.2:6385/v1/", "rel": "self"}}, "status": "CURRENT",
		"min_version": "1.1", "version": version,
	}
	return reply{body: object{"name": "OpenStack Ironic API", "default_version": v1, "versions": []object{v1}}}
}

// versions are API versions of Ironic, and failures to learn them.
func versions() []scenario {
	var all []scenario
	for version, url := range map[string]string{
		"1.22": "http://agent", "1.31": "http://agent", "1.36": "http://agent", "1.61": "http://agent",
		"1.67": "http://agent",
		"2.0":  "",
	} {
		all = append(all, scenario{
			name: "version " + version, ironic: replies{root: []reply{versionReply(version)}},
			do: []request{get(url + "/v1/commands/"), get(url + "/v1/status")},
		})
	}
	for name, first := range map[string]reply{
		"404": {status: 404}, "html": {body: "<html>", kind: "text/html"}, "hangs up": {status: hangUp},
		"text": versionReply("latest"),
	} {
		all = append(all, scenario{name: "version fails " + name, ironic: replies{root: []reply{first, {}}}})
	}
	all = append(all, scenario{
		name: "root without a version", ironic: replies{root: []reply{{body: object{"versions": []object{}}}}},
	})
	return ordered(all)
}

// heartbeats are replies to heartbeats. A usual one follows.
func heartbeats() []scenario {
	heartbeat := func(name string, r ...reply) scenario {
		return scenario{
			name:   "heartbeat " + name,
			ironic: replies{heartbeat: append(r, reply{})},
			until:  until{heartbeatRequest, len(r) + 1},
			do:     []request{command("standby.sync", object{})},
		}
	}
	return []scenario{
		heartbeat("409, then success", reply{status: 409}),
		heartbeat("401", reply{status: 401}),
	}
}

// apiURLs are forms of the option api_url.
func apiURLs() []scenario {
	const ironic = "http://10.0.2.2:6385"
	url := func(name, value string) scenario {
		return scenario{name: "url " + name, cmdline: quickLookupRetry + " ipa-api-url=" + value}
	}
	return []scenario{url("with a slash", ironic+"/"), url("with a path and a slash", ironic+"/baremetal/")}
}
