//go:build linux

package managers

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

	"golang.org/x/crypto/ssh"

	"ironroot/agent/hardware/external"
	"ironroot/initramfs"
	"ironroot/internal/cachedir"
	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/sshtest"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// keysFile returns a file with a public key.
func keysFile(t *testing.T, line string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "authorized_keys")
	if err := os.WriteFile(name, []byte("# operators\n"+line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// smallUserland returns a userland of a rescue that consists of a shell.
func smallUserland(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testenv.Files(t, "install busybox-static", "/bin/busybox")
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "cp", "/bin/busybox", filepath.Join(dir, "bin/busybox"))
	for _, name := range []string{"sh", "id", "cat", "ls", "umount", "mount"} {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// rescueInUserland hands the machine over to a user, whose sessions run in the userland of the image.
func rescueInUserland(t *testing.T, r *rig.Rig, operator ssh.AuthMethod) {
	open := r.Login(t, "root", operator)
	r.Succeed(t, "rescue.finalize_rescue", map[string]any{"rescue_password": rig.RescueHash, "hashed": true})
	rig.LoginEnded(t, open)
	rig.WaitConsole(t, r.Machine, `(?s)starts again without the agent.*lease obtained`)
	rig.WaitConsole(t, r.Machine, `rescue: waiting for logins`)
	r.Denied(t, "root", operator)
	client := r.Login(t, "rescue", ssh.Password(rig.RescuePassword))
	defer client.Close()
	for command, want := range map[string]string{
		"echo $SHELL; ls /":         "/bin/sh\n",
		"id":                        "uid=0",
		"sudo id":                   "uid=0",
		"cat /proc/cmdline":         "console=ttyS0",
		"cat /etc/resolv.conf":      "nameserver ",
		"ls /dev":                   "vda",
		"echo text >file; cat file": "text\n",
	} {
		if got := sshtest.Run(t, client, command, nil); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
}

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
		"ironroot/lab/e2e/guest/managerprobe")
	if err := os.WriteFile(damaged, bytes.Repeat([]byte("damaged"), 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	key, line := rig.NewKey(t)
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Out: t.TempDir(), Dir: testenv.Top(t), ManagerRoots: []string{userland}, NoFirmware: true, Shell: true,
		ModuleGroups:   []string{"virtual", "network", "platform", "storage"},
		AuthorizedKeys: keysFile(t, line), RescueRoot: smallUserland(t),
		Files: []string{damaged + ":" + external.RootsDir + "/damaged.squashfs", plantedSettings(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := rig.Start(t, rig.Setup{
		Append: "ipa-disk-wait-attempts=0" + rig.PlantedVariable,
		Machine: qemu.Config{
			Kernel: report.Kernel, Initrd: report.Initramfs, Memory: 512 * rig.MiB,
			Disks: []qemu.Disk{{File: rig.File(t, "disk", rig.DiskSize, nil), Serial: "ironroot0"}},
			Extra: []string{"-device", "megasas"},
		},
	})
	r.WaitAgent(t)
	runInRoot(t, r)
	violateProtocol(t, r)
	probeConfinement(t, r, map[string]string{
		"links": "[/dev/disk/by-id/virtio-ironroot0] <nil>",
		"udev":  "1 <nil>",
		// QEMU's MegaRAID controller, whose driver opens this node only for a privileged program.
		"control nodes": "[/dev/megaraid_sas_ioctl_node] <nil> <nil>",
	})
	record := r.CleanStep(t, "erase_devices_metadata", nil)
	const refused = "hardware manager in /usr/lib/ironroot/roots/damaged.squashfs could select disks, but is not usable"
	if record.Status != conductor.Failed || !strings.Contains(record.Error.Details, refused) {
		t.Errorf("got %s (%v), want %s with %q", record.Status, record.Error, conductor.Failed, refused)
	}
	t.Run("rescue", func(t *testing.T) { rescueInUserland(t, r, key) })
	console := r.Machine.Console().String()
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

// runInRoot runs the step of the manager that uses lspci, and the steps of the plug-in.
func runInRoot(t *testing.T, r *rig.Rig) {
	t.Helper()
	record := r.CleanStep(t, "list_pci_devices", map[string]any{"vendor": "1af4"})
	var got struct {
		Devices []string `json:"clean_result"`
	}
	if err := json.Unmarshal(record.Result, &got); err != nil || record.Status != conductor.Succeeded {
		t.Fatalf("got %s (%v), %v", record.Status, record.Error, err)
	}
	if all := strings.Join(got.Devices, ", "); !strings.Contains(all, "[1000]") && !strings.Contains(all, "[1041]") {
		t.Errorf("got devices %s, want a virtio network card", all)
	}
	record = r.CleanStep(t, "verify_lifecycle", nil)
	const want = "hardware manager LifecycleHardwareManager: Clean step failed: node "
	if record.Status != conductor.Failed || !strings.Contains(record.Error.Details, want) {
		t.Errorf("got %s (%v), want %s with %q", record.Status, record.Error, conductor.Failed, want)
	}
	text := r.Succeed(t, "deploy.execute_deploy_step", map[string]any{
		"step": map[string]any{
			"step": "record_devices", "interface": "deploy", "args": map[string]any{"device_class": "0200"},
		},
		"node": map[string]any{"uuid": r.Node.UUID()}, "ports": []any{},
	})
	if !strings.Contains(text, ` 0200: 1af4:`) {
		t.Errorf("got %s, want the virtio network card", text)
	}
}
