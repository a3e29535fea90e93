package pxe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"ironroot/internal/bootfile"
)

// consoles are the kernel parameters with the consoles of most machines, by GOARCH.
var consoles = map[string]string{
	"amd64": "console=tty0 console=ttyS0,115200n8", "arm64": "console=tty0 console=ttyAMA0,115200n8",
}

// Files names the files of systems.
type Files struct {
	Dir, Name         string // the files NAME-ARCH.kernel and NAME-ARCH.initramfs in Dir
	Kernel, Initramfs string // for amd64, instead of those in Dir; "" = these
}

// Systems returns the systems whose kernels exist, with the usual consoles and further kernel parameters. Files that no
// machine can boot are an error.
func (f Files) Systems(parameters string) (map[string]System, error) {
	systems := map[string]System{}
	for arch, console := range consoles {
		s := System{Kernel: filepath.Join(f.Dir, f.Name+"-"+arch+".kernel")}
		s.Initramfs = strings.TrimSuffix(s.Kernel, ".kernel") + ".initramfs"
		if arch == "amd64" && f.Kernel != "" {
			s.Kernel, s.Initramfs = f.Kernel, f.Initramfs
		}
		s.Cmdline = strings.TrimSpace(console + " " + parameters)
		if _, err := os.Stat(s.Kernel); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := bootfile.CheckPair(arch, s.Kernel, s.Initramfs); err != nil {
			return nil, err
		}
		systems[arch] = s
	}
	return systems, nil
}

// ParseMachines parses a list of machines: one in a line, its MAC address and then its kernel parameters. Lines that
// begin with # are comments. Errors contain no kernel parameters, which may be secret.
func ParseMachines(r io.Reader) ([]Machine, error) {
	var machines []Machine
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		first, rest := line, ""
		if at := strings.IndexAny(line, " \t"); at >= 0 {
			first, rest = line[:at], strings.TrimSpace(line[at:])
		}
		mac, err := net.ParseMAC(first)
		if err != nil {
			return nil, fmt.Errorf("line %d does not begin with a MAC address", number)
		}
		machines = append(machines, Machine{MAC: mac, Parameters: rest})
	}
	return machines, lines.Err()
}
