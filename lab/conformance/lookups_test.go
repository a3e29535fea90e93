//go:build linux

package conformance

// quickLookupRetry is the kernel parameter with which a failed lookup is repeated soon.
const quickLookupRetry = "ipa-lookup-interval=1"

// lookup is a scenario with replies to lookups. It ends with the first heartbeat.
func lookup(name string, r ...reply) scenario {
	return scenario{name: "lookup " + name, cmdline: quickLookupRetry, ironic: replies{lookup: r}}
}

// lookups are lookups that Ironic refuses before a usual reply.
func lookups() []scenario {
	html := reply{status: 502, body: "<html>", kind: "text/html"}
	older := reply{status: 404, body: object{"error_message": `{"faultstring": "x"}`}}
	return []scenario{
		lookup(
			"401, 403, 404, 406",
			reply{status: 401},
			reply{status: 403},
			reply{status: 404},
			reply{status: 406},
			reply{},
		),
		lookup(
			"500, 502, 503, hangs up",
			reply{status: 500},
			html,
			reply{status: 503, body: ""},
			reply{status: hangUp},
			reply{},
		),
		lookup("html", reply{body: "<html>", kind: "text/html"}, reply{}),
		lookup("409, then success", reply{status: 409}, reply{}),
		lookup("201, 404 in the older form", reply{status: 201}, older, reply{}),
	}
}
