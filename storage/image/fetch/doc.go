// Package fetch downloads files over HTTP for the deployment of a machine: images, checksum files and config drives.
//
// A Stream is a whole file. When a connection breaks, the stream resumes with a range request, if the server supports
// ranges and identifies the version of its file (RFC 9110, sections 13.1.5 and 14). ResolveOCI finds the disk image
// of a reference to an OCI registry, and ResolveChecksum the checksum of an image.
//
// Servers are untrusted: every read has a limit of time and size, credentials are sent only to the host that they are
// for, and errors do not quote what was received.
//
// # A server may be slow, but not forever
//
// A read can wait as long as image_download_connection_timeout, so a server that sends one byte a minute never stalls.
// Images have no time limit by default, because the speed of the link is not known. Therefore a minimum rate is
// required instead: ipa-image-download-min-rate, 1024 bytes per second by default, which any link exceeds that can
// deploy a machine at all. It is measured over two minutes or twice the timeout, so that one long pause does not end a
// download. Only the time in which the agent waits for the server counts, so a slow disk has no effect, and silence
// that reaches the timeout has its own retries. Reconnecting does not start a new measurement. A server that is too
// slow is not retried unless another one is in the list. Checksum files and the manifests of a registry have a fixed
// limit of five minutes with all retries, a token has one minute: their sizes are known.
//
// # Errors do not quote fetched data
//
// The error of a command is part of an answer of the API. If it quoted 140 characters of the fetched data, a caller
// could name any URL on the provisioning network in a deploy request and read it. Errors contain the URL without its
// query, the status, the size and the expected value. They omit texts of net/http, which quote malformed answers,
// fields of qcow2 tables, and the digest in a checksum file.
//
// # Registries
//
// Ironic resolves an oci:// reference itself and sends the agent the URL of a blob. Other callers of the agent can send
// the reference. Manifests, digests, challenges and tokens are read by go-containerregistry, which adds 52 KiB to the
// ramdisk. The requests are made like every other download, with its time limits, retries, redirects and redacted
// errors. So the library's remote cannot be used, and neither can these parts:
//
//   - its transport as a whole. It decides by the answer to /v2/, and never gets a token for a registry that requires
//     one only for other paths. It rejects a token server with a private address, which is usual on a provisioning
//     network. It allows the storage that a registry redirects to to name another token server. It keeps using an
//     expired token if the caller provided it. Several requests share one time limit. So an answer that demands a token
//     is passed to its Ping, which parses it, and its Exchange fetches the token.
//   - its names. They accept a/../b as a repository, and a host without a dot as a part of one on docker.io. References
//     are parsed by the grammar of the distribution project.
//   - its keychains, which read docker's configuration and start helpers. The library imports them; the linker removes
//     them.
//
// Credentials are sent to the registry and to the token server that it names, only by https. A storage that the
// registry redirects to gets none, and must not name a token server. An expired token is replaced in the middle of an
// image, also if the registry answers it with a Basic challenge, as Harbor does. Containers (bootc) are not artifacts:
// prepare_image rejects them, and execute_bootc_install installs them.
package fetch
