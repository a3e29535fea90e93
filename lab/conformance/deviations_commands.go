package conformance

// commandDeviations returns the deviations of the group commands.
func commandDeviations() []Deviation {
	const (
		group       = "commands"
		clientError = "A value of a wrong type is an error of the client; ironic-python-agent fails with an exception."
		named       = "The error names the wrong parameter; ironic-python-agent reports the exception of Python."
		runtime     = "This ramdisk has its own container runtime and a self-test; the one with ironic-python-agent " +
			"has no podman."
		offered  = "A step is run only if its kind offers it; ironic-python-agent calls any method of a manager."
		always   = "The slash is added for all methods."
		double   = "Two slashes are another path, which no client uses."
		nested   = "A flow in a flow fails in ironic-python-agent; here it is an unknown extension."
		logs     = "Errors of the collection are a file; the agent's log is part of the journal."
		location = `"https://10.0.2.15:9999/v1/commands/` +
			`?agent_token=rYnCkE5M3wGZVbW4l0Nn7hIqkz6xFpT9uA2sD8oJ1vQ"`
		archive = "/agent/0/body/command_result/system_logs/"
		crash   = "ironic-python-agent cannot encode the exception and answers with 500, as it " +
			"does to each list from then on."
	)
	kind := []string{"/agent/0/body/command_error/type"}
	refused := func(row string, scenarios ...string) []Deviation {
		return append(withGot("400", at(row, group, clientError, scenarios, "/agent/0/status")),
			withGot(`"Client"`, at(row, group, clientError, scenarios, "/agent/0/body/faultcode"))...)
	}
	var all []Deviation
	for _, part := range [][]Deviation{
		invalid("A4", group, "A byte order mark is not JSON.", []string{"body with a byte order mark"}),
		withGot("400", at("A4", group, clientError, []string{"body with names of other types"}, "/agent/[0-4]/status")),
		withGot(`"Client"`, at("A4", group, clientError, []string{"body with names of other types"},
			"/agent/[0-4]/body/faultcode")),
		withGot(`""`, at("A2", group, "A redirect has no page for people.",
			[]string{"redirect without token", "redirects"}, "/agent/*/body")),
		withGot("308", at("A2", group, always, []string{"redirects"}, "/agent/3/status")),
		withGot(`"text/html; charset=utf-8"`, at("A2", group, always, []string{"redirects"},
			"/agent/3/header/Content-Type")),
		withGot(location, at("A2", group, always, []string{"redirects"}, "/agent/3/header/Location")),
		withGot("404", at("A2", group, double, []string{"path with two slashes"}, "/agent/[01]/status")),
		withGot(`{"faultcode":"Client","faultstring":"\u003ctext \u003e"}`, at("A2", group, double,
			[]string{"path with two slashes"}, "/agent/[01]/body")),
		withGot(`"application/json"`, at("A2", group, double, []string{"path with two slashes"},
			"/agent/[01]/header/Content-Type")),
		absent("A2", group, double, []string{"path with two slashes"}, "/agent/[01]/header/Location"),
		withGot("200", at("A2", group, "An escaped slash in a path is a slash.", []string{"path with escapes"},
			"/agent/2/status")),
		at("A2", group, "An escaped slash in a path is a slash.", []string{"path with escapes"}, "/agent/2/body/*"),
		invalid("E17", group, clientError, []string{"bootc null"}),
		invalid("E6", group, clientError, []string{"bootloader failure ignored by text", "bootloader root number"}),
		at("F9", group, runtime, []string{"steps *"}, "/agent/0/body/command_result/*_steps/ContainerHardwareManager",
			"/agent/0/body/command_result/hardware_manager_version/ContainerHardwareManager",
			"/agent/0/body/command_result/hardware_manager_version/selftest_hardware_manager"),
		at("F9", group, runtime, []string{"steps [cs]*", "steps of a small node", "steps ports null"},
			"/agent/0/body/command_result/*_steps/SelfTestHardwareManager"),
		invalidArguments("E8", group, named, []string{
			"execute * args list", "execute * args text", "execute * node *", "execute * of a list",
			"execute * of a text", "execute * with a number", "execute clean erase_pstore unknown args",
			"execute deploy apply without raid_config", "execute deploy bootc without image",
			"execute deploy write_image without image",
		}),
		withGot(`"SoftwareRAIDError"`, at("E8", group, named, []string{"execute deploy apply with null"}, kind...)),
		withGot(`"CommandExecutionError"`, at("E8", group, named, []string{"execute * with null"}, kind...)),
		withGot(`"HardwareManagerMethodNotFound"`, at("E8", group, offered,
			[]string{"execute * private", "execute clean method that is no step"}, kind...)),
		fails("E8", group, offered, 500, "HardwareManagerMethodNotFound", "execute clean step of deploy",
			"execute deploy step of clean", "execute service step of clean"),
		invalidArguments("A12", group, named, []string{"execute * versions text"}),
		withGot(`"FAILED"`, at("A12", group, named, []string{"execute * versions text"},
			"/agent/0/body/command_status")),
		withGot("404", at("E13", group, nested, []string{"flow in a flow"}, "/agent/0/body/command_error/code")),
		withGot(`"RequestedObjectNotFoundError"`, at("E13", group, nested, []string{"flow in a flow"}, kind...)),
		withGot(`"flow.start_flow"`, at("E13", group, nested, []string{"flow in a flow"},
			"/agent/0/body/command_name")),
		runs("A10", group, crash, "CommandExecutionError", "flow unknown parameter"),
		runs("A10", group, crash, "TypeError", "command_name as a parameter"),
		absent("E13", group, "Null parameters mean no parameters.", []string{"flow with params null"},
			"/agent/0/body/command_error"),
		withGot(`"SUCCEEDED"`, at("E13", group, "Null parameters mean no parameters.",
			[]string{"flow with params null"}, "/agent/0/body/command_status")),
		invalid("E13", group, "A flow is validated before its first command.", []string{"flow with params of a list"}),
		at("R1", group, "The ramdisk with ironic-python-agent has no IPv6.", []string{"hardware info"},
			"/agent/0/body/command_result/interfaces/0/ipv6_address"),
		withGot("400", at("E14", group, "ironic-python-agent has no iSCSI any more.",
			[]string{"iscsi", "iscsi port", "iscsi unknown command"}, "/agent/0/status")),
		runs("E7", group, "ironic-python-agent takes the missing uuid for a missing extension.", "",
			"key error steps node empty"),
		withGot(`"file"`, at("E11", group, logs, []string{"log archive"}, archive+"errors")),
		absent("E11", group, logs, []string{"log archive"}, archive+"var/log/*/*"),
		runs("A10", group, crash, "TypeError", withPrefix("type error ", "hardware info", "logs", "node info",
			"partition uuids", "rescue unknown", "steps unknown", "steps without *", "sync", "sync self")...),
		runs("E13", group, "A missing flow is an empty one; ironic-python-agent fails with an exception.", "",
			"type error flow missing", "type error flow null"),
		refused("E13", "type error flow number", "type error flow of a text"),
		refused("E10", "type error rescue list", "type error rescue null"),
		refused("E7", "type error steps node *"),
	} {
		all = append(all, part...)
	}
	return all
}
