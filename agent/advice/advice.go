// Package advice explains errors to people: in a few words what failed, and what to try next.
package advice

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
	"ironroot/agent/ironic"
)

// Reason describes the failure of a connection in a few words, without its URL.
func Reason(err error) string {
	var (
		name      *net.DNSError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &name):
		return "DNS: " + dnsReason(name)
	case errors.Is(err, unix.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, unix.ENETUNREACH):
		return "no route to it"
	case errors.Is(err, unix.EHOSTUNREACH):
		return "host unreachable: nobody answers at that address"
	case errors.Is(err, unix.ECONNRESET):
		return "connection reset"
	case errors.As(err, &authority):
		return "TLS: certificate signed by unknown authority"
	case errors.As(err, &host):
		return "TLS: " + host.Error()
	case errors.As(err, &invalid):
		return "TLS: " + invalid.Error()
	case errors.Is(err, http.ErrSchemeMismatch):
		return "TLS: the server does not use TLS"
	case isTimeout(err):
		return "timeout: no answer"
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err.Error()
	}
	return err.Error()
}

// Brief describes an error in one line. For a request it omits the path of the URL, which contains all MAC addresses.
func Brief(err error) string {
	var request *url.Error
	if !errors.As(err, &request) {
		return err.Error()
	}
	host := request.URL
	if u, parsed := url.Parse(request.URL); parsed == nil {
		host = u.Host
	}
	return host + ": " + Reason(err)
}

func dnsReason(err *net.DNSError) string {
	by := ""
	if err.Server != "" {
		by = " (asked " + err.Server + ")"
	}
	switch {
	case err.IsNotFound:
		return "no such host " + err.Name + by
	case err.IsTimeout:
		return "no answer for " + err.Name + by
	}
	return err.Name + ": " + err.Err + by
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// For returns what to try after an error, and "" if nothing is known.
func For(err error) string {
	var (
		name      *net.DNSError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		status    *ironic.StatusError
		failed    *fault.Error
	)
	switch {
	case errors.As(err, &failed): // of a command: a connection in it is not one to Ironic
		return faultAdvice(failed.Type)
	case errors.As(err, &status):
		return statusAdvice(status)
	case errors.As(err, &name):
		if name.IsNotFound {
			return "does the DNS server know the name in ipa-api-url? An address works without DNS"
		}
		return "is the DNS server that DHCP names reachable from this network? " +
			"An address in ipa-api-url works without DNS"
	case errors.As(err, &authority):
		return "add the CA certificate to the ramdisk (cafile in a file of /etc/ironic-python-agent.d, on the boot " +
			"ISO or in a second archive); in a lab ipa-insecure=1"
	case errors.As(err, &host):
		return "use a name in ipa-api-url that the certificate contains, or issue a certificate for this one"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "is the clock right? ipa-ntp-server sets it; otherwise renew the certificate of Ironic"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the port serves plain HTTP: use http:// instead of https:// in ipa-api-url, or another port"
	case errors.Is(err, unix.ECONNREFUSED):
		return "is ironic-api running, and is the port in ipa-api-url right (6385, or 443 behind a proxy)?"
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return "does this network have a router that leads to Ironic?"
	case isTimeout(err):
		return "does a firewall or a missing route drop the packets between this network and Ironic?"
	}
	return ""
}

func statusAdvice(err *ironic.StatusError) string {
	switch {
	case err.Status == http.StatusNotFound:
		return "does a node in Ironic have a port with one of this machine's MAC addresses, and is it being " +
			"inspected, cleaned, deployed or rescued?"
	case err.Status == http.StatusUnauthorized, err.Status == http.StatusForbidden:
		return "Ironic does not accept this agent's token: " +
			"restart the node through Ironic, which makes it forget the token"
	case err.Status == http.StatusConflict:
		return "another operation has locked the node in Ironic; the agent retries"
	case err.Status >= http.StatusInternalServerError:
		return "read the logs of ironic-api and ironic-conductor; the agent retries"
	}
	return ""
}

// faultAdvice returns advice for a failed command, by the type of the protocol's error.
func faultAdvice(kind string) string {
	switch {
	case kind == "DeviceNotFound":
		return "do the root device hints of the node match one of its disks? Is a driver or a cable missing?"
	case strings.HasPrefix(kind, "ImageDownload"):
		return "can this network reach the image's server? Try its URL from another machine in this network"
	case kind == "ImageChecksumError":
		return "the image does not match its checksum: compare the file on the server with Ironic's image_checksum"
	case kind == "InvalidImage":
		return "is the disk_format in Ironic that of the file?"
	case kind == "ImageWriteError", kind == "BlockDeviceEraseError":
		return "the disk failed or is too small: read the log lines before this one, and check the disk"
	case kind == "ProtectedDeviceError":
		return "a disk contains a shared file system; skip_block_devices in the node's properties excludes a disk"
	}
	return ""
}
