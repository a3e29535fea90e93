//go:build linux

package conformance

import (
	"maps"
	"net/http"
	"strings"
)

// commands are the commands of all extensions, with wrong parameters and other errors. One agent runs them all. The
// scenarios that read the list of commands come first: after a synchronous command with wrong parameters,
// ironic-python-agent answers each request for the list with an error.
func commands() group {
	g := group{name: "commands", shape: shape{disks: []disk{rootDisk()}}, shared: true, publish: publishSlow}
	first := hidden(command("deploy.get_deploy_steps", object{"node": nodeWith(nil), "ports": ports()}))
	for _, scenarios := range [][]scenario{
		requests(), getSteps(), executeSteps(), imageCommands(), containers(), bootloaders(), flows(), otherCommands(),
		wrongParameters(), rescues(),
	} {
		for _, s := range scenarios {
			s.do = append([]request{first}, s.do...)
			g.scenarios = append(g.scenarios, s)
		}
	}
	return g
}

// one is a scenario of one command.
func one(name, commandName string, params any) scenario {
	return scenario{name: name, do: []request{command(commandName, params)}}
}

func kinds() []string { return []string{"clean", "deploy", "service"} }

// getSteps are lists of steps.
func getSteps() []scenario {
	var all []scenario
	for _, kind := range kinds() {
		name := kind + ".get_" + kind + "_steps"
		all = append(all, one("steps "+kind, name, object{"node": nodeWith(nil), "ports": ports()}),
			one("steps "+kind+" without ports", name, object{"node": nodeWith(nil), "ports": []any{}}))
	}
	small := object{"uuid": nodeUUID}
	return append(all,
		one("steps ports null", "clean.get_clean_steps", object{"node": nodeWith(nil), "ports": nil}),
		one("steps of a small node", "clean.get_clean_steps", object{"node": small, "ports": []any{}}))
}

// executeSteps are executions of steps, most of them with wrong parameters.
func executeSteps() []scenario {
	var all []scenario
	for _, kind := range kinds() {
		name := kind + ".execute_" + kind + "_step"
		usual := object{"step": "erase_pstore_unknown", "interface": "deploy", "priority": 0, "args": object{}}
		params := func(replaced object) object {
			p := object{"step": usual, "node": nodeWith(nil), "ports": ports()}
			maps.Copy(p, replaced)
			maps.DeleteFunc(p, func(_ string, value any) bool { return value == "missing" })
			return p
		}
		for variant, replaced := range map[string]object{
			"unknown":        {},
			"without step":   {"step": "missing"},
			"without node":   {"node": "missing"},
			"without ports":  {"ports": "missing"},
			"null":           {"step": nil},
			"empty":          {"step": object{}},
			"without a name": {"step": object{"interface": "deploy", "args": object{}}},
			"of a text":      {"step": "erase_pstore"},
			"of a list":      {"step": []any{}},
			"with a number":  {"step": object{"step": 5, "interface": "deploy"}},
			"with null":      {"step": object{"step": nil, "interface": "deploy"}},
			"unknown, more": {"step": object{
				"step": "unknown", "interface": "raid", "priority": "x",
				"more": object{"a": 1},
			}},
			"args null":           {"step": object{"step": "unknown", "interface": "deploy", "args": nil}},
			"args list":           {"step": object{"step": "unknown", "interface": "deploy", "args": []any{1}}},
			"args text":           {"step": object{"step": "unknown", "interface": "deploy", "args": "x"}},
			"node null":           {"node": nil},
			"node empty":          {"node": object{}},
			"node text":           {"node": "x"},
			"versions null":       {kind + "_version": nil},
			"versions empty":      {kind + "_version": object{}},
			"versions of others":  {kind + "_version": object{"generic_hardware_manager": "0.1"}},
			"versions more":       {kind + "_version": object{"generic_hardware_manager": "1.2", "other": "1"}},
			"versions text":       {kind + "_version": "1.2"},
			"versions and unsure": {kind + "_version": object{"x": "1"}, "step": object{}},
			"further parameters":  {"more": 1},
			"private":             {"step": object{"step": "__class__", "interface": "deploy"}},
		} {
			all = append(all, one("execute "+kind+" "+variant, name, params(replaced)))
		}
	}
	work := func(kind, name string, replaced object) request { return step(kind, name, nil, replaced) }
	for name, r := range map[string]request{
		"clean erase_pstore":              work("clean", "erase_pstore", nil),
		"clean erase_pstore args null":    work("clean", "erase_pstore", object{"args": nil}),
		"clean erase_pstore unknown args": work("clean", "erase_pstore", object{"args": object{"unknown": 1}}),
		"clean erase_pstore without interface": command("clean.execute_clean_step", object{
			"step": object{"step": "erase_pstore"}, "node": nodeWith(nil), "ports": ports(),
		}),
		"clean erase_pstore of another interface": work("clean", "erase_pstore", object{"interface": "bios"}),
		"deploy apply without raid_config":        work("deploy", "apply_configuration", object{"interface": "raid"}),
		"deploy apply with null": work("deploy", "apply_configuration", object{
			"interface": "raid",
			"args":      object{"raid_config": nil},
		}),
		"deploy write_image without image": work("deploy", "write_image", nil),
		"deploy write_image of null": work("deploy", "write_image",
			object{"args": object{"image_info": nil}}),
		"deploy inject_files without files": work("deploy", "inject_files", nil),
		"deploy inject_files of a text":     work("deploy", "inject_files", object{"args": object{"files": "x"}}),
		"deploy step of clean":              work("deploy", "erase_pstore", nil),
		"clean step of deploy":              work("clean", "inject_files", nil),
		"service step of clean":             work("service", "erase_pstore", nil),
		"clean method that is no step":      work("clean", "get_cpus", nil),
		"clean create without target":       work("clean", "create_configuration", object{"interface": "raid"}),
		"clean burnin_gpu":                  work("clean", "burnin_gpu", nil),
		"deploy bootc without image":        work("deploy", "execute_bootc_install", nil),
	} {
		all = append(all, scenario{name: "execute " + name, do: []request{r}})
	}
	return ordered(all)
}

