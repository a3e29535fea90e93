// Command probe is a program of an image for tests. Its argument selects what it does.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	switch name {
	case "fail":
		fmt.Println("on fire")
		os.Exit(3)
	case "hang":
		fmt.Println("hanging")
		for {
			time.Sleep(time.Hour)
		}
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "flood":
		line := strings.Repeat("x", 10_000)
		for range 1000 {
			fmt.Println(line)
		}
	case "wait":
		wait(os.Args[2:])
	case "mount":
		mounts()
	case "join":
		join()
	case "mountasuser":
		fmt.Println("user", syscall.Mount("tmpfs", "/mnt", "tmpfs", 0, "size=1m"))
	case "mountandhang":
		_ = syscall.Mount("tmpfs", "/mnt", "tmpfs", 0, "size=1m")
		select {}
	case "see":
		see()
	default:
		environment()
	}
}

// environment prints what bootc checks.
func environment() {
	ns := func(pid, kind string) string {
		link, err := os.Readlink("/proc/" + pid + "/ns/" + kind)
		if err != nil {
			return err.Error()
		}
		return link
	}
	var info, same, one syscall.Statfs_t
	_ = syscall.Statfs("/tmp", &info)
	_ = syscall.Statfs("/dev", &same)
	_ = syscall.Statfs("/proc/1/root/dev", &one)
	var owner syscall.Stat_t
	_ = syscall.Stat("/proc/1", &owner)
	text, err := os.ReadFile("/run/.containerenv")
	fmt.Println("pid 1", os.Getpid() == 1)
	fmt.Println("owner of pid 1", owner.Uid)
	fmt.Println("tmp is tmpfs", info.Type == 0x01021994)
	for _, dir := range []string{"/tmp", "/run", "/dev/shm"} {
		var info syscall.Statfs_t
		_ = syscall.Statfs(dir, &info)
		fmt.Println(dir, "has at most", info.Files, "files")
	}
	fmt.Println("dev is that of pid 1", same.Fsid == one.Fsid)
	fmt.Println("mounts of pid 1", ns("1", "mnt") == ns("self", "mnt"), "ipc", ns("1", "ipc") == ns("self", "ipc"))
	fmt.Println("containerenv", strings.Contains(string(text), "engine=\"podman") && err == nil)
	home, _ := os.Getwd()
	fmt.Println("arguments", os.Args[1:], "variable", os.Getenv("VARIABLE"), "image", os.Getenv("IMAGE"), "dir", home)
	uid := os.Getuid()
	fmt.Println("user", uid, os.Getgid())
	names, _ := filepath.Glob("/layout/*")
	fmt.Println("layout", names)
	secret, _ := os.ReadFile("/etc/key")
	fmt.Println("key", string(secret))
	h, _ := os.Hostname()
	fmt.Println("host", len(h))
}

