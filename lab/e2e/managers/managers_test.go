//go:build linux

package managers

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/hardware/external"
	"ironroot/initramfs"
	"ironroot/internal/test/attack"
	"ironroot/internal/test/attack/attacktest"
	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// TestManagers builds an image with the examples of docs/managers.md: a Go package from a directory outside of the
// repository, and an executable. Their steps are listed and run: the package's requests reach the machine's BMC, which
// in QEMU has no users, and the executable writes a disk that stands for a flash device. A third manager violates the
// protocol: each of its steps fails with an error that says how, and the agent keeps running.
//
// Parity: F5
func TestManagers(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "go", "apt-get")
	dir := t.TempDir()
	testenv.Run(t, "cp", "-r", filepath.Join(testenv.Top(t), "docs/examples/bmcuser"), dir)
	firmware := filepath.Join(dir, "firmware")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-C", testenv.Top(t), "-o", firmware,
		"./docs/examples/firmware")
	program, err := os.ReadFile(firmware)
	if err != nil {
		t.Fatal(err)
	}
	probe := filepath.Join(dir, "probe")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", probe, "ironroot/lab/e2e/guest/managerprobe")
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Out: t.TempDir(), Dir: testenv.Top(t), Managers: []string{filepath.Join(dir, "bmcuser")},
		ModuleGroups: []string{"virtual", "network", "platform"}, NoFirmware: true, Shell: true,
		Files: []string{
			firmware + ":" + external.Dir + "/firmware", probe + ":" + external.Dir + "/probe",
			plantedSettings(t),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	flash := rig.File(t, "flash", rig.DiskSize, nil)
	r := rig.Start(t, rig.Setup{
		Append: "ipa-disk-wait-attempts=0" + rig.PlantedVariable,
		Machine: qemu.Config{
			Kernel: report.Kernel, Initrd: report.Initramfs, Memory: 512 * rig.MiB, Disks: []qemu.Disk{{File: flash}},
			Extra: []string{"-device", "ipmi-bmc-sim,id=bmc", "-device", "isa-ipmi-kcs,bmc=bmc"},
		},
	})
	r.WaitAgent(t)
	checkManagers(t, r)
	createBMCUser(t, r)
	updateFirmware(t, r, flash)
	violateProtocol(t, r)
	probeConfinement(t, r, map[string]string{"run the ramdisk's shell": "succeeded"})
	const line = `external hardware manager found.*path=/usr/lib/ironroot/managers/firmware sha256=%x`
	pattern := regexp.MustCompile(fmt.Sprintf(line, sha256.Sum256(program)))
	if !pattern.MatchString(r.Machine.Console().String()) {
		t.Errorf("no line %s on the console", pattern)
	}
}

// checkManagers checks that the steps of the examples and of the built-in manager are listed.
func checkManagers(t *testing.T, r *rig.Rig) {
	t.Helper()
	var listed struct {
		Steps map[string][]struct {
			Step   string `json:"step"`
			Reboot bool   `json:"reboot_requested"`
		} `json:"clean_steps"`
		Versions map[string]string `json:"hardware_manager_version"`
	}
	text := r.Succeed(t, "clean.get_clean_steps", map[string]any{
		"node": map[string]any{"uuid": r.Node.UUID()}, "ports": []any{},
	})
	if err := json.Unmarshal([]byte(text), &listed); err != nil {
		t.Fatal(err)
	}
	steps := listed.Steps["BMCUserHardwareManager"]
	if len(steps) != 1 || steps[0].Step != "create_bmc_user" || listed.Versions["bmc_user"] != "1" {
		t.Errorf("got steps %v and versions %v, want create_bmc_user of version 1", steps, listed.Versions)
	}
	steps = listed.Steps["example_firmware"]
	if len(steps) != 1 || steps[0].Step != "update_firmware" || !steps[0].Reboot ||
		listed.Versions["example_firmware"] != "1.0" {
		t.Errorf("got steps %v and versions %v, want update_firmware of version 1.0", steps, listed.Versions)
	}
	for _, class := range []string{
		"GenericHardwareManager", "ContainerHardwareManager", "SelfTestHardwareManager", "probe",
	} {
		if _, found := listed.Steps[class]; !found {
			t.Errorf("got steps of managers %q, want %s among them", slices.Sorted(maps.Keys(listed.Steps)), class)
		}
	}
}

func createBMCUser(t *testing.T, r *rig.Rig) {
	t.Helper()
	record := r.CleanStep(t, "create_bmc_user", map[string]any{"id": 4, "name": "ironic", "password": "correct horse"})
	const want = "create BMC user 4: get name: command completed with non-OK code: "
	if record.Status != conductor.Failed || !strings.Contains(record.Error.Details, want) {
		t.Errorf("got %s (%v), want %s with %q", record.Status, record.Error, conductor.Failed, want)
	}
}

