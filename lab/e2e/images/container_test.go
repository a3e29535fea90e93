//go:build linux

package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/netns"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// The registry's user.
const (
	registryUser     = "ironic"
	registryPassword = "wrong-horse-battery"
)

// scratchMarker fills the large file of an image, so that it can be found on a disk.
const scratchMarker = "SCRATCH SPACE MUST BE ZEROED....\n"

// testRegistry is a registry of container images on the loopback interface of a namespace, by https.
type testRegistry struct {
	t      *testing.T
	server *httptest.Server
	broken string // path of a blob that is served with another last byte
}

func newRegistry(t *testing.T, ns *netns.Namespace) *testRegistry {
	t.Helper()
	r := &testRegistry{t: t}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.server = rig.NewServer(t, ns, http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		user, password, _ := request.BasicAuth()
		private := strings.HasPrefix(request.URL.Path, "/v2/private") || request.URL.Path == "/v2/"
		if private && (user != registryUser || password != registryPassword) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if request.Method == http.MethodGet && request.URL.Path == r.broken {
			recorder := httptest.NewRecorder()
			images.ServeHTTP(recorder, request)
			body := recorder.Body.Bytes()
			body[len(body)-1]++
			_, _ = w.Write(body)
			return
		}
		images.ServeHTTP(w, request)
	}))
	r.server.StartTLS()
	r.server.Client().Transport.(*http.Transport).DialContext = ns.DialContext
	t.Cleanup(r.server.Close)
	return r
}

// name returns the name of an image for the guest.
func (r *testRegistry) name(repository string) string {
	return rig.GuestAddress(r.server) + "/" + repository
}

// send stores a blob or a manifest.
func (r *testRegistry) send(method, path, media string, body []byte) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.SetBasicAuth(registryUser, registryPassword)
	request.Header.Set("Content-Type", media)
	response, err := r.server.Client().Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		r.t.Fatalf("%s %s: %s", method, path, response.Status)
	}
}

func digestOf(data []byte) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(data))}
}

// blob stores a blob and returns its descriptor.
func (r *testRegistry) blob(repository string, media types.MediaType, data []byte) v1.Descriptor {
	r.t.Helper()
	d := v1.Descriptor{MediaType: media, Size: int64(len(data)), Digest: digestOf(data)}
	path := "/v2/" + repository + "/blobs/uploads/?digest=" + d.Digest.String()
	r.send(http.MethodPost, path, "application/octet-stream", data)
	return d
}

// push stores an image with layers that are tar archives. change, if not nil, changes its manifest.
func (r *testRegistry) push(repository string, config v1.Config, change func(*v1.Manifest), layers ...[]byte) {
	r.t.Helper()
	file := v1.ConfigFile{Architecture: "amd64", OS: "linux", Config: config, RootFS: v1.RootFS{Type: "layers"}}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	for _, l := range layers {
		d := r.blob(repository, types.OCIUncompressedLayer, l)
		manifest.Layers = append(manifest.Layers, d)
		file.RootFS.DiffIDs = append(file.RootFS.DiffIDs, d.Digest)
	}
	text, err := json.Marshal(file)
	if err != nil {
		r.t.Fatal(err)
	}
	manifest.Config = r.blob(repository, types.OCIConfigJSON, text)
	if change != nil {
		change(&manifest)
	}
	if text, err = json.Marshal(manifest); err != nil {
		r.t.Fatal(err)
	}
	r.send(http.MethodPut, "/v2/"+repository+"/manifests/latest", string(types.OCIManifestSchema1), text)
}

// layerOf returns a tar archive with files of mode 0755.
func layerOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, content := range files {
		header := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// pushAll stores the images of the test.
func (r *testRegistry) pushAll() {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "bootc")
	testenv.Run(r.t, "env", "CGO_ENABLED=0", "go", "build", "-ldflags=-s -w", "-o", path,
		"ironroot/lab/e2e/guest/fakebootc")
	program, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	backwards := []byte(registryUser + ":" + registryPassword)
	slices.Reverse(backwards)
	config := v1.Config{Env: []string{"PATH=/usr/bin", "TERCES=" + string(backwards)}, Cmd: []string{"/sbin/init"}}
	system := layerOf(r.t, map[string][]byte{"usr/bin/bootc": program, "usr/bin/udevadm": program})
	r.push("private/os", config, nil, system)
	large := bytes.Repeat([]byte(scratchMarker), 70*rig.MiB/len(scratchMarker))
	r.push("large", config, nil, system, layerOf(r.t, map[string][]byte{"usr/large": large}))

	tool := v1.Config{Entrypoint: []string{"/tool", "as"}, Cmd: []string{"configured"}}
	r.push("tool", tool, nil, layerOf(r.t, map[string][]byte{"tool": program}))
	r.push("other", tool, nil, layerOf(r.t, map[string][]byte{"tool": program}))
	r.push("outside", config, nil, system, layerOf(r.t, map[string][]byte{"../../../tmp/escaped": []byte("x")}))
	r.push("empty", config, nil, layerOf(r.t, map[string][]byte{"usr/bin/something": []byte("x")}))
	corrupt := layerOf(r.t, map[string][]byte{"usr/bin/bootc": []byte("corrupt")})
	r.push("corrupt", config, nil, corrupt)
	r.broken = "/v2/corrupt/blobs/" + digestOf(corrupt).String()
	r.push("huge", config, func(m *v1.Manifest) { m.Layers[0].Size = 1 << 38 }, corrupt)
	r.push("bomb", config, func(m *v1.Manifest) {
		m.Layers[0] = r.blob("bomb", types.OCILayerZStd, bombLayer(r.t, 600*rig.MiB))
	}, corrupt)
}

