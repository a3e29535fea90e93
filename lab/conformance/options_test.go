//go:build linux

package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ironroot/lab/imageserver"
)

// options are the scenarios of the agent's options: kernel parameters, the configuration file, and the lookup's reply.
// An agent that does not start sends nothing, so that no value is one that either agent rejects.
func options() group {
	return group{
		name: "options", shape: shape{disks: []disk{rootDisk()}}, publish: publishOptions,
		scenarios: slices.Concat(sources(), values(), servers(), tokens(), lookupOptions(), callbacks(), stepOptions(),
			conversations(), imageOptions(), inspectionOptions(), vlans()),
	}
}

// The images of these scenarios. The reply for a delayed image starts after 3 s. The first request for a flaky one
// fails.
const (
	plainImage   = "plain.raw"
	delayedImage = "late.raw"
)

func flakyImage(n int) string { return fmt.Sprintf("flaky%d.raw", n) }

func publishOptions(m *machine) {
	publishAll(func(t *testing.T, files contents) {
		t.Helper()
		partitioned := func(name string) []byte { return slices.Concat(mbrParts, pattern(name, imageSize)[512:]) }
		files[plainImage], files[delayedImage] = partitioned("plain"), partitioned("late")
		for n := range 2 {
			files[flakyImage(n)] = partitioned("flaky")
		}
	})(m)
	m.images.Fault(delayedImage, imageserver.Fault{Delay: 3 * time.Second})
	for n := range 2 {
		m.images.Fault(flakyImage(n), imageserver.Fault{Status: 503, Times: 1})
	}
}

// plainAPI is a line of the configuration file with which the API has no TLS.
const plainAPI = "enable_auto_tls = false\n"

// option is a scenario with kernel parameters and lines of the configuration file.
func option(name, cmdline, config string, do ...request) scenario {
	if config != "" && !strings.HasSuffix(config, "\n") {
		config += "\n"
	}
	return scenario{name: name, cmdline: cmdline, config: config, do: do}
}

// sources are options that several sources set, and forms of these sources.
func sources() []scenario {
	const port = "ipa-advertise-port="
	return []scenario{
		option("file before kernel", port+"7001 ipa-global-request-id=req-1",
			"advertise_port = 7002\nglobal_request_id ="),
		option("twice", port+"7001 "+port+"7002", "global_request_id = req-1\nglobal_request_id = req-2"),
		option("kernel other names", "ipa_advertise_port=7001 ipa-advertise_port=7002 IPA-ADVERTISE-PORT=7003 "+
			"advertise-port=7004 advertise_port=7005 quiet initrd=a initrd=b =x ipa- ipa-unknown=1 a=b=c --- "+
			"ipa-advertise-host ipa-enable-auto-tls=false ipa-global-request-id=req-a=b", ""),
		option("kernel quoted", `ipa-global-request-id="req-1" "ipa-advertise-port=7001"`, plainAPI),
		option("file other names", "", "advertise-port = 7001\nADVERTISE_PORT = 7002\nipa-advertise-port = 7003\n"+
			"unknown = 1"),
		option("file other sections", "", "[container]\nadvertise_port = 7001\n[default]\nadvertise_port = 7002\n"+
			"[unknown]\nadvertise_port = 7003"),
		option("file forms", "", "[container]\nrunner = docker\n[DEFAULT]\n# advertise_port = 7001\n"+
			"advertise_port: 7002\n; advertise_port = 7003\n\nglobal_request_id=a:b"),
		option("file quotes", "", plainAPI+"advertise_host = '10.0.2.98'\nglobal_request_id = \"req 1\""),
		option("file comment after a value", "", plainAPI+"global_request_id = req-1 # x"),
		option("file quote without its end", "", plainAPI+"global_request_id = \"req-1"),
		option("file back quotes", "", plainAPI+"global_request_id = `req-1`"),
		option("file interpolation", "", plainAPI+"global_request_id = %(listen_port)s"),
		option("file references", "", plainAPI+"listen_host = 10.0.2.15\nglobal_request_id = a$$b${listen_port}"),
	}
}

// values are spellings of values.
func values() []scenario {
	return []scenario{
		option("integers", "ipa-advertise-port=7_001 ipa-lookup-timeout=+60 ipa-disk-wait-attempts=007", ""),
		option("integers empty", "ipa-disk-wait-attempts= ipa-http-request-timeout= "+
			"ipa-image-download-connection-retries= ipa-lldp-timeout=", ""),
		option("floats", "ipa-lldp-timeout=1e-1", ""),
		option("booleans", "ipa-insecure=YES ipa-collect-lldp=Off", "enable_auto_tls = OFF"),
	}
}

// servers are options of the way to Ironic.
func servers() []scenario {
	const ironic, unreachable = "http://10.0.2.2:6385", "http://10.0.2.2:6384"
	url := func(name, cmdline, config string) scenario {
		return option("api_url "+name, quickLookupRetry+" ipa-api-url="+cmdline, config)
	}
	return []scenario{
		url("second", unreachable+","+ironic, ""),
		url("file", unreachable, "api_url = "+unreachable+",,\n  "+ironic+","),
	}
}