// imageCommands are commands that write images, with wrong descriptions of images.
func imageCommands() []scenario {
	sum := strings.Repeat("0", 64)
	var all []scenario
	for name, info := range map[string]any{
		"null": nil, "text": "x", "list": []any{}, "empty": object{},
		"without id":         object{"urls": []string{imageURL}, "os_hash_algo": "sha256", "os_hash_value": sum},
		"without urls":       object{"id": "x", "os_hash_algo": "sha256", "os_hash_value": sum},
		"urls empty":         object{"id": "x", "urls": []string{}, "os_hash_algo": "sha256", "os_hash_value": sum},
		"urls text":          object{"id": "x", "urls": imageURL, "os_hash_algo": "sha256", "os_hash_value": sum},
		"urls null":          object{"id": "x", "urls": nil, "os_hash_algo": "sha256", "os_hash_value": sum},
		"without checksum":   object{"id": "x", "urls": []string{imageURL}},
		"checksum empty":     object{"id": "x", "urls": []string{imageURL}, "checksum": ""},
		"checksum number":    object{"id": "x", "urls": []string{imageURL}, "checksum": 5},
		"checksum md5":       object{"id": "x", "urls": []string{imageURL}, "checksum": strings.Repeat("0", 32)},
		"hash without value": object{"id": "x", "urls": []string{imageURL}, "os_hash_algo": "sha256"},
		"hash without algo":  object{"id": "x", "urls": []string{imageURL}, "os_hash_value": sum},
		"hash number": object{
			"id": "x", "urls": []string{imageURL}, "os_hash_algo": "sha256",
			"os_hash_value": 5,
		},
		"hash empty": object{"id": "x", "urls": []string{imageURL}, "os_hash_algo": "", "os_hash_value": ""},
		"hash null": object{
			"id": "x", "urls": []string{imageURL}, "os_hash_algo": nil,
			"os_hash_value": nil,
		},
		"checksum and bad hash": object{
			"id": "x", "urls": []string{imageURL}, "checksum": sum,
			"os_hash_algo": "sha256",
		},
	} {
		all = append(all, one("image "+name, "standby.prepare_image", object{"image_info": info}))
	}
	all = append(all, one("image missing", "standby.prepare_image", object{}),
		one("image and unknown parameter", "standby.prepare_image", object{"image_info": object{
			"id": "x", "urls": []string{imageURL}, "checksum": sum,
		}, "unknown": 1}),
		one("image cached", "standby.cache_image", object{"image_info": object{}}),
		one("partition uuids", "standby.get_partition_uuids", object{}),
		one("sync", "standby.sync", object{}),
	)
	return ordered(all)
}

