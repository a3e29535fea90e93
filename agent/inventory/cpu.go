package inventory

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/sysfs"
)

func (s *Source) cpu() CPU {
	info := cpuinfo{}
	if data, err := s.Read(s.o.System.Proc("cpuinfo")); err != nil {
		s.o.Log.Warn("inventory without cpu model", "err", err)
	} else {
		info = parseCPUInfo(data)
	}
	c := CPU{
		ModelName:    info.model(),
		Frequency:    cmp.Or(s.maxFrequency(), info.first["cpu MHz"]),
		Count:        info.processors,
		Architecture: s.architecture(),
		Flags:        info.flags(),
		SocketCount:  s.sockets(),
	}
	if n := countCPUs(s.text(s.o.System.Sys("devices/system/cpu/present"))); n > 0 {
		c.Count = n
	}
	return c
}

// architecture returns the machine's name as uname reports it.
func (s *Source) architecture() string {
	if arch := s.text(s.o.System.Proc("sys/kernel/arch")); arch != "" {
		return arch
	}
	var name unix.Utsname // kernels before 6.1 do not have the file
	if err := unix.Uname(&name); err != nil {
		s.o.Log.Warn("inventory without architecture", "err", err)
		return ""
	}
	return unix.ByteSliceToString(name.Machine[:])
}

// maxFrequency returns the highest frequency of any processor in MHz with four decimals, as lscpu prints it, and "" if
// the kernel does not scale frequencies, as in most virtual machines.
func (s *Source) maxFrequency() string {
	var khz int64
	for _, text := range sysfs.Each(s.glob("devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq"), s.text) {
		if f, err := strconv.ParseInt(text, 10, 64); err == nil {
			khz = max(khz, f)
		}
	}
	if khz == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%04d", khz/1000, khz%1000*10)
}

// sockets returns the number of distinct processor packages.
func (s *Source) sockets() int {
	packages := map[string]bool{}
	for _, id := range sysfs.Each(s.glob("devices/system/cpu/cpu[0-9]*/topology/physical_package_id"), s.text) {
		if id != "" {
			packages[id] = true
		}
	}
	return max(1, len(packages))
}

// glob lists files below /sys. The patterns are constants, so that the only possible error does not occur.
func (s *Source) glob(pattern string) []string {
	files, _ := filepath.Glob(s.o.System.Sys(pattern))
	return files
}

// countCPUs returns the number of processors in a list like "0-3,8", 0 if the list is invalid.
func countCPUs(list string) int {
	count := 0
	for item := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(item, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return 0
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(last); err != nil || to < from {
				return 0
			}
		}
		count += to - from + 1
	}
	return count
}

// cpuinfo is the content of /proc/cpuinfo: the fields of its first block, and the number of blocks.
type cpuinfo struct {
	first      map[string]string
	processors int
}

func parseCPUInfo(data []byte) cpuinfo {
	info := cpuinfo{first: map[string]string{}}
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, len(data)+1)
	for scanner.Scan() {
		key, value, found := strings.Cut(scanner.Text(), ":")
		if !found {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if key == "processor" {
			info.processors++
		}
		if _, known := info.first[key]; !known {
			info.first[key] = value
		}
	}
	return info
}

// flags returns the flags, which are called Features on ARM.
func (c cpuinfo) flags() []string {
	text := c.first["flags"]
	if text == "" {
		text = c.first["Features"]
	}
	return append([]string{}, strings.Fields(text)...)
}

// model returns the model name. ARM processors report only numbers of the implementer and the part.
func (c cpuinfo) model() string {
	if name := c.first["model name"]; name != "" {
		return name
	}
	return armParts[c.first["CPU implementer"]+" "+c.first["CPU part"]]
}

