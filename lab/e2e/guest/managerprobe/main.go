//go:build linux

// Command managerprobe is a hardware manager that is an executable, for the tests of this directory. The result of its
// step probe lists the files of the ramdisk that it sees and can change. The result of attack is the report of package
// attack. Its other steps violate the protocol.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/attack"
)

func main() {
	line, err := bufio.NewReader(os.Stdin).ReadBytes('\n')
	var request struct{ Method, Step string }
	if err == nil {
		err = json.Unmarshal(line, &request)
	}
	if err != nil {
		send(map[string]any{"type": "error", "message": err.Error()})
		return
	}
	var result any
	switch {
	case request.Method == "describe":
		result = map[string]any{"protocol": 1, "name": "probe", "version": "1", "steps": steps()}
	case request.Method == "evaluate":
		result = map[string]any{"level": 2}
	case request.Step == "probe":
		result = probe()
	case request.Step == "attack":
		report, err := attack.Run()
		if err != nil {
			send(map[string]any{"type": "error", "message": err.Error()})
			return
		}
		result = report
	default:
		violations[request.Step]()
	}
	send(map[string]any{"type": "result", "result": result})
}

// violations are the steps that violate the protocol.
var violations = map[string]func(){
	"crash":   func() { panic("crash") },
	"garbage": func() { fmt.Println("garbage"); time.Sleep(time.Hour) },
	"hang":    func() { time.Sleep(time.Hour) },
	"flood": func() {
		for message := strings.Repeat("flood ", 10000); ; {
			send(map[string]any{"type": "progress", "message": message})
		}
	},
}

func steps() []any {
	var list []any
	for _, name := range append([]string{"probe", "attack"}, slices.Sorted(maps.Keys(violations))...) {
		timeout := 600
		if name == "hang" {
			timeout = 1
		}
		list = append(list, map[string]any{
			"kind": "clean", "step": name, "priority": 0, "interface": "deploy", "abortable": true, "timeout": timeout,
		})
	}
	return list
}

func send(m map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
		os.Exit(1)
	}
}

// probe returns what was found, by name.
func probe() map[string]string {
	found := map[string]string{}
	try := func(what string, err error) {
		found[what] = "succeeded"
		if err != nil {
			found[what] = "failed"
		}
	}
	if links, err := filepath.Glob("/dev/disk/by-id/*"); err != nil || len(links) > 0 {
		found["links"] = fmt.Sprint(links, err)
	}
	if data, err := filepath.Glob("/run/udev/data/b*"); err != nil || len(data) > 0 {
		found["udev"] = fmt.Sprint(len(data), err)
	}
	if nodes, err := filepath.Glob("/dev/megaraid*"); err != nil || len(nodes) > 0 {
		f, openErr := os.OpenFile("/dev/megaraid_sas_ioctl_node", os.O_RDWR, 0)
		found["control nodes"] = fmt.Sprint(nodes, err, openErr)
		if openErr == nil {
			_ = f.Close() // nothing was written
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	found["processes"] = fmt.Sprint(processes, err)
	cmdline, err := os.ReadFile("/proc/cmdline")
	found["command line"] = fmt.Sprintf("%q %v", cmdline, err)
	kmsg, err := os.ReadFile("/dev/kmsg")
	found["kernel log"] = fmt.Sprintf("%q %v", kmsg, err)
	configuration, err := filepath.Glob("/etc/ironic-python-agent*/*")
	found["configuration"] = fmt.Sprint(configuration, err)
	_, err = unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 4096))
	try("syslog", err)
	for _, name := range []string{
		"/init", "/sbin/modprobe", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper",
	} {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		try("write "+name, err)
		if err == nil {
			_ = f.Close() // nothing was written
		}
	}
	try("create a file in /dev", os.WriteFile("/dev/file", nil, 0o600))
	try("replace /sbin/modprobe", os.Rename("/sbin/modprobe", "/sbin/other"))
	try("mount", unix.Mount("proc", "/tmp", "proc", 0, ""))
	try("unmount", unix.Unmount("/proc", unix.MNT_DETACH))
	try("make node", unix.Mknod("/tmp/mem", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))))
	try("write /tmp", os.WriteFile("/tmp/file", nil, 0o600))
	if _, err := os.Stat("/bbin/bb"); err == nil { // not in a manager root
		try("run the ramdisk's shell", exec.CommandContext(context.Background(), "/bin/sh", "-c", "ls /").Run())
	}
	return found
}
