package attack_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"ironroot/internal/test/attack"
	"ironroot/internal/test/attack/attacktest"
	"ironroot/internal/test/testenv"
)

// As root without a confinement, the listed attacks succeed with every kernel that runs these tests. An attack that
// always fails would prove nothing about a confinement.
func TestControl(t *testing.T) {
	program := filepath.Join(t.TempDir(), "attack")
	attacktest.Build(t, program)
	testenv.Programs(t, "unshare")
	// Mounts of a shared mount namespace would also change this machine.
	text := testenv.Run(t, "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc", "--ipc",
		"--uts", program)
	var report attack.Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	secret := attack.SecretFiles[0]
	for _, name := range []string{
		"fanotify_init", "fanotify_mark", "open_by_handle_at", "bpf", "perf_event_open", "userfaultfd", "swapon",
		"swapoff", "syslog", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "move_mount", "mount_setattr",
		"pivot_root", "setns", "clone3", "user namespace", "process in a user namespace", "add_key", "keyctl",
		"request_key", "kcmp", "quotactl", "clock_settime", "sethostname", "process_madvise", "process_vm_readv",
		"process_vm_writev", "netlink: uevents", "netlink: audit", "read " + secret, "read /proc/1/root" + secret,
		"read /proc/1/environ", "read /proc/self/environ", "environment of all processes", "make the node mem",
		"mount proc", "user namespace of a mount namespace", "chroot escape",
		"write /proc/sys/kernel/core_pattern",
	} {
		if report.Reached[name] == "" {
			t.Errorf("attack %q was refused without a confinement", name)
		}
	}
	t.Logf("%d of %d attacks succeeded", len(report.Reached), report.Tried)
}