// updateFirmware runs the step of the executable, first with a wrong checksum.
func updateFirmware(t *testing.T, r *rig.Rig, flash string) {
	t.Helper()
	image := bytes.Repeat([]byte("firmware"), 100000)
	r.Images.Bytes("firmware", image)
	args := map[string]any{"url": r.Images.URLFrom(rig.Host, "firmware"), "sha256": "00", "device": "/dev/vda"}
	record := r.CleanStep(t, "update_firmware", args)
	const want = "hardware manager example_firmware: image: got SHA-256 "
	if record.Status != conductor.Failed || !strings.Contains(record.Error.Details, want) {
		t.Errorf("wrong checksum: got %s (%v), want %s with %q", record.Status, record.Error, conductor.Failed, want)
	}
	args["sha256"] = fmt.Sprintf("%x", sha256.Sum256(image))
	if record := r.CleanStep(t, "update_firmware", args); record.Status != conductor.Succeeded {
		t.Errorf("got %s (%v), want %s", record.Status, record.Error, conductor.Succeeded)
	}
	written, err := os.ReadFile(flash)
	if err != nil || !bytes.HasPrefix(written, image) {
		t.Errorf("the device does not begin with the image: %v", err)
	}
}

// violateProtocol runs the steps of the manager that violates the protocol.
func violateProtocol(t *testing.T, r *rig.Rig) {
	t.Helper()
	for step, want := range map[string]string{
		"crash":   "hardware manager probe: executable failed: exit status 2: panic: crash",
		"garbage": `hardware manager probe: protocol error: invalid character 'g' looking for beginning of value`,
		"flood":   "hardware manager probe: protocol error: more than 67108864 bytes of messages",
		"hang":    "hardware manager probe: not done within 1s",
	} {
		record := r.CleanStep(t, step, nil)
		if record.Status != conductor.Failed || !strings.Contains(record.Error.Details, want) {
			t.Errorf("%s: got %s (%v), want %s with %q", step, record.Status, record.Error, conductor.Failed, want)
		}
	}
}

// probeConfinement checks what an executable sees of the ramdisk and can change there. more has the further results of
// executables in the ramdisk, or in a manager root.
func probeConfinement(t *testing.T, r *rig.Rig, more map[string]string) {
	t.Helper()
	record := r.CleanStep(t, "probe", nil)
	var got struct {
		Result map[string]string `json:"clean_result"`
	}
	if err := json.Unmarshal(record.Result, &got); err != nil || record.Status != conductor.Succeeded {
		t.Fatalf("probe: got %s (%v), %v", record.Status, record.Error, err)
	}
	want := map[string]string{
		"processes": "[/proc/1] <nil>", "command line": `"\n" <nil>`, "kernel log": `"" <nil>`,
		"configuration": "[] <nil>", "syslog": "failed", "write /init": "failed", "write /sbin/modprobe": "failed",
		"write /proc/sys/kernel/core_pattern": "failed", "write /proc/sysrq-trigger": "failed",
		"write /sys/kernel/uevent_helper": "failed", "replace /sbin/modprobe": "failed",
		"create a file in /dev": "failed", "mount": "failed", "unmount": "failed", "make node": "failed",
		"write /tmp": "succeeded",
	}
	maps.Copy(want, more)
	if diff := cmp.Diff(want, got.Result); diff != "" {
		t.Errorf("the executable sees or changes the ramdisk (-want +got):\n%s", diff)
	}
	record = r.CleanStep(t, "attack", nil)
	var report struct {
		Result json.RawMessage `json:"clean_result"`
	}
	if err := json.Unmarshal(record.Result, &report); err != nil || record.Status != conductor.Succeeded {
		t.Fatalf("attack: got %s (%v), %v", record.Status, record.Error, err)
	}
	attacktest.Check(t, report.Result, attack.PermittedOutsideContainers())
}

// plantedSettings writes a configuration file with attack.Secret, which attacks try to read. It returns SOURCE:TARGET
// for initramfs.Options.Files.
func plantedSettings(t *testing.T) string {
	t.Helper()
	const name = "ironroot-planted-settings.conf" // matches attack.SecretFiles
	file := filepath.Join(t.TempDir(), name)
	return rig.WriteFile(t, file,
		"[DEFAULT]\ndebug = true\n# "+attack.Secret+"\n") + ":/etc/ironic-python-agent.d/" + name
}
