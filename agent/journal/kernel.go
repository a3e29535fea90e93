package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

func dmesg(context.Context, sysfs.Root) ([]byte, error) { return KernelLog() }

// KernelLog returns the messages in the kernel's ring buffer, one a line: its time in brackets, and the text. The
// priorities are omitted.
func KernelLog() ([]byte, error) {
	log, err := kernelLog()
	if err != nil {
		return nil, err
	}
	return stripPriorities(log), nil
}

// minTruncated is the length in bytes from which a line of the kernel can be truncated.
const minTruncated = 900

// truncationMark replaces the last word of such a line.
const truncationMark = "..."

// withoutLastWord removes the last word of a long line with the kernel's command line. The kernel truncates such lines
// after about 1000 bytes, and a part of a secret would not be redacted.
func withoutLastWord(line []byte) []byte {
	if len(line) < minTruncated || !bytes.Contains(line, []byte("ommand line")) {
		return line
	}
	text := bytes.TrimRight(line, "\n")
	return append(bytes.Clone(text[:bytes.LastIndexByte(text, ' ')+1]), truncationMark+"\n"...)
}

// stripPriorities removes the priorities ("<6>") and truncated words from the lines.
func stripPriorities(log []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(log) {
		if end := bytes.IndexByte(line, '>'); end > 0 && end < 6 && line[0] == '<' {
			line = line[end+1:]
		}
		out.Write(withoutLastWord(line))
	}
	return out.Bytes()
}

type mount struct{ source, target, kind, options string }

func mountTable(sys sysfs.Root) ([]mount, error) {
	data, err := os.ReadFile(sys.Proc("self", "mounts"))
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var table []mount
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 4 {
			table = append(table, mount{unescape.Replace(f[0]), unescape.Replace(f[1]), f[2], f[3]})
		}
	}
	return table, nil
}

func mounts(_ context.Context, sys sysfs.Root) ([]byte, error) {
	table, err := mountTable(sys)
	var out bytes.Buffer
	for _, m := range table {
		fmt.Fprintf(&out, "%s on %s type %s (%s)\n", m.source, m.target, m.kind, m.options)
	}
	return out.Bytes(), err
}

func freeSpace(ctx context.Context, sys sysfs.Root) ([]byte, error) {
	table, err := mountTable(sys)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%-24s %14s %14s %14s %5s %s\n",
		"Filesystem", "1K-blocks", "Used", "Available", "Use%", "Mounted on")
	for _, m := range table {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var s unix.Statfs_t
		if unix.Statfs(m.target, &s) != nil {
			continue
		}
		unit := uint64(max(s.Bsize, 1))
		total, used, free := s.Blocks*unit>>10, (s.Blocks-s.Bfree)*unit>>10, s.Bavail*unit>>10
		share := "-"
		if used+free > 0 {
			share = strconv.FormatUint((used*100+used+free-1)/(used+free), 10) + "%"
		}
		fmt.Fprintf(&out, "%-24s %14d %14d %14d %5s %s\n", m.source, total, used, free, share, m.target)
	}
	return out.Bytes(), nil
}

func addresses(context.Context, sysfs.Root) ([]byte, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, link := range links {
		fmt.Fprintf(&out, "%d: %s: <%s> mtu %d\n    link %s\n", link.Index, link.Name,
			strings.ToUpper(strings.ReplaceAll(link.Flags.String(), "|", ",")), link.MTU, link.HardwareAddr)
		found, err := link.Addrs()
		if err != nil {
			fmt.Fprintf(&out, "    (%v)\n", err) // continue with the other links
			continue
		}
		for _, a := range found {
			family := "inet"
			if prefix, ok := a.(*net.IPNet); ok && prefix.IP.To4() == nil {
				family = "inet6"
			}
			fmt.Fprintf(&out, "    %s %s\n", family, a)
		}
	}
	return out.Bytes(), nil
}

func processes(ctx context.Context, sys sysfs.Root) ([]byte, error) {
	entries, err := os.ReadDir(sys.Proc())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%7s %7s %-5s %10s %s\n", "PID", "PPID", "STATE", "RSS-KIB", "COMMAND")
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" || ctx.Err() != nil {
			continue
		}
		status, err := os.ReadFile(sys.Proc(e.Name(), "status"))
		if err != nil {
			continue // it has ended
		}
		field := func(name string) string { return statusField(string(status), name) }
		// Arguments are omitted, because they can contain secrets.
		fmt.Fprintf(&out, "%7s %7s %-5.5s %10s %s\n",
			e.Name(), field("PPid"), field("State"), strings.TrimSuffix(field("VmRSS"), " kB"), field("Name"))
	}
	return out.Bytes(), nil
}

func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "-"
}

// deviceProperties returns the properties of each disk under udev's names.
func deviceProperties(ctx context.Context, sys sysfs.Root) []Member {
	disks, _ := block.Disks(ctx, sys) // the member lsblk contains the error
	var members []Member
	for _, d := range disks {
		data, err := json.MarshalIndent(map[string]string{
			"DEVNAME": d.Path, "DEVTYPE": d.Type, "ID_MODEL": d.Model, "ID_VENDOR": d.Vendor,
			"ID_SERIAL_SHORT": d.Serial, "ID_WWN": d.WWN, "ID_WWN_WITH_EXTENSION": d.WWNWithExtension,
			"ID_WWN_VENDOR_EXTENSION": d.WWNVendorExtension, "ID_BUS": d.Transport, "ID_PATH_LINK": d.ByPath,
		}, "", "  ")
		if err == nil {
			members = append(members, Member{"udev/" + d.Name, data})
		}
	}
	return members
}