// bombLayer returns a compressed layer of a few KiB that unpacks to a file of size bytes.
func bombLayer(t *testing.T, size int64) []byte {
	t.Helper()
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "usr/bomb", Mode: 0o644, Size: size, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	piece := bytes.Repeat([]byte(scratchMarker), rig.MiB/len(scratchMarker))
	for left := size; left > 0; left -= int64(len(piece)) {
		if _, err := w.Write(piece[:min(left, int64(len(piece)))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// TestContainers runs containers in the ramdisk. The images are in a registry on loopback. The program bootc of the
// images is a fake, which checks its environment as bootc does and installs a system that the test finds on the
// disk.
//
// Parity: E17 (a fake bootc), F9 (allowed images)
func TestContainers(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "go", "debugfs", "dumpe2fs", "e2fsck", "sgdisk")
	testenv.Root(t)
	ns := rig.NewNamespace(t)
	registry := newRegistry(t, ns)
	registry.pushAll()
	small, big := rig.File(t, "small", 1536*rig.MiB, nil), rig.File(t, "big", 4096*rig.MiB, nil)
	tiny := rig.File(t, "tiny", 1216*rig.MiB, nil) // for an image it has less space than memory
	r := rig.Start(t, rig.Setup{
		Namespace: ns,
		Append:    "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ipa-image-download-connection-retries=0",
		Machine: qemu.Config{Firmware: qemu.UEFI, Memory: 768 * rig.MiB, Disks: []qemu.Disk{
			{File: small}, {File: big}, {File: tiny},
		}},
		Config: map[string]any{"agent_containers": map[string]any{
			"allow_arbitrary_containers": false, "run_options": "--rm --network=host",
			"allowed_containers": []any{"docker://" + registry.name("tool")},
		}},
	})
	r.Secrets = append(r.Secrets, registryPassword)
	r.WaitAgent(t)
	containerSteps(t, r, registry)
	refusedImages(t, r, registry)
	installContainers(t, r, registry)
	if err := r.Machine.Stop(); err != nil {
		t.Fatal(err)
	}
	checkInstalled(t, small, "private/os", registry)
	checkInstalled(t, big, "large", registry)
}

// containerSteps runs steps in containers, one of which the configuration refuses.
func containerSteps(t *testing.T, r *rig.Rig, registry *testRegistry) {
	t.Helper()
	step := func(image string) *conductor.Record {
		return r.CleanStep(t, "generic_container_step", map[string]any{
			"container_url": image, "run_options": "--privileged -e FAIL=1", // ignored
		})
	}
	if record := step(registry.name("tool")); record.Status != conductor.Succeeded {
		t.Errorf("allowed image: got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	rig.WaitConsole(t, r.Machine, `container output .*tool ran: process \d+, 0 disks, as configured`)
	rig.WaitConsole(t, r.Machine, `container output .*\d+ attacks, 2 succeeded`)
	record := step(registry.name("other"))
	if record.Status != conductor.Failed || record.Error.Type != "ContainerNotPermittedError" {
		t.Errorf("other image: got %s (%v), want a ContainerNotPermittedError", record.Status, record.Error)
	}
}

// installContainer runs the step execute_bootc_install on a disk.
func installContainer(t *testing.T, r *rig.Rig, disk string, arguments map[string]any) *conductor.Record {
	t.Helper()
	return r.Command(t, "deploy.execute_deploy_step", map[string]any{
		"step": map[string]any{"step": "execute_bootc_install", "interface": "deploy", "args": arguments},
		"node": map[string]any{
			"uuid": r.Node.UUID(), "properties": map[string]any{"root_device": map[string]any{"name": disk}},
			"instance_info": map[string]any{"bootc_authorized_keys": "ssh-ed25519 AAAA admin\n"},
		},
		"ports": []any{},
	})
}

// refusedImages installs images that are not valid. Each is an error of the protocol, and the agent keeps running.
func refusedImages(t *testing.T, r *rig.Rig, registry *testRegistry) {
	t.Helper()
	const failed, small, tiny = "ImageDownloadError", "/dev/vda", "/dev/vdc"
	for _, tt := range []struct{ repository, disk, want string }{
		{"missing", small, "404"},
		{"private/os", small, "401"},
		{"corrupt", small, "digest"},
		{"outside", small, "escaped"},
		{"huge", small, "not enough space"},
		{"bomb", tiny, "(after not enough space in the scratch space (memory, "},
		{"empty", small, "does not contain the required bootc binary"},
	} {
		record := installContainer(t, r, tt.disk, map[string]any{
			"image_source": "oci://" + registry.name(tt.repository), "configdrive": nil, "oci_pull_secret": nil,
		})
		if record.Status != conductor.Failed || record.Error.Type != failed ||
			!strings.Contains(record.Error.Details, tt.want) {
			t.Errorf("%s: got %s (%v), want %s with %q", tt.repository, record.Status, record.Error, failed, tt.want)
		}
	}
}

// installContainers installs an image from memory, and one that needs the end of the disk.
func installContainers(t *testing.T, r *rig.Rig, registry *testRegistry) {
	t.Helper()
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": rig.DriveUUID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair := base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + registryPassword))
	secret := base64.StdEncoding.EncodeToString([]byte(pair))
	r.Secrets = append(r.Secrets, pair, secret)
	for _, tt := range []struct{ disk, repository string }{{"/dev/vda", "private/os"}, {"/dev/vdb", "large"}} {
		source := "oci://" + registry.name(tt.repository)
		record := installContainer(t, r, tt.disk, map[string]any{
			"image_source": source, "configdrive": drive, "oci_pull_secret": secret,
		})
		want := fmt.Sprintf("execute_bootc_install: Container image (%s) written to device %s", source, tt.disk)
		if record.Status != conductor.Succeeded || !strings.Contains(string(record.Result), want) {
			t.Fatalf("got %s (%v, %s), want %q", record.Status, record.Error, record.Result, want)
		}
	}
	rig.WaitConsole(t, r.Machine, `container output .*UEFI variable written`)
	rig.WaitConsole(t, r.Machine, `container output .*\d+ attacks, 4 succeeded`)
	rig.WaitConsole(t, r.Machine, `container image does not fit into memory .*disk=/dev/vdb`)
	rig.WaitConsole(t, r.Machine, `root file system grown device=/dev/vdb2 `)
	if strings.Contains(r.Machine.Console().String(), "does not fit into memory image="+registry.name("private/os")) {
		t.Error("the small image was not in memory")
	}
}

// checkInstalled reads a disk on which an image was installed.
func checkInstalled(t *testing.T, disk, repository string, registry *testRegistry) {
	t.Helper()
	testenv.Run(t, "sgdisk", "-v", disk)
	table, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Partitions) != 3 {
		t.Fatalf("%s: got partitions %+v, want ESP, root and config drive", repository, table.Partitions)
	}
	device := partitions(t, disk)
	read := func(name string) string { return testenv.Run(t, "debugfs", "-R", "cat /"+name, device(2)) }
	for name, want := range map[string]string{
		"image": registry.name(repository) + " sha256:", "authorized_keys": "ssh-ed25519 AAAA admin\n",
		"chrooted": "yes\n",
	} {
		if got := read(name); !strings.Contains(got, want) {
			t.Errorf("%s: got /%s %q, want %q", repository, name, got, want)
		}
	}
	testenv.Run(t, "e2fsck", "-fn", device(2))
	checkRootSize(t, disk, table, testenv.Run(t, "dumpe2fs", "-h", device(2)))
	if got := tags(t, device(3), "LABEL"); got != "config-2" {
		t.Errorf("%s: got config drive with label %q", repository, got)
	}
	checkNoMarker(t, disk)
}

// checkRootSize fails if the root partition or its file system, which dumpe2fs describes, has not the size of the disk
// without 768 MiB. It had a smaller one while the image was at the end of the disk.
func checkRootSize(t *testing.T, disk string, table *partition.Table, super string) {
	t.Helper()
	want := table.DiskSize - 768*rig.MiB
	if got := table.Partitions[1].Size; got != want {
		t.Errorf("%s: root partition has %d bytes, want %d", disk, got, want)
	}
	const blockSize = 4096
	count, size := fmt.Sprintf("Block count: %d", want/blockSize), fmt.Sprintf("Block size: %d", blockSize)
	for _, line := range []string{count, size} {
		if !slices.ContainsFunc(strings.Split(super, "\n"), func(l string) bool {
			return strings.Join(strings.Fields(l), " ") == line
		}) {
			t.Errorf("%s: want %q, got\n%s", disk, line, super)
		}
	}
}

// checkNoMarker fails if the disk has a part of the image's large file: nothing installed it, so it was in the scratch
// space.
func checkNoMarker(t *testing.T, disk string) {
	t.Helper()
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buffer, kept := make([]byte, 4*rig.MiB), len(scratchMarker)
	for end := 0; ; {
		n, err := f.Read(buffer[end:])
		if bytes.Contains(buffer[:end+n], []byte(scratchMarker)) {
			t.Fatalf("%s contains a part of the image's large file", disk)
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		tail := min(kept, end+n)
		copy(buffer, buffer[end+n-tail:end+n])
		end = tail
	}
}
