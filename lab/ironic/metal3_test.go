//go:build linux && long

package ironic

import (
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
	"ironroot/lab/selfsigned"
)

// proxyURL is the URL of Ironic's API for machines: by TLS, and behind a proxy, as in Metal3.
const (
	proxyAddress = address + ":6386"
	proxyURL     = "https://" + proxyAddress
)

// TestRealIronicMetal3Media runs the newest Ironic with the options of Metal3's ironic-image, without fast track. Each
// operation boots the ramdisk from virtual media. Ironic's API is behind a proxy with TLS and basic authentication. Its
// certificate authority is only on the medium. The interface autodetect chooses how an image is deployed.
//
// Parity: T1 (virtual media)
func TestRealIronicMetal3Media(t *testing.T) {
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 55*time.Minute)
	system, err := osimage.Build(ctx, osimage.Options{Progress: t.Output()})
	step(t, "image", err)
	i := startMetal3(t, false)
	n, err := i.Enroll(ctx, NodeOptions{
		Name: "media", Boot: VirtualMedia, DeployInterface: "autodetect", Kernel: kernel, Ramdisk: ramdisk,
		Memory: memory, Firmware: true, Disks: []qemu.Disk{{Size: 5 << 30, Serial: "DISK0"}},
	})
	step(t, "enroll", err)
	step(t, "manage", n.Manage(ctx))
	step(t, "inspect", n.Inspect(ctx))
	if n.On() {
		t.Error("the machine is on after the inspection")
	}
	step(t, "provide", n.Provide(ctx))
	image := publish(t, i, system.Raw, "os.raw")
	image.Format = "raw"
	deploy(t, ctx, n.Deploy, n, image)
	n.checkLogs(t)
}

