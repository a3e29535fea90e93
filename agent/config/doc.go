// Package config declares the options of the agent and reads them from all sources.
//
// Names, kernel parameters, defaults and precedence of the options are ironic-python-agent's: its kernel command lines,
// configuration files and unit files have the same effect here. The sources from the highest to the lowest precedence:
// values that the conductor sends while the agent runs (the Ironic client applies them through Live), the kernel
// parameter ipa-debug, command line flags, the environment (OS_<GROUP>__<OPTION>), configuration files in order, kernel
// parameters, built-in defaults.
//
// The struct Config is the only declaration of the options. docs/configuration.md is generated from it.
//
// Not implemented: substitution of $option inside values of configuration files.
//
// # Unsigned sources can name Ironic, but not replace its identity
//
// Under a signed image, virtual media and multicast DNS must still be able to name Ironic, and media to pass the node's
// token. An attacker can control these sources. Such an attacker can stop the node anyway, but must not control it.
// Each option therefore declares which of these sources can set it; an option without the declaration fails a test and
// is closed. A list of dangerous options was rejected: it was incomplete (standalone with a token, the file of steps in
// containers), and each new option would have been open. Open are the options that Ironic writes onto media, and
// options that differ between nodes and at worst delay something or fail it. Closed are, for example:
//
//   - standalone: a medium could give commands to the node without Ironic.
//   - insecure, cafile, tls_*: make another server look like Ironic, or weaken its proof.
//   - ironic_api_version, driver_name: choose a protocol without tokens.
//   - advertise_*, listen_*, enable_auto_tls, network_interface: make Ironic send the token to another host or in the
//     clear.
//   - [container], erase_managers, enable_bios_bootloader_install: have other programs run.
//   - skip_storage_controllers, guard-special-filesystems, erase_network_disks, enable_discard_erase, disk_wait_*: make
//     an erase weaker, reach less, or other disks.
//   - ntp_server: set the clock to a time at which a certificate is valid.
//   - syslog_server, log_file, log_dir, metrics, erase_evidence_url: send out files, the log or the inventory.
//   - permitted_image_formats, md5_enabled, disable_deep_image_inspection: weaken the checks of images.
//
// A URL that is not https is an error, unless the image itself sets insecure: it would do the same as insecure. So is
// any URL if the image sets no cafile: whoever controls a medium can have a domain with a certificate of a public
// authority. A value that the image sets is final, because its operator could choose it knowing the node, and the value
// of the medium could undo it. Whoever holds the identity of Ironic may do everything anyway.
//
// With virtual media, Ironic creates the token before the boot and writes it onto the medium; its lookup then answers
// the mask "******". To refuse tokens of media would exclude unmodified Ironics. To trust them would give the node to
// whoever attaches a medium with a token and the right URL: Ironic answers such a node with the mask as well, because
// it has issued a token before. The lookup therefore proves nothing, but a heartbeat does: Ironic compares its token
// with the one that it issued, and rejects another one. So such a token authorizes no command until Ironic, whose
// certificate was verified, has accepted a heartbeat with it at an API version that has tokens. A conductor can send
// its first command before it responds to this heartbeat: a request with such a token waits for the response, for at
// most 30 s. Unlike a token of the image, it is replaced by any token of a lookup.
//
// Of files on a boot ISO, only files that options can name and files with options are copied, because a file such as
// mysteps.yaml is effective without being named.
//
// # Logins of operators come from the kernel command line only
//
// sshkey= and rootpwd= give the rights of root. The command line is under the operator's control when the machine
// boots; a virtual floppy, a configuration file of an ISO or a multicast answer can come from others. Keys can also be
// part of the image, where they are as trusted as the agent.
package config