// tokens are options and replies with tokens.
func tokens() []scenario {
	other := strings.Repeat("other", 8)
	one := func(name, cmdline, config string, value any, given string) scenario {
		s := option("agent_token "+name, cmdline, config, request{
			method: "GET", path: "/v1/commands/", token: given,
		})
		s.ironic.lookup = []reply{{config: object{"agent_token": value}}}
		return s
	}
	return []scenario{
		one("known to Ironic", "ipa-agent-token="+other, "", "******", other),
		one("without a reply", "ipa-agent-token="+other, "", nil, other),
		one("replaced", "ipa-agent-token="+other, "", token, other),
		one("short", "ipa-agent-token=short", "", nil, "short"),
		one("short reply", "ipa-agent-token="+other, "", "short", other),
		one("none", "", "", nil, ""),
	}
}

// lookupOptions are options in the reply to a lookup.
func lookupOptions() []scenario {
	one := func(name string, config object, do ...request) scenario {
		return scenario{name: "reply " + name, ironic: replies{lookup: []reply{{config: config}}}, do: do}
	}
	again := one("heartbeat_timeout", object{"heartbeat_timeout": 10})
	again.until = until{heartbeatRequest, 2}
	older := one("without config", nil)
	older.ironic.lookup[0].body = object{"node": nodeWith(nil), "heartbeat_timeout": 300}
	return []scenario{
		again, older,
		one("tls", object{"tls_min_version": "1.3", "tls_cipher_suites": "ECDHE-ECDSA-AES256-GCM-SHA384"},
			get("/v1/status")),
		one("agent_skip_bmc_detect", object{"agent_skip_bmc_detect": nil}, command("poll.get_hardware_info", object{})),
		one("unknown keys", object{
			"unknown": 1, "agent_token_required": nil, "api_url": "http://10.0.2.2:1", "metrics": nil,
			"metrics_statsd": nil, "agent_containers": object{
				"unknown": 1, "runner": "unknown", "allow_arbitrary_containers": "maybe",
			},
		}),
	}
}

// callbacks are options that decide the URL at which Ironic reaches the agent.
func callbacks() []scenario {
	return []scenario{
		option("advertise_host", "ipa-advertise-host=10.0.2.99", ""),
		option("advertise_host IPv6", "ipa-advertise-host=fd00::1", ""),
		option("advertise_host name", "ipa-advertise-host=agent.example", plainAPI),
		option("advertise_host in brackets", "ipa-advertise-host=[fd00::1]", plainAPI),
		option("advertise_host empty", "ipa-advertise-host=", plainAPI),
		option("advertise_protocol", "ipa-advertise-protocol=https", plainAPI),
		option("network_interface", "ipa-network-interface=lo", ""),
		option("listen_port", "ipa-listen-port=8080 ipa-advertise-port=8081", ""),
		option("listen_host", "ipa-listen-host=10.0.2.15", "", get("/v1/status")),
		option("enable_auto_tls", "", plainAPI, get("http://agent/v1/status")),
		option("tls options", "ipa-tls-certificate-curve=p256 ipa-tls-min-version=1.3", "", get("/v1/status")),
		option("tls_cipher_suites", "ipa-tls-cipher-suites=ECDHE-ECDSA-AES128-GCM-SHA256",
			"auto_tls_allowed_clock_skew = 0", get("/v1/status")),
	}
}

// stepOptions are options that change steps and other commands.
func stepOptions() []scenario {
	params := object{"node": nodeWith(nil), "ports": ports()}
	boot := func(replaced object) request {
		return command("image.install_bootloader", with(object{
			"root_uuid": "7d1b1d9c-3f7f-4f0e-8f0b-2b1d7a3c5e07",
		}, replaced))
	}
	bootc := command("standby.execute_bootc_install", object{"image_source": "oci://10.0.2.2:1/a/b:c"})
	return []scenario{
		option("inject_files_priority", "ipa-inject-files-priority=50", "",
			command("deploy.get_deploy_steps", params), command("service.get_service_steps", params)),
		option("ignore_bootloader_failure", "ipa-ignore-bootloader-failure=1", "",
			boot(nil), boot(object{"ignore_bootloader_failure": false}),
			boot(object{"target_boot_mode": "uefi"}),
			boot(object{"target_boot_mode": "uefi", "ignore_bootloader_failure": false})),
		option("enable_bios_bootloader_install", "", "enable_bios_bootloader_install = true\ndisable_bootc_deploy = 1",
			boot(nil), bootc),
	}
}

