//go:build linux

// Command rescueprobe searches the machine of a rescue, as root, for texts: the memory, arguments and environment of
// all processes, the files of the ramdisk, block devices, and what the kernel shows. Its input is a line of hexadecimal
// digits for each text, so that it is not in its own arguments. Its output has a line for each place that contains a
// text, and for each interface that must be closed but is open.
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	var texts [][]byte
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		text, err := hex.DecodeString(lines.Text())
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		texts = append(texts, text)
	}
	s := searcher{texts}
	s.processes()
	s.files()
	s.devices()
	s.kernel()
	fmt.Println("searched", len(texts))
}

// searcher searches for texts.
type searcher struct{ texts [][]byte }

func (s searcher) search(place string, data []byte) {
	for i, text := range s.texts {
		if bytes.Contains(data, text) {
			fmt.Printf("text %d in %s\n", i, place)
		}
	}
}

// processes searches all processes but this one.
func (s searcher) processes() {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		if filepath.Base(dir) == strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, name := range []string{"cmdline", "environ", "comm"} {
			data, _ := os.ReadFile(filepath.Join(dir, name))
			s.search(filepath.Join(dir, name), data)
		}
		if filepath.Base(dir) == "1" || isOwn(dir) {
			s.memory(dir)
		}
	}
}

// isOwn reports whether a process runs the ramdisk's program.
func isOwn(dir string) bool {
	exe, err := os.Readlink(filepath.Join(dir, "exe"))
	return err == nil && strings.HasPrefix(exe, "/init")
}

// memory searches the memory of a process.
func (s searcher) memory(dir string) {
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		fmt.Printf("%s not readable: %v\n", dir, err)
		return
	}
	mem, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		fmt.Printf("%s not readable: %v\n", dir, err)
		return
	}
	defer mem.Close() //nolint:errcheck // only read
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil || rights[0] != 'r' ||
			strings.Contains(line, "[vvar") { // Go reserves a GiB that it has no rights to
			continue
		}
		const piece, overlap = 1 << 20, 256
		data := make([]byte, piece+overlap)
		for at := from; at < to; at += piece {
			n, _ := mem.ReadAt(data[:min(piece+overlap, to-at)], at) // pages without memory are errors
			s.search(filepath.Join(dir, "mem"), data[:n])
		}
	}
}

// files searches all files of the root file system and of those in memory.
func (s searcher) files() {
	for _, root := range []string{"/", "/run", "/tmp"} {
		var own unix.Stat_t
		if err := unix.Stat(root, &own); err != nil {
			fmt.Println(err)
			continue
		}
		_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // it has disappeared
			}
			var st unix.Stat_t
			if unix.Lstat(name, &st) != nil || st.Dev != own.Dev {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			if name == "/lib/modules" || name == "/lib/firmware" {
				return fs.SkipDir // large, and only read
			}
			if d.Type().IsRegular() {
				data, _ := os.ReadFile(name)
				s.search(name, data)
			}
			return nil
		})
	}
}

// devices searches the first bytes of all block devices, except devices of files and of the kernel's memory.
func (s searcher) devices() {
	entries, _ := os.ReadDir("/sys/block")
	for _, entry := range entries {
		name := filepath.Join("/dev", entry.Name())
		if strings.HasPrefix(entry.Name(), "loop") || strings.HasPrefix(entry.Name(), "ram") {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			continue // a drive without a medium
		}
		const most = 64 << 20
		data, _ := io.ReadAll(io.LimitReader(f, most))
		s.search(name, data)
		_ = f.Close() // only read
	}
}

// kernel searches what the kernel shows, and tries to read its memory.
func (s searcher) kernel() {
	for _, name := range []string{"/proc/cmdline", "/proc/bootconfig", "/proc/kmsg", "/sys/firmware/fdt"} {
		data, _ := readSome(name)
		s.search(name, data)
	}
	buffer := make([]byte, 4<<20)
	if n, err := unix.Klogctl(3, buffer); err == nil {
		s.search("the kernel's log (syslog)", buffer[:n])
	}
	s.search("the kernel's log (/dev/kmsg)", kernelMessages())
	for _, name := range []string{"/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port"} {
		if data, err := readSome(name); err == nil && len(data) > 0 {
			fmt.Printf("%s is readable\n", name)
		}
	}
	// A copy of procfs shows the kernel's own file, which lockdown closes.
	if err := os.MkdirAll("/tmp/proc", 0o700); err == nil && unix.Mount("proc", "/tmp/proc", "proc", 0, "") == nil {
		if f, err := os.Open("/tmp/proc/kcore"); err == nil {
			fmt.Println("/proc/kcore of another mount can be opened")
			_ = f.Close()
		}
		_ = unix.Unmount("/tmp/proc", 0)
	}
}

// readSome reads at most a MiB of a file, without waiting.
func readSome(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return io.ReadAll(io.LimitReader(f, 1<<20))
}

// kernelMessages returns all records of the kernel's log.
func kernelMessages() []byte {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		fmt.Println(err)
		return nil
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	var all []byte
	record := make([]byte, 8<<10)
	for {
		n, err := unix.Read(fd, record)
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return all
		}
		all = append(all, record[:n]...)
	}
}