// armParts are lscpu's names (util-linux 2.43-devel) of 64-bit processors by implementer and part number of the MIDR
// register, without microcontrollers and the processors of Apple and Samsung.
var armParts = map[string]string{
	"0x41 0xd01": "Cortex-A32",
	"0x41 0xd02": "Cortex-A34",
	"0x41 0xd03": "Cortex-A53",
	"0x41 0xd04": "Cortex-A35",
	"0x41 0xd05": "Cortex-A55",
	"0x41 0xd06": "Cortex-A65",
	"0x41 0xd07": "Cortex-A57",
	"0x41 0xd08": "Cortex-A72",
	"0x41 0xd09": "Cortex-A73",
	"0x41 0xd0a": "Cortex-A75",
	"0x41 0xd0b": "Cortex-A76",
	"0x41 0xd0c": "Neoverse-N1",
	"0x41 0xd0d": "Cortex-A77",
	"0x41 0xd0e": "Cortex-A76AE",
	"0x41 0xd40": "Neoverse-V1",
	"0x41 0xd41": "Cortex-A78",
	"0x41 0xd42": "Cortex-A78AE",
	"0x41 0xd43": "Cortex-A65AE",
	"0x41 0xd44": "Cortex-X1",
	"0x41 0xd46": "Cortex-A510",
	"0x41 0xd47": "Cortex-A710",
	"0x41 0xd48": "Cortex-X2",
	"0x41 0xd49": "Neoverse-N2",
	"0x41 0xd4a": "Neoverse-E1",
	"0x41 0xd4b": "Cortex-A78C",
	"0x41 0xd4c": "Cortex-X1C",
	"0x41 0xd4d": "Cortex-A715",
	"0x41 0xd4e": "Cortex-X3",
	"0x41 0xd4f": "Neoverse-V2",
	"0x41 0xd80": "Cortex-A520",
	"0x41 0xd81": "Cortex-A720",
	"0x41 0xd82": "Cortex-X4",
	"0x41 0xd83": "Neoverse-V3AE",
	"0x41 0xd84": "Neoverse-V3",
	"0x41 0xd85": "Cortex-X925",
	"0x41 0xd87": "Cortex-A725",
	"0x41 0xd88": "Cortex-A520AE",
	"0x41 0xd89": "Cortex-A720AE",
	"0x41 0xd8a": "C1-Nano",
	"0x41 0xd8b": "C1-Pro",
	"0x41 0xd8c": "C1-Ultra",
	"0x41 0xd8e": "Neoverse-N3",
	"0x41 0xd8f": "Cortex-A320",
	"0x41 0xd90": "C1-Premium",
	"0x42 0x516": "ThunderX2",
	"0x43 0x0a0": "ThunderX",
	"0x43 0x0a1": "ThunderX-88XX",
	"0x43 0x0a2": "ThunderX-81XX",
	"0x43 0x0a3": "ThunderX-83XX",
	"0x43 0x0af": "ThunderX2-99xx",
	"0x43 0x0b0": "OcteonTX2",
	"0x43 0x0b1": "OcteonTX2-98XX",
	"0x43 0x0b2": "OcteonTX2-96XX",
	"0x43 0x0b3": "OcteonTX2-95XX",
	"0x43 0x0b4": "OcteonTX2-95XXN",
	"0x43 0x0b5": "OcteonTX2-95XXMM",
	"0x43 0x0b6": "OcteonTX2-95XXO",
	"0x43 0x0b8": "ThunderX3-T110",
	"0x46 0x001": "A64FX",
	"0x46 0x003": "MONAKA",
	"0x48 0xd01": "Kunpeng-920",
	"0x48 0xd02": "Kunpeng-920",
	"0x48 0xd03": "Kunpeng-920",
	"0x48 0xd06": "Kunpeng-950",
	"0x48 0xd22": "Kunpeng-920",
	"0x48 0xd40": "Cortex-A76",
	"0x48 0xd41": "Cortex-A77",
	"0x4e 0x004": "Carmel",
	"0x4e 0x010": "Olympus",
	"0x50 0x000": "X-Gene",
	"0x51 0x001": "Oryon",
	"0x51 0xc00": "Falkor",
	"0x51 0xc01": "Saphira",
	"0x6d 0xd49": "Azure-Cobalt-100",
	"0x70 0x303": "FTC310",
	"0x70 0x660": "FTC660",
	"0x70 0x661": "FTC661",
	"0x70 0x662": "FTC662",
	"0x70 0x663": "FTC663",
	"0x70 0x664": "FTC664",
	"0x70 0x862": "FTC862",
	"0xc0 0xac3": "Ampere-1",
	"0xc0 0xac4": "Ampere-1a",
}
