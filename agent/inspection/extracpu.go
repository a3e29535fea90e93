package inspection

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"ironroot/agent/inventory"
)

// processorFacts adds the facts about processors and NUMA nodes, with the values of lscpu. As in lscpu, the first
// processor describes all sockets.
func (i *inspection) processorFacts(f *factList, cpu inventory.CPU) {
	dir := i.System.Sys("devices/system/cpu")
	f.addValue("cpu", "physical", "number", cpu.SocketCount)
	f.add("cpu", "physical", "smt", i.text(filepath.Join(dir, "smt/control")))
	threads, cores := i.topology(cpu.SocketCount)
	info := parseProcessors([]byte(i.text(i.System.Proc("cpuinfo"))))[0]
	for n := range cpu.SocketCount {
		item := fmt.Sprintf("physical_%d", n)
		switch i.text(filepath.Join(dir, "cpufreq/boost")) {
		case "":
		case "1":
			f.add("cpu", item, "boost", "enabled")
		default:
			f.add("cpu", item, "boost", "disabled")
		}
		f.add("cpu", item, "vendor", info["vendor_id"])
		f.add("cpu", item, "product", cpu.ModelName)
		if cores > 0 {
			f.addValue("cpu", item, "cores", cores)
			f.addValue("cpu", item, "threads", cores*threads)
		}
		for _, field := range [][2]string{{"family", "cpu family"}, {"model", "model"}, {"stepping", "stepping"}} {
			if value, err := strconv.Atoi(info[field[1]]); err == nil {
				f.addValue("cpu", item, field[0], value)
			}
		}
		f.add("cpu", item, "architecture", cpu.Architecture)
		i.cacheSizes(f, item)
		i.frequency(f, item, "min_Mhz", "cpuinfo_min_freq")
		i.frequency(f, item, "max_Mhz", "cpuinfo_max_freq")
		f.add("cpu", item, "flags", strings.Join(cpu.Flags, " "))
		if threads > 0 {
			f.addValue("cpu", item, "threads_per_core", threads)
		}
	}
	f.addValue("cpu", "logical", "number", cpu.Count)
	numbers, err := numbered(dir, "cpu")
	if err == nil {
		for _, n := range numbers {
			governor := i.text(filepath.Join(dir, fmt.Sprintf("cpu%d/cpufreq/scaling_governor", n)))
			f.add("cpu", fmt.Sprintf("logical_%d", n), "governor", governor)
		}
	}
	i.nodeFacts(f)
}

// topology returns the number of threads of a core and of cores of a socket, 0 if they are not known.
func (i *inspection) topology(sockets int) (threads, cores int) {
	const dir = "devices/system/cpu"
	numbers, err := numbered(i.System.Sys(dir), "cpu")
	if err != nil || sockets == 0 {
		return 0, 0
	}
	found := map[[3]string]bool{} // socket, die and number of a core
	processors := 0
	for _, n := range numbers {
		topology := func(name string) string {
			return i.text(i.System.Sys(dir, fmt.Sprintf("cpu%d/topology", n), name))
		}
		core := [3]string{topology("physical_package_id"), topology("die_id"), topology("core_id")}
		if core[2] == "" {
			continue // offline
		}
		processors++
		found[core] = true
	}
	if len(found) == 0 {
		return 0, 0
	}
	return processors / len(found), len(found) / sockets
}

// frequency adds a frequency of the first processor in MHz. The kernel reports it in kHz.
func (i *inspection) frequency(f *factList, item, property, file string) {
	khz, err := strconv.ParseFloat(i.text(i.System.Sys("devices/system/cpu/cpu0/cpufreq", file)), 64)
	if err == nil {
		f.addValue("cpu", item, property, khz/1000)
	}
}

// cacheSizes adds the sizes of the caches of all processors in the form of lscpu: 64 KiB (2 instances).
func (i *inspection) cacheSizes(f *factList, item string) {
	type cache struct {
		bytes     int64
		instances map[string]bool
	}
	names := []string{"l1d", "l1i", "l2", "l3"}
	caches := map[string]*cache{}
	files, err := filepath.Glob(i.System.Sys("devices/system/cpu/cpu[0-9]*/cache/index*"))
	if err != nil {
		return
	}
	for _, dir := range files {
		name := "l" + i.text(filepath.Join(dir, "level"))
		switch i.text(filepath.Join(dir, "type")) {
		case "Data":
			name += "d"
		case "Instruction":
			name += "i"
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(i.text(filepath.Join(dir, "size")), "K"), 10, 64)
		if err != nil {
			continue
		}
		c := caches[name]
		if c == nil {
			c = &cache{instances: map[string]bool{}}
			caches[name] = c
		}
		instance := cmp.Or(i.text(filepath.Join(dir, "id")), i.text(filepath.Join(dir, "shared_cpu_list")))
		if !c.instances[instance] {
			c.instances[instance] = true
			c.bytes += kib << 10
		}
	}
	for _, name := range names {
		if c := caches[name]; c != nil {
			f.add("cpu", item, name+" cache", cacheSize(c.bytes, len(c.instances)))
		}
	}
}

// cacheSize returns a size and the number of caches in the form of lscpu.
func cacheSize(bytes int64, instances int) string {
	value, unit := float64(bytes)/(1<<10), "KiB"
	if value >= 1024 {
		value, unit = value/1024, "MiB"
	}
	text := strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64)
	plural := "s"
	if instances == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s %s (%d instance%s)", text, unit, instances, plural)
}

// nodeFacts adds the NUMA nodes with the number and the mask of their processors.
func (i *inspection) nodeFacts(f *factList) {
	const dir = "devices/system/node"
	nodes, err := numbered(i.System.Sys(dir), "node")
	if err != nil {
		return
	}
	f.addValue("numa", "nodes", "count", len(nodes))
	for _, n := range nodes {
		item := fmt.Sprintf("node_%d", n)
		cpus, err := numbered(i.System.Sys(dir, fmt.Sprintf("node%d", n)), "cpu")
		if err != nil {
			continue
		}
		f.addValue("numa", item, "cpu_count", len(cpus))
		if mask := i.text(i.System.Sys(dir, fmt.Sprintf("node%d", n), "cpumap")); mask != "" {
			f.add("numa", item, "cpu_mask", shortMask(mask))
		}
	}
}

// shortMask returns a CPU mask of the kernel without commas and leading zeros: f for 00000000,0000000f.
func shortMask(mask string) string {
	short := strings.TrimLeft(strings.ReplaceAll(mask, ",", ""), "0")
	if short == "" {
		return "0"
	}
	return short
}