// conversations are options of requests to Ironic.
func conversations() []scenario {
	version := func(name, value string) scenario {
		return option("ironic_api_version "+name, "ipa-advertise-host=10.0.2.15 ipa-ironic-api-version="+value, "")
	}
	failing := option("lookup_interval", "ipa-lookup-interval=0 ipa-lookup-timeout=50", "")
	failing.ironic.lookup = []reply{{status: 404}, {status: 503}, {}}
	return []scenario{
		option("global_request_id", "ipa-global-request-id=req-1be26c0b-03f2-4d2e-ae87-c02d7f33c123", ""),
		version("1.31", "1.31"), version("1.62", "1.62"),
		failing,
		option("without an effect", "ipa-lookup-timeout=0 ipa-http-request-timeout=5 "+
			"ipa-hardware-initialization-delay=1 ipa-disk-wait-attempts=0 ipa-disk-wait-delay=0 "+
			"ipa-ip-lookup-attempts=1 ipa-ip-lookup-timeout=0 ipa-driver-name=agent_ipmitool",
			"introspection_daemon = true\nfail_if_clock_not_set = true\ninsecure = true\nkeyfile = /none\n"+
				"[mdns]\nuse_mdns = true"),
		option("ntp_server", "ipa-ntp-server=127.0.0.1", ""),
	}
}

// imageOptions are options of downloads and images.
func imageOptions() []scenario {
	const (
		permitted = "permitted_image_formats"
		unchecked = "disable_deep_image_inspection"
		md5Option = "agent_md5_checksum_enable"
	)
	var all []scenario
	add := func(name, cmdline, config, image string, replaced, replied object) {
		id := strings.ReplaceAll(name, " ", "-")
		s := option(name, cmdline, config,
			hidden(command("deploy.get_deploy_steps", object{"node": nodeWith(nil), "ports": ports()})),
			command("standby.prepare_image", object{"image_info": imageInfo(id, image, "raw", false, replaced)}))
		if replied != nil {
			s.ironic.lookup = []reply{{config: replied}}
		}
		all = append(all, s)
	}
	md5Sum := object{"checksum": "{md5 " + plainImage + "}", "os_hash_algo": gone{}, "os_hash_value": gone{}}
	add("md5_enabled", "", "md5_enabled = true", plainImage, md5Sum, object{md5Option: nil})
	add("md5_enabled and a reply", "", "md5_enabled = true", plainImage, md5Sum, nil)
	add("md5_enabled reply", "", noDownloadRetries, plainImage, md5Sum, object{md5Option: true})
	add("formats", "", permitted+" = qcow2", plainImage, nil, object{permitted: nil})
	add("formats reply empty", "", "", plainImage, nil, object{permitted: []string{}})
	add("formats unchecked", "", permitted+" = qcow2\n"+unchecked+" = 1", plainImage, nil,
		object{permitted: nil, unchecked: nil})
	add("retries 0", "ipa-image-download-connection-retries=0", "", flakyImage(0), nil, nil)
	add("retries 1", "ipa-image-download-connection-retries=1 ipa-image-download-connection-retry-interval=0", "",
		flakyImage(1), nil, nil)
	add("connection_timeout", "ipa-image-download-connection-timeout=1", noDownloadRetries, delayedImage, nil, nil)
	add("max_duration", "ipa-image-download-max-duration=1", noDownloadRetries, delayedImage, nil, nil)
	basic := object{"urls": []string{fmt.Sprintf("http://%s:%d/basic/%s", hostAddress, gatePort, plainImage)}}
	const user = "image_server_user = user\nimage_server_password = secret\n"
	add("basic auth", "", noDownloadRetries+user+"image_server_auth_strategy = http_basic", plainImage, basic, nil)
	return all
}

// inspectionOptions are options of an inspection.
func inspectionOptions() []scenario {
	const numa = "inspection_collectors = numa-topology\n"
	on := func(name, collectors, cmdline, config string) scenario {
		s := inspected(name, collectors)
		s.cmdline = strings.TrimSpace(s.cmdline + " " + cmdline)
		s.config = config
		return s
	}
	return []scenario{
		option("inspection of the file", "", "inspection_callback_url = "+inspectionURL+"\n"+numa),
		option("inspection empty URL", "ipa-inspection-callback-url=", ""),
		option("inspection empty URL and collectors", "ipa-inspection-callback-url= ipa-inspection-collectors="+
			"numa-topology", ""),
		on("spaces", "", "ipa-global-request-id=req-1", "inspection_collectors = ' , numa-topology ,'\n"),
		on("without waiting", "default", "ipa-inspection-dhcp-wait-timeout=0 BOOTIF=52:54:00:1A:00:01", ""),
		on("collect_lldp", "default", "ipa-collect-lldp=1 ipa-inspection-dhcp-all-interfaces=yes", ""),
	}
}

// vlans are options that create links. Links stay in the machine, so that these scenarios are the last ones.
func vlans() []scenario {
	const timeout = " ipa-lldp-timeout=1"
	return []scenario{
		option("enable_vlan_interfaces all", "ipa-enable-vlan-interfaces=all"+timeout, ""),
		option("enable_vlan_interfaces", "ipa-enable-vlan-interfaces=eth7.5,,eth0.100"+timeout, ""),
	}
}