// containers are installations of bootable containers that fail.
func containers() []scenario {
	const name = "standby.execute_bootc_install"
	return []scenario{
		one("bootc missing", name, object{}), one("bootc null", name, object{"image_source": nil}),
		one("bootc unknown parameter", name, object{"image_source": "oci://10.0.2.2:1/a/b:c", "unknown": 1}),
	}
}

// bootloaders are installations of boot loaders that fail, or have nothing to do.
func bootloaders() []scenario {
	const name, uuid = "image.install_bootloader", "7d1b1d9c-3f7f-4f0e-8f0b-2b1d7a3c5e07"
	return []scenario{
		one("bootloader missing", name, object{}),
		one("bootloader unknown parameter", name, object{"root_uuid": nil, "unknown": 1}),
		one("bootloader null", name, object{"root_uuid": nil}),
		one("bootloader of a whole disk", name, object{"root_uuid": "0x00000000"}),
		one("bootloader of an unknown root", name, object{"root_uuid": uuid}),
		one("bootloader uefi null", name, object{"root_uuid": nil, "target_boot_mode": "uefi"}),
		one("bootloader uefi unknown root", name, object{"root_uuid": uuid, "target_boot_mode": "uefi"}),
		one("bootloader uefi unknown ESP", name, object{
			"root_uuid": uuid, "efi_system_part_uuid": uuid, "target_boot_mode": "uefi",
		}),
		one("bootloader failure ignored", name, object{"root_uuid": uuid, "ignore_bootloader_failure": true}),
		one("bootloader failure ignored by text", name, object{"root_uuid": uuid, "ignore_bootloader_failure": "yes"}),
		one("bootloader other mode", name, object{"root_uuid": nil, "target_boot_mode": "other"}),
		one("bootloader mode null", name, object{"root_uuid": nil, "target_boot_mode": nil}),
		one("bootloader root number", name, object{"root_uuid": 5}),
	}
}

// flows are lists of commands.
func flows() []scenario {
	flow := func(name string, tasks any) scenario {
		return one("flow "+name, "flow.start_flow", object{"flow": tasks})
	}
	sync := object{"standby.sync": object{}}
	return []scenario{
		flow("of one command", []any{sync}),
		flow("of two commands", []any{sync, object{"standby.get_partition_uuids": object{}}}),
		flow("of two in one object", []any{object{"standby.sync": object{}, "standby.get_partition_uuids": object{}}}),
		flow("empty", []any{}),
		flow("of an empty object", []any{object{}}),
		flow("with an unknown extension", []any{object{"unknown.sync": object{}}}),
		flow("with an unknown command", []any{object{"standby.unknown": object{}}}),
		flow("with a name without a dot", []any{object{"sync": object{}}}),
		flow("with an unknown command at the end", []any{sync, object{"standby.unknown": object{}}}),
		flow("with a failure", []any{object{"image.install_bootloader": object{"root_uuid": "x"}}, sync}),
		flow("with params null", []any{object{"standby.sync": nil}}),
		flow("with params of a list", []any{object{"standby.sync": []any{}}}),
		flow("with an unknown parameter", []any{object{"standby.sync": object{"x": 1}}}),
		flow("in a flow", []any{object{"flow.start_flow": object{"flow": []any{sync}}}}),
		one("flow unknown parameter", "flow.start_flow", object{"flow": []any{}, "unknown": 1}),
	}
}

