package facts

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
)

// Framing of OpenIPMI's simulator: the ends of messages and commands, and the escape byte.
const (
	endMessage = 0xa0
	endCommand = 0xa1
	escape     = 0xaa
)

// startBMC starts a BMC that has a shared port without an address on channel 1 and a dedicated port on channel 8.
// QEMU forwards the guest's requests in the framing of OpenIPMI's simulator (QEMU's device ipmi-bmc-extern). It
// returns QEMU's arguments for a machine with the BMC.
func startBMC(t *testing.T) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bmc")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go serveBMC(conn)
		}
	}()
	return []string{
		// With reconnect, QEMU connects once it runs; an earlier connection would crash the device.
		"-chardev", "socket,id=bmc,reconnect=1,path=" + path, "-device", "ipmi-bmc-extern,id=bmc0,chardev=bmc",
		"-device", "isa-ipmi-kcs,bmc=bmc0",
	}
}

// serveBMC answers messages until the machine ends.
func serveBMC(conn io.ReadWriteCloser) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	var message []byte
	for {
		b, err := reader.ReadByte()
		if err != nil {
			return
		}
		switch b {
		case endCommand: // version and capabilities of the framing
			message = nil
		case escape:
			if b, err = reader.ReadByte(); err != nil {
				return
			}
			message = append(message, b&^0x10)
		case endMessage:
			if len(message) >= 4 { // sequence number, function and unit, command, checksum
				if _, err := conn.Write(frame(answer(message[:len(message)-1]))); err != nil {
					return
				}
			}
			message = nil
		default:
			message = append(message, b)
		}
	}
}

// answer returns the reply to a message: the response bit, a completion code and the data.
func answer(request []byte) []byte {
	data := reply(request[1]>>2, request[2], request[3:])
	return append([]byte{request[0], request[1] | 4, request[2]}, data...)
}

func frame(message []byte) []byte {
	var sum byte
	for _, b := range message {
		sum += b
	}
	var out []byte
	for _, b := range append(message, -sum) {
		if b == endMessage || b == endCommand || b == escape {
			out, b = append(out, escape), b|0x10
		}
		out = append(out, b)
	}
	return append(out, endMessage)
}

// The addresses of the BMC.
var (
	bmcMAC    = []byte{0x3c, 0xec, 0xef, 0x7a, 0xa0, 0xaa} // with bytes that need escaping
	sharedMAC = []byte{0x3c, 0xec, 0xef, 0x7a, 0x00, 0x01}
	bmcV4     = netip.MustParseAddr("10.20.30.40")
	bmcV6     = netip.MustParseAddr("2001:db8::40")
)

// reply returns completion code and data (IPMI 2.0, 20.1, 22.24 and 23.2).
func reply(function, command byte, data []byte) []byte {
	const invalidCommand, invalidField, notSupported = 0xc1, 0xcc, 0x80
	switch {
	case function == 6 && command == 1: // Get Device ID
		return []byte{0, 0x20, 1, 2, 0x10, 2, 0x1f, 0x57, 1, 0, 1, 2}
	case function == 6 && (command == 0x2e || command == 0x30): // global enables, message flags
		return []byte{0}
	case function == 6 && (command == 0x2f || command == 0x31):
		return []byte{0, 0}
	case function == 6 && command == 0x42 && len(data) > 0: // Get Channel Info
		if channel := data[0] & 0xf; channel == 1 || channel == 8 {
			return []byte{0, channel, 4, 1, 0x80, 0xf2, 0x1b, 0, 0, 0} // a LAN
		}
		return []byte{invalidField}
	case function == 0xc && command == 2 && len(data) >= 3: // Get LAN Configuration
		if value := lanParameter(data[0]&0xf, data[1], data[2]); value != nil {
			return append([]byte{0, 0x11}, value...)
		}
		return []byte{notSupported}
	}
	return []byte{invalidCommand}
}

// lanParameter returns a parameter's data (IPMI 2.0, table 23-4), or nil if the BMC does not support it.
func lanParameter(channel, parameter, set byte) []byte {
	if channel != 1 && channel != 8 {
		return nil
	}
	own := channel == 8
	switch parameter {
	case 0: // set in progress: no
		return []byte{0}
	case 3:
		if own {
			return bmcV4.AsSlice()
		}
		return []byte{0, 0, 0, 0}
	case 4: // address source: DHCP
		return []byte{2}
	case 5:
		if own {
			return bmcMAC
		}
		return sharedMAC
	case 6:
		return []byte{255, 255, 255, 0}
	case 50: // number of possible addresses
		return []byte{1, 1, 3}
	case 51:
		if own {
			return []byte{2} // both IPv4 and IPv6
		}
		return []byte{0}
	case 59: // a dynamic address from DHCPv6, active
		if own && set == 0 {
			return append(append([]byte{0, 2}, bmcV6.AsSlice()...), 64, 0)
		}
	}
	return nil
}