// startMetal3 starts Ironic as ironic-image configures it, and the proxy before its API.
func startMetal3(t *testing.T, fastTrack bool) *Ironic {
	t.Helper()
	dir := t.TempDir()
	certificate, authority, err := selfsigned.Issue(address)
	step(t, "certificate", err)
	root, err := chroot(testenv.Context(t, 30*time.Minute), "", Sid, t.Output())
	step(t, "chroot", err)
	template, err := os.ReadFile(filepath.Join(root, ipxeTemplate))
	step(t, "iPXE template", err)
	step(t, "directory", os.Mkdir(filepath.Join(dir, "http"), 0o755))
	for name, content := range map[string][]byte{
		"ipa-tls.pem":            authority,
		"http/ipa-cacert-bundle": testenv.CABundle(t, authority),
		"ipxe.template":          withBundle(t, template),
	} {
		step(t, name, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	i := start(t, Options{Suite: Sid, Dir: dir, Config: metal3Config(t, fastTrack)})
	checkNewest(t, testenv.Context(t, time.Minute), i)
	i.serveProxy(t, certificate)
	return i
}

// ipxeTemplate is the path of Ironic's template of iPXE scripts in the chroot.
const ipxeTemplate = "usr/lib/python3/dist-packages/ironic/drivers/modules/ipxe_config.template"

// withBundle adds a second archive to the part of a template that boots the deploy ramdisk, as ironic-image does.
func withBundle(t *testing.T, template []byte) []byte {
	t.Helper()
	head, deploy, _ := strings.Cut(string(template), ":deploy\n")
	deploy, tail, _ := strings.Cut(deploy, "\n:retry\n")
	kernel := regexp.MustCompile(`(?m)^(kernel .* initrd=\S.*?) (\|\| goto retry)$`)
	initrd := regexp.MustCompile(`(?m)^initrd .* \|\| goto retry$`)
	if !kernel.MatchString(deploy) || !initrd.MatchString(deploy) {
		t.Fatalf("unknown template of iPXE scripts:\n%s", template)
	}
	deploy = kernel.ReplaceAllString(deploy, "$1 initrd=ipa-cacert-bundle $2")
	deploy = initrd.ReplaceAllString(deploy, "$0\ninitrd ../ipa-cacert-bundle || goto retry")
	return []byte(head + ":deploy\n" + deploy + "\n:retry\n" + tail)
}

// Parameters of Metal3's ramdisk. Several of them mean nothing to it. The API's certificate is verified.
const (
	metal3Common     = "nofb nomodeset vga=normal ipa-insecure=0 systemd.journald.forward_to_console=yes"
	metal3Inspection = "ipa-inspection-collectors=default,logs ipa-enable-vlan-interfaces=all " +
		"ipa-inspection-dhcp-all-interfaces=1 ipa-collect-lldp=1"
	labParameters = "console=ttyS0,115200n8 " + qemu.KernelHints + " ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1"
)

// sshKey returns the parameter with an operator's public key, in quotes.
func sshKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	step(t, "key", err)
	key, err := ssh.NewPublicKey(public)
	step(t, "key", err)
	return `sshkey="` + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + ` admin of metal3"`
}

// metal3Config returns the options of ironic-image that matter to the ramdisk.
func metal3Config(t *testing.T, fastTrack bool) string {
	parameters := metal3Common + " " + labParameters + " " + sshKey(t)
	return fmt.Sprintf(`
[DEFAULT]
default_deploy_interface = autodetect
autodetect_deploy_interfaces = ramdisk,bootc,direct
enabled_deploy_interfaces = autodetect,direct,ramdisk,custom-agent,bootc
hash_ring_algorithm = sha256

[agent]
deploy_logs_collect = always
max_command_attempts = 30
api_ca_file = %[1]s/ipa-tls.pem

[api]
public_endpoint = %[2]s
# Shorter than the default, so that the test does not wait.
ramdisk_heartbeat_timeout = 60

[conductor]
automated_clean = true
node_history = false

[deploy]
default_boot_option = local
erase_devices_metadata_priority = 10
erase_devices_priority = 0
fast_track = %[3]t

[inspector]
require_managed_boot = false
power_off = %[4]t
extra_kernel_params = %[5]s
hooks = $default_hooks,parse-lldp
add_ports = all
keep_ports = present

[pxe]
enable_netboot_fallback = true
ipxe_fallback_script = inspector.ipxe
ipxe_config_template = %[1]s/ipxe.template
kernel_append_params = %[6]s

[redfish]
kernel_append_params = %[6]s

[service_catalog]
endpoint_override = %[2]s
`, inside, proxyURL, fastTrack, !fastTrack, metal3Inspection, parameters)
}

// serveProxy serves Ironic's API by TLS. As in Metal3, all requests need a password, except requests of ramdisks.
func (i *Ironic) serveProxy(t *testing.T, certificate tls.Certificate) {
	t.Helper()
	target, err := url.Parse(apiURL)
	step(t, "URL", err)
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = i.http.Transport
	public := regexp.MustCompile(`^/(v1/?)?$|^/(v1/)?(lookup|heartbeat|continue_inspection)`)
	i.serveHTTP(t, proxyAddress, &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if user, password, _ := req.BasicAuth(); !public.MatchString(req.URL.Path) &&
				(user != registryUser || password != registryPassword) {
				t.Errorf("%s: got %s %s without a password", req.RemoteAddr, req.Method, req.URL.Path)
				w.Header().Set("WWW-Authenticate", `Basic realm="Restricted area"`)
				http.Error(w, "password required", http.StatusUnauthorized)
				return
			}
			forward.ServeHTTP(w, req)
		}),
	})
}

// checkLogs checks that Ironic has stored the ramdisk's logs of inspection, cleaning and deployment.
func (n *Node) checkLogs(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(n.ironic.path("deploylogs/*"))
	step(t, "logs", err)
	for _, operation := range []string{"inspect_", "cleaning_", ""} { // Ironic has no name for steps of a deployment
		form := regexp.MustCompile("^" + n.UUID + "_" + n.Name + "_" + operation + `\d[\d-]*\.tar\.gz$`)
		if !slices.ContainsFunc(files, func(name string) bool { return form.MatchString(filepath.Base(name)) }) {
			t.Errorf("logs of the ramdisk: got %v, want some that match %v", files, form)
		}
	}
}
