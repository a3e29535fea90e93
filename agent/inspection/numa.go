package inspection

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// numaTopology describes the memory, cores and network interfaces of the NUMA nodes.
type numaTopology struct {
	RAM  []numaRAM  `json:"ram"`
	CPUs []numaCore `json:"cpus"`
	NICs []numaNIC  `json:"nics"`
}

type numaRAM struct {
	Node   int   `json:"numa_node"`
	SizeKB int64 `json:"size_kb"` // in units of 1024 bytes
}

type numaCore struct {
	Core    int   `json:"cpu"`
	Node    int   `json:"numa_node"`
	Threads []int `json:"thread_siblings"`
}

type numaNIC struct {
	Name string `json:"name"`
	Node int    `json:"numa_node"`
}

// collectNUMA adds the topology, only if it is complete. A failure to read it is only logged.
func collectNUMA(ctx context.Context, i *inspection) error {
	topology, err := i.numaTopology(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		i.Log.Warn("inspection without NUMA topology", "err", err)
		return nil
	}
	i.set("numa_topology", topology)
	return nil
}

func (i *inspection) numaTopology(ctx context.Context) (numaTopology, error) {
	t := numaTopology{RAM: []numaRAM{}, CPUs: []numaCore{}, NICs: []numaNIC{}}
	nodes, err := numbered(i.System.Sys("devices/system/node"), "node")
	if err != nil {
		return t, fmt.Errorf("list NUMA nodes: %w", err)
	}
	for _, node := range nodes {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		dir := i.System.Sys("devices/system/node", "node"+strconv.Itoa(node))
		size, err := i.nodeMemory(filepath.Join(dir, "meminfo"))
		if err != nil {
			return t, err
		}
		t.RAM = append(t.RAM, numaRAM{Node: node, SizeKB: size})
		cores, err := i.nodeCores(dir, node)
		if err != nil {
			return t, err
		}
		t.CPUs = append(t.CPUs, cores...)
	}
	names, err := interfaceNames(i.System)
	if err != nil {
		return t, err
	}
	for _, name := range names {
		node, err := i.readNumber(i.System.Sys("class/net", name, "device/numa_node"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // virtual, or on a bus without nodes
		}
		if err != nil {
			return t, fmt.Errorf("NUMA node of interface %s: %w", name, err)
		}
		t.NICs = append(t.NICs, numaNIC{Name: name, Node: node})
	}
	return t, nil
}

// numbered returns the numbers of the directory entries with a name of prefix and number, in ascending order.
func numbered(dir, prefix string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []int
	for _, entry := range entries {
		if rest, ok := strings.CutPrefix(entry.Name(), prefix); ok {
			if n, err := strconv.Atoi(rest); err == nil && n >= 0 {
				list = append(list, n)
			}
		}
	}
	sort.Ints(list)
	return list, nil
}

func (i *inspection) nodeMemory(file string) (int64, error) {
	data, err := i.Inventory.Read(file)
	if err != nil {
		return 0, err
	}
	return parseNodeMemory(data)
}

// parseNodeMemory returns the total of a node's meminfo, "Node 0 MemTotal:  1560000 kB".
func parseNodeMemory(meminfo []byte) (int64, error) {
	for line := range strings.Lines(string(meminfo)) {
		key, value, found := strings.Cut(line, ":")
		if !found || !strings.HasSuffix(key, "MemTotal") {
			continue
		}
		number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
		kb, err := strconv.ParseInt(number, 10, 64)
		if err != nil || kb < 0 || strings.TrimSpace(unit) != "kB" {
			return 0, fmt.Errorf("parse MemTotal of NUMA node: got %q, want a number of kB", strings.TrimSpace(value))
		}
		return kb, nil
	}
	return 0, errors.New("parse meminfo of NUMA node: MemTotal missing")
}

// nodeCores returns a node's cores, whose numbers are unique only within the node, with their threads.
func (i *inspection) nodeCores(dir string, node int) ([]numaCore, error) {
	threads, err := numbered(dir, "cpu")
	if err != nil {
		return nil, fmt.Errorf("list processors of NUMA node %d: %w", node, err)
	}
	var cores []numaCore
	at := map[int]int{} // index in cores by number
	for _, thread := range threads {
		core, err := i.readNumber(filepath.Join(dir, "cpu"+strconv.Itoa(thread), "topology/core_id"))
		if err != nil {
			return nil, fmt.Errorf("core of processor %d of NUMA node %d: %w", thread, node, err)
		}
		if n, known := at[core]; known {
			cores[n].Threads = append(cores[n].Threads, thread)
			continue
		}
		at[core] = len(cores)
		cores = append(cores, numaCore{Core: core, Node: node, Threads: []int{thread}})
	}
	return cores, nil
}

func (i *inspection) readNumber(file string) (int, error) {
	data, err := i.Inventory.Read(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