// otherCommands are the remaining commands.
func otherCommands() []scenario {
	return []scenario{
		one("log archive", "log.collect_system_logs", object{}),
		one("hardware info", "poll.get_hardware_info", object{}),
		one(
			"node info",
			"poll.set_node_info",
			object{"node_info": object{"node": nodeWith(nil), "config": object{"heartbeat_timeout": 5}}},
		),
		one("node info null", "poll.set_node_info", object{"node_info": nil}),
		one("node info missing", "poll.set_node_info", object{}),
		one("iscsi", "iscsi.start_iscsi_target", object{"iqn": 5}),
		one("iscsi port", "iscsi.start_iscsi_target", object{"portal_port": "x"}),
		one("iscsi unknown command", "iscsi.unknown", object{}),
		one("decom", "decom.erase_hardware", object{}),
		one("clean unknown", "clean.unknown", object{}),
		one("deploy unknown", "deploy.unknown", object{}),
		one("service unknown", "service.unknown", object{}),
		one("image unknown", "image.unknown", object{}),
		one("rescue unknown", "rescue.unknown", object{}),
		one("system unknown", "system.unknown", object{}),
		one("poll unknown", "poll.unknown", object{}),
		one("flow unknown", "flow.unknown", object{}),
		one("log unknown", "log.unknown", object{}),
	}
}

// wrongParameters are synchronous commands with parameters of wrong names or types.
func wrongParameters() []scenario {
	var all []scenario
	for name, r := range map[string]request{
		"sync":                   command("standby.sync", object{"unknown": 1}),
		"sync self":              command("standby.sync", object{"self": 1}),
		"partition uuids":        command("standby.get_partition_uuids", object{"node": object{}}),
		"logs":                   command("log.collect_system_logs", object{"unknown": 1}),
		"hardware info":          command("poll.get_hardware_info", object{"unknown": 1}),
		"node info":              command("poll.set_node_info", object{"unknown": 1}),
		"steps without node":     command("clean.get_clean_steps", object{"ports": []any{}}),
		"steps without ports":    command("deploy.get_deploy_steps", object{"node": nodeWith(nil)}),
		"steps without anything": command("service.get_service_steps", object{}),
		"steps unknown": command("clean.get_clean_steps", object{
			"node": nodeWith(nil), "ports": ports(),
			"unknown": 1,
		}),
		"steps node null": command("clean.get_clean_steps", object{"node": nil, "ports": ports()}),
		"steps node text": command("clean.get_clean_steps", object{"node": "x", "ports": ports()}),
		"steps node list": command("clean.get_clean_steps", object{"node": []any{}, "ports": ports()}),
		"flow missing":    command("flow.start_flow", object{}),
		"flow null":       command("flow.start_flow", object{"flow": nil}),
		"flow number":     command("flow.start_flow", object{"flow": 5}),
		"flow of a text":  command("flow.start_flow", object{"flow": []any{5}}),
	} {
		all = append(all, scenario{name: "type error " + name, do: []request{r, command("standby.sync", object{})}})
	}
	return ordered(append(all,
		one("key error steps node empty", "clean.get_clean_steps", object{"node": object{}, "ports": ports()}),
		one("command_name as a parameter", "standby.sync", object{"command_name": "x"})))
}

// rescues are rescues that fail.
func rescues() []scenario {
	return []scenario{
		one("type error rescue unknown", "rescue.finalize_rescue", object{"unknown": 1}),
		one("type error rescue null", "rescue.finalize_rescue", object{"rescue_password": nil}),
		one("type error rescue list", "rescue.finalize_rescue", object{"rescue_password": []any{}}),
		{name: "rescue token", do: []request{{
			method: http.MethodPost, path: "/v1/commands/", token: "wrong", body: encode(object{
				"name": "rescue.finalize_rescue", "params": object{"rescue_password": "x"},
			}),
		}}},
	}
}

// requests are requests to the agent whose replies do not depend on earlier scenarios.
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
			get("/V1/"),
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
				) + strings.Repeat("]", 200) + `}}`),
		}},
		{name: "body large", do: []request{
			post(`{"name": "standby.unknown", "params": {"x": "` + strings.Repeat("y", 2<<20) + `"}}`),
		}},
		{name: "body with names of other types", do: []request{
			post(`{"name": null, "params": {}}`),
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
			get("/v1/commands/1"),
			get("/v1/commands/1be26c0b-03f2-4d2e-ae87-c02d7f33c123"),
			get("/v1/commands/x?wait=true"),
			get("/commands/null"),
		}},
	}
}
