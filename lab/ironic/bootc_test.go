//go:build linux && long

package ironic

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	fixed "github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
	"ironroot/lab/selfsigned"
	"ironroot/storage/partition"
)

// TestRealIronicBootc deploys a bootable container image with the newest Ironic, whose deploy interface autodetect
// reads the image's manifest in the registry and chooses the interface bootc. The registry requires the pull secret of
// the node. The program bootc of the image is the fake of lab/e2e, which checks its environment. The machine has
// 768 MiB of memory.
//
// Parity: E17 (autodetect of a real Ironic)
func TestRealIronicBootc(t *testing.T) {
	testenv.Programs(t, "go", "sgdisk", "debugfs")
	kernel, ramdisk := testenv.Build(t, "ipa-ironroot-amd64.kernel"), testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	ctx := testenv.Context(t, 45*time.Minute)
	i := start(t, Options{
		Suite: Sid,
		Config: "[DEFAULT]\nenabled_deploy_interfaces = autodetect,direct,ramdisk,bootc\n" +
			"[oci]\nverify_ca = " + inside + "/registry.pem\n[conductor]\nautomated_clean = false\n",
		KernelParams: "ipa-insecure=1 ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1",
	})
	image := serveContainer(t, ctx, i)
	n, err := i.Enroll(ctx, NodeOptions{
		DeployInterface: "autodetect", Kernel: kernel, Ramdisk: ramdisk, Memory: 768 << 20,
		Disks: []qemu.Disk{{Size: 5 << 30, Serial: "DISK0"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	step(t, "manage", n.Manage(ctx))
	step(t, "provide", n.Provide(ctx))
	step(t, "image", n.Set(ctx, "/instance_info", map[string]any{
		"image_source": "oci://" + image, "bootc_authorized_keys": "ssh-ed25519 AAAA admin\n",
		"image_pull_secret": base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + registryPassword)),
	}))
	step(t, "deploy", n.provision(ctx, slowly, "active", "active", map[string]any{
		"configdrive": map[string]any{"meta_data": map[string]any{"uuid": newUUID()}},
	}))
	if !strings.Contains(i.Logs(1<<20), "autodetect switching to deploy interface: bootc") {
		t.Error("Ironic's log does not say that autodetect chose the interface bootc")
	}
	checkContainer(t, n, image)
}

// Credentials of the registry, and its token.
const (
	registryUser     = "ironic"
	registryPassword = "wrong-horse-battery"
	registryToken    = "token-of-the-registry"
)

// serveContainer starts a registry in the machine's network that contains a bootable image, and returns its name.
func serveContainer(t *testing.T, ctx context.Context, i *Ironic) string {
	t.Helper()
	const host = address + ":5000"
	certificate, authority, err := selfsigned.Issue(address)
	step(t, "certificate", err)
	step(t, "authority", os.WriteFile(i.path("registry.pem"), authority, 0o644))
	i.serveHTTP(t, host, &http.Server{
		Handler:   privateRegistry(host),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	})
	reference, err := name.ParseReference(host + "/os:latest")
	step(t, "name", err)
	client := &http.Transport{
		DialContext: i.ns.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the guest
	}
	defer client.CloseIdleConnections()
	step(t, "push", remote.Write(reference, bootable(t), remote.WithContext(ctx), remote.WithTransport(client),
		remote.WithAuth(&authn.Basic{Username: registryUser, Password: registryPassword})))
	return reference.String()
}

// privateRegistry returns a registry that requires a token, and gives it for the password. Ironic sends the pull secret
// as the password of a user without a name.
func privateRegistry(host string) http.Handler {
	secret := base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + registryPassword))
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /token", func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if password != map[string]string{"": secret, registryUser: registryPassword}[user] || password == "" {
			http.Error(w, "wrong password", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"token": %q}`, registryToken)
	})
	mux.HandleFunc("/v2/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+registryToken {
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+host+`/token",service="lab"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	})
	return mux
}

// bootable returns an image whose program bootc is the fake. Its environment contains USER:PASSWORD
// backwards, so that the fake can search for it.
func bootable(t *testing.T) v1.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bootc")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-C", testenv.Top(t), "-ldflags=-s -w", "-o", path,
		"./lab/e2e/guest/fakebootc")
	program, err := os.ReadFile(path)
	step(t, "bootc", err)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, file := range []string{"usr/bin/bootc", "usr/bin/udevadm"} {
		header := &tar.Header{Name: file, Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg}
		step(t, "header", w.WriteHeader(header))
		_, err := w.Write(program)
		step(t, "content", err)
	}
	step(t, "layer", w.Close())
	image, err := mutate.AppendLayers(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		fixed.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	step(t, "image", err)
	config, err := image.ConfigFile()
	step(t, "configuration", err)
	backwards := []byte(registryUser + ":" + registryPassword)
	slices.Reverse(backwards)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config.Env = []string{"PATH=/usr/bin", "TERCES=" + string(backwards)}
	config.Config.Cmd = []string{"/sbin/init"}
	image, err = mutate.ConfigFile(image, config)
	step(t, "configuration", err)
	return image
}

// checkContainer reads from the machine's disk the files that the fake bootc wrote.
func checkContainer(t *testing.T, n *Node, image string) {
	t.Helper()
	disk := n.machine.Disks[0].File
	testenv.Run(t, "sgdisk", "-v", disk)
	table, err := partition.Read(t.Context(), disk)
	if err != nil || len(table.Partitions) != 3 {
		t.Fatalf("got partitions %+v and %v, want ESP, root and config drive", table, err)
	}
	for file, want := range map[string]string{
		"image": image + " sha256:", "authorized_keys": "ssh-ed25519 AAAA admin\n", "chrooted": "yes\n",
	} {
		root := fmt.Sprintf("%s?offset=%d", disk, table.Partitions[1].Start)
		if got := testenv.Run(t, "debugfs", "-R", "cat /"+file, root); !strings.Contains(got, want) {
			t.Errorf("got /%s %q, want %q", file, got, want)
		}
	}
}
