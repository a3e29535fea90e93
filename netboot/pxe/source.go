package pxe

import (
	"bytes"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"ironroot/netboot/server"
)

// commonGRUBPath is the path of commonGRUBConfig, which is compiled into Debian's GRUB for the network.
const commonGRUBPath = "grub/grub.cfg"

// source has the files of all machines. The path of a file is MAC/NAME; there are no others than those named here.
type source struct {
	options  Options
	attempts *attempts
	started  time.Time
	checksum *crc64.Table

	ready chan struct{} // closed when address is set
	// address is the address and port of the HTTP server, which already accepts connections when its port is known.
	address string
}

func newSource(o Options, a *attempts) *source {
	return &source{
		options: o, attempts: a, started: time.Now(), checksum: crc64.MakeTable(crc64.ECMA), ready: make(chan struct{}),
	}
}

// setAddress sets the address of the HTTP server. Requests wait for it.
func (s *source) setAddress(address string) {
	s.address = address
	close(s.ready)
}

// url returns the URL of a machine's file.
func (s *source) url(mac net.HardwareAddr, name string) string {
	return "http://" + s.address + "/" + dashed(mac) + "/" + name
}

// File returns the boot file of a client: a path for TFTP or a URL; "" if it is not served.
func (s *source) File(c server.Client) string {
	if _, served := s.options.machine(c.MAC); !served {
		s.attempts.refuse(c, "not in the list of machines")
		return ""
	}
	if _, ok := s.options.Systems[c.Arch]; !ok {
		s.attempts.refuse(c, "no kernel for its architecture")
		return ""
	}
	if len(c.MAC) != 6 {
		s.attempts.refuse(c, "not an Ethernet address")
		return ""
	}
	name := BIOSLoader
	switch {
	case c.IPXE:
		name = scriptName(c.Arch)
	case c.UEFI && s.options.SecureBoot:
		name = shimLoaders[c.Arch]
	case c.UEFI:
		name = ipxeLoaders[c.Arch]
	}
	s.attempts.offered(c, name)
	if c.IPXE || c.HTTP {
		return s.url(c.MAC, name)
	}
	return dashed(c.MAC) + "/" + name
}

// Open opens a file by the path of a request.
func (s *source) Open(path string) (*server.File, error) {
	<-s.ready
	if path == commonGRUBPath {
		return s.memory(commonGRUBConfig), nil
	}
	mac, name, ok := parsePath(path)
	if !ok {
		return nil, fs.ErrNotExist
	}
	machine, served := s.options.machine(mac)
	if !served {
		return nil, fs.ErrNotExist
	}
	file, err := s.find(name, machine)
	if err != nil {
		return nil, err
	}
	s.attempts.opened(mac.String(), name, file.Size)
	file.ReadSeekCloser = &sentFile{file.ReadSeekCloser, s.attempts, mac.String(), name}
	return file, nil
}

func (s *source) find(name string, machine Machine) (*server.File, error) {
	if content, ok := s.options.Loaders[name]; ok {
		return s.memory(content), nil
	}
	for arch, system := range s.options.Systems {
		switch name {
		case kernelName(arch):
			return disk(system.Kernel)
		case initramfsName(arch):
			return disk(system.Initramfs)
		case scriptName(arch):
			content, err := system.script(arch, s.url(machine.MAC, ""), machine)
			return s.memory(content), err
		case grubConfigName(arch):
			content, err := system.grubConfig(arch, "(http,"+s.address+")", machine)
			return s.memory(content), err
		}
	}
	return nil, fs.ErrNotExist
}

func scriptName(arch string) string     { return arch + ".ipxe" }
func grubConfigName(arch string) string { return grubNames[arch] + ".cfg" }

// parsePath splits the path of a request. GRUB writes MAC addresses with colons.
func parsePath(path string) (mac net.HardwareAddr, name string, ok bool) {
	first, name, ok := strings.Cut(path, "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return nil, "", false
	}
	mac, err := net.ParseMAC(first)
	if err != nil || len(mac) != 6 {
		return nil, "", false
	}
	return mac, name, true
}

// memory returns a file with the content.
func (s *source) memory(content []byte) *server.File {
	return &server.File{
		ReadSeekCloser: nopCloser{bytes.NewReader(content)}, Size: int64(len(content)), Modified: s.started,
		Tag: fmt.Sprintf("%x-%x", len(content), crc64.Checksum(content, s.checksum)),
	}
}

func disk(path string) (*server.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	opened, err := server.Opened(file)
	if err != nil {
		_ = file.Close() // nothing was read
	}
	return opened, err
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// sentFile records the end of the transfer of a file when it is closed.
type sentFile struct {
	io.ReadSeekCloser
	attempts  *attempts
	mac, name string
}

// Close closes the file.
func (f *sentFile) Close() error {
	f.attempts.closed(f.mac, f.name)
	return f.ReadSeekCloser.Close()
}