// mounts tries to mount file systems.
func mounts() {
	_ = os.MkdirAll("/mnt/a", 0o755)
	try := func(name string, err error) {
		fmt.Println(name, err)
	}
	try("tmpfs", syscall.Mount("tmpfs", "/mnt/a", "tmpfs", 0, "size=1m"))
	try("write", os.WriteFile("/mnt/a/file", []byte("x"), 0o644))
	try("remount", syscall.Mount("", "/mnt/a", "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	try("read-only", os.WriteFile("/mnt/a/other", []byte("x"), 0o644))
	try("unmount", syscall.Unmount("/mnt/a", 0))
	try("proc", syscall.Mount("proc", "/mnt/a", "proc", 0, ""))
	_, err := os.Stat("/mnt/a/self/status")
	try("proc shows this process", err)
	try("sysctl", writable("/mnt/a/sys/kernel/core_pattern"))
	try("magic proc", syscall.Mount("proc", "/mnt/a", "proc", 0xc0ed0000, ""))
	try("sysctl by magic", writable("/mnt/a/sys/kernel/core_pattern"))
	try("remount proc/sys", syscall.Mount("", "/proc/sys", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""))
	try("unmount proc/sys", syscall.Unmount("/proc/sys", syscall.MNT_DETACH))
	try("debugfs", syscall.Mount("debugfs", "/mnt", "debugfs", 0, ""))
	try("devtmpfs", syscall.Mount("devtmpfs", "/mnt", "devtmpfs", 0, ""))
	names, _ := filepath.Glob("/mnt/loop*")
	fmt.Println("devtmpfs shows", names)
	try("cgroup", syscall.Mount("cgroup2", "/mnt", "cgroup2", 0, ""))
	try("unshare", syscall.Unshare(syscall.CLONE_NEWNS))
	try("bind", syscall.Mount("/tmp", "/mnt", "", syscall.MS_BIND, ""))
	try("magic bind", syscall.Mount("/tmp", "/mnt", "", 0xc0ed0000|syscall.MS_BIND, ""))
	try("bind proc", syscall.Mount("/proc", "/mnt", "", syscall.MS_BIND, ""))
	try("sysctl by bind", writable("/mnt/sys/kernel/core_pattern"))
	try("unmount root", syscall.Unmount("/", syscall.MNT_DETACH))
}

// join tries to join namespaces.
func join() {
	open := func(name string) int {
		fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
		if err != nil {
			fmt.Println(err)
		}
		return fd
	}
	one, err := unix.PidfdOpen(1, 0)
	if err != nil {
		fmt.Println(err)
	}
	mounts := open("/proc/1/ns/mnt")
	try := func(name string, fd, kind int) { fmt.Println(name, unix.Setns(fd, kind)) }
	try("mounts", mounts, unix.CLONE_NEWNS)
	try("any kind", mounts, 0)
	try("mounts of a process", one, unix.CLONE_NEWNS)
	try("other kind", mounts, unix.CLONE_NEWNET)
	try("processes", open("/proc/1/ns/pid"), unix.CLONE_NEWPID)
	try("all of a process", one, unix.CLONE_NEWNS|unix.CLONE_NEWPID)
	try("file", open("/etc"), 0)
	try("no file", 1000, 0)
	fmt.Println("new mounts", syscall.Unshare(syscall.CLONE_NEWNS))
	try("mounts from others", mounts, unix.CLONE_NEWNS)
}

// writable opens a file for writing, and writes nothing: it could be that of the machine.
func writable(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		err = f.Close()
	}
	return err
}

// see tries to see the ramdisk.
func see() {
	for _, name := range []string{"/proc/cmdline", "/proc/kmsg", "/proc/keys"} {
		text, err := os.ReadFile(name)
		fmt.Println(name, len(text), err)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	fmt.Println("processes", len(processes))
	for number, name := range []string{1: "mem", 3: "null"} {
		if name != "" {
			fmt.Println("mknod", name, syscall.Mknod("/tmp/"+name, syscall.S_IFCHR|0o600, 1<<8|number))
		}
	}
	_, err := os.OpenFile("/device", os.O_RDONLY, 0)
	fmt.Println("device of the image", err)
	files, _ := filepath.Glob("/proc/1/root/*")
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	fmt.Println("root of pid 1", files)
	environment, _ := os.ReadFile("/proc/1/environ")
	fmt.Println("environment of pid 1", len(environment))
	exe, err := os.OpenFile("/proc/1/exe", os.O_WRONLY, 0)
	fmt.Println("program of pid 1", err)
	_ = exe.Close()
	if info, err := os.Stat("/proc/1/exe"); err == nil {
		fmt.Println("its mode", os.Chmod("/proc/1/exe", info.Mode())) // unchanged: it could be that of the machine
	}
	fmt.Println("its attributes", syscall.Setxattr("/proc/1/exe", "user.probe", nil, 0))
	fmt.Println("its mount", syscall.Mount("", "/proc/1/exe", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""))
	devices, _ := os.ReadDir("/dev")
	for _, d := range devices {
		fmt.Print(d.Name(), " ")
	}
	fmt.Println()
}

// wait waits until all files exist.
func wait(names []string) {
	fmt.Println("waiting")
	for _, name := range names {
		for {
			f, err := os.Open(name)
			if err == nil {
				_ = f.Close()
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
