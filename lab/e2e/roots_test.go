//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ironroot/agent/hardware/external"
	"ironroot/initramfs"
	"ironroot/internal/cachedir"
	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
)

// TestManagerRoot builds an image with the userland of docs/managers.md and boots it: a manager there runs Debian's
// lspci, which is dynamically linked, and the adapter runs a plug-in of ironic-python-agent. Another manager in the
// root violates the protocol, and reports what it sees of the ramdisk. A damaged root is named in the log, and no disk
// is erased: it could contain a manager that protects one.
//
// The image also contains the key of an operator, and a userland of a rescue.
//
// Parity: F5, R6
func TestManagerRoot(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	testenv.Programs(t, "go", "apt-get", "mmdebstrap")
	dir := t.TempDir()
	userland, damaged := filepath.Join(dir, "userland"), filepath.Join(dir, "damaged.squashfs")
	testenv.Run(t, "cp", "-a", exampleUserland(t), userland)
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", filepath.Join(userland, external.Dir, "probe"),
		"./managerprobe")
	if err := os.WriteFile(damaged, bytes.Repeat([]byte("damaged"), 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	key, line := newKey(t)
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Out: t.TempDir(), Dir: testenv.Top(t), ManagerRoots: []string{userland}, NoFirmware: true, Shell: true,
		ModuleGroups:   []string{"virtual", "network", "platform", "storage"},
		AuthorizedKeys: keysFile(t, line), RescueRoot: smallUserland(t),
		Files: []string{damaged + ":" + external.RootsDir + "/damaged.squashfs", plantedSettings(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, setup{
		append: "ipa-disk-wait-attempts=0" + plantedVariable,
		machine: qemu.Config{
			Kernel: report.Kernel, Initrd: report.Initramfs, Memory: 512 * mib,
			Disks: []qemu.Disk{{File: file(t, "disk", diskSize, nil), Serial: "ironroot0"}},
			Extra: []string{"-device", "megasas"},
		},
	})
	r.waitAgent(t)
	r.runInRoot(t)
	r.violateProtocol(t)
	r.probeConfinement(t, map[string]string{
		"links": "[/dev/disk/by-id/virtio-ironroot0] <nil>",
		"udev":  "1 <nil>",
		// QEMU's MegaRAID controller, whose driver opens this node only for a privileged program.
		"control nodes": "[/dev/megaraid_sas_ioctl_node] <nil> <nil>",
	})
	record := r.cleanStep(t, "erase_devices_metadata", nil)
	const refused = "hardware manager in /usr/lib/ironroot/roots/damaged.squashfs could select disks, but is not usable"
	if record.Status != conductor.Failed || !strings.Contains(record.Error.Details, refused) {
		t.Errorf("got %s (%v), want %s with %q", record.Status, record.Error, conductor.Failed, refused)
	}
	t.Run("rescue", func(t *testing.T) { r.rescueInUserland(t, key) })
	console := r.machine.Console().String()
	for _, want := range []string{
		`manager root ignored.*root=/usr/lib/ironroot/roots/damaged.squashfs.*squashfs: `,
		`manager root found.*root=/usr/lib/ironroot/roots/userland.squashfs sha256=`,
		`external hardware manager found.*path=/usr/lib/ironroot/managers/ipa-example_lifecycle sha256=`,
		`custom hardware manager loaded.*manager=LifecycleHardwareManager version=1.2 level=3`,
	} {
		if !regexp.MustCompile(want).MatchString(console) {
			t.Errorf("no line %s on the console", want)
		}
	}
}

// exampleUserland builds the userland of docs/managers.md, unless it is in the user's cache.
func exampleUserland(t *testing.T) string {
	t.Helper()
	examples := filepath.Join(testenv.Top(t), "docs/examples")
	recipe := new(strings.Builder)
	recipe.WriteString(os.Getenv("SUITE")) // build.sh installs its packages
	for _, dir := range []string{"userland", "plugin"} {
		err := filepath.WalkDir(filepath.Join(examples, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			fmt.Fprintf(recipe, "%s %d %s\n", d.Name(), len(text), text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	userland, err := cachedir.Get("", "userland", recipe.String(), func(path string) error {
		testenv.Run(t, filepath.Join(examples, "userland/build.sh"), path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return userland
}

// runInRoot runs the step of the manager that uses lspci, and those of the plug-in.
func (r *rig) runInRoot(t *testing.T) {
	t.Helper()
	record := r.cleanStep(t, "list_pci_devices", map[string]any{"vendor": "1af4"})
	var got struct {
		Devices []string `json:"clean_result"`
	}
	if err := json.Unmarshal(record.Result, &got); err != nil || record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), %v", record.Status, record.Error, err)
	}
	if all := strings.Join(got.Devices, ", "); !strings.Contains(all, "[1000]") && !strings.Contains(all, "[1041]") {
		t.Errorf("got devices %s, want a virtio network card", all)
	}
	record = r.cleanStep(t, "verify_lifecycle", nil)
	const want = "hardware manager LifecycleHardwareManager: Clean step failed: node "
	if record.Status != conductor.Failed || !strings.Contains(record.Error.Details, want) {
		t.Errorf("got %s (%v), want %s with %q", record.Status, record.Error, conductor.Failed, want)
	}
	text := r.succeed(t, "deploy.execute_deploy_step", map[string]any{
		"step": map[string]any{
			"step": "record_devices", "interface": "deploy", "args": map[string]any{"device_class": "0200"},
		},
		"node": map[string]any{"uuid": r.node.UUID()}, "ports": []any{},
	})
	if !strings.Contains(text, ` 0200: 1af4:`) {
		t.Errorf("got %s, want the virtio network card", text)
	}
}
