//go:build linux

package conformance

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
)

// allowedMethods sorts the methods of a header Allow, whose order has no meaning.
func allowedMethods(header map[string]string) {
	if allow := header["Allow"]; allow != "" {
		methods := strings.Split(allow, ", ")
		slices.Sort(methods)
		header["Allow"] = strings.Join(methods, ", ")
	}
}

// sortedSteps sorts the steps of each hardware manager by name.
func sortedSteps(fields object) {
	for _, kind := range kinds() {
		managers, _ := fields[kind+"_steps"].(object)
		for _, steps := range managers {
			list, ok := steps.([]any)
			if !ok {
				continue
			}
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(stepName(a), stepName(b)) })
		}
	}
}

func stepName(step any) string {
	fields, _ := step.(object)
	name, _ := fields["step"].(string)
	return name
}

// describedArguments replaces the texts that describe the arguments of a step, which are for people.
func describedArguments(fields object) {
	arguments, _ := fields["argsinfo"].(object)
	for _, argument := range arguments {
		if argument, ok := argument.(object); ok {
			if description, ok := argument["description"].(string); ok {
				argument["description"] = text(description)
			}
		}
	}
}

// archiveNames replaces an archive of logs by the names of its files.
func archiveNames(fields object, key string) {
	encoded, ok := fields[key].(string)
	if !ok {
		return
	}
	names, err := namesIn(encoded)
	if err != nil {
		fields[key] = "no archive"
		return
	}
	fields[key] = names
}

// namesIn returns the names of the files in an archive.
func namesIn(encoded string) (object, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	names := object{}
	for r := tar.NewReader(unpacked); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		names[header.Name] = "file"
	}
}

// inventoryShape replaces the values of an inventory by their types. Package lab/facts compares the values.
func inventoryShape(fields object, key string) {
	if inventory, ok := fields[key].(object); ok {
		fields[key] = shapeOf(inventory)
	}
}

// shapeOf replaces texts, numbers and truth values by their types. A list has the shape of its first element.
func shapeOf(value any) any {
	switch value := value.(type) {
	case object:
		result := object{}
		for key, part := range value {
			result[key] = shapeOf(part)
		}
		return result
	case []any:
		if len(value) > 1 {
			value = value[:1]
		}
		var result []any
		for _, part := range value {
			result = append(result, shapeOf(part))
		}
		return result
	case nil:
		return nil
	case string:
		if strings.HasPrefix(value, "<") { // a shape already
			return value
		}
	}
	return fmt.Sprintf("<%T>", value)
}

// sortedDevices sorts PCI devices by their address.
func sortedDevices(fields object) {
	devices, ok := fields["pci_devices"].([]any)
	if !ok {
		return
	}
	bus := func(device any) string {
		fields, _ := device.(object)
		name, _ := fields["bus"].(string)
		return name
	}
	slices.SortFunc(devices, func(a, b any) int { return strings.Compare(bus(a), bus(b)) })
}

// hardwareFacts turns the list of facts of hardware-detect into an object, because its order has no meaning. A slash in
// a name becomes a bar, so that the name is one part of a path.
func hardwareFacts(fields object) {
	list, ok := fields["data"].([]any)
	if !ok {
		return
	}
	facts := object{}
	for _, fact := range list {
		if parts, ok := fact.([]any); ok && len(parts) == 4 {
			facts[strings.ReplaceAll(fmt.Sprint(parts[0], " ", parts[1], " ", parts[2]), "/", "|")] = parts[3]
		} else {
			facts[encode(fact)] = "no fact"
		}
	}
	fields["data"] = facts
}

// rootOnce drops the requests for Ironic's root document but the first one. Agents read it to learn the API version,
// and to find their own address, as often as they want.
func rootOnce(requests []ironicRequest) []ironicRequest {
	read := false
	return slices.DeleteFunc(slices.Clone(requests), func(r ironicRequest) bool {
		again := read
		isRoot := r.Method == http.MethodGet &&
			slices.Contains([]string{"", "/", "/v1", "/v1/"}, strings.TrimPrefix(r.Path, "/baremetal"))
		read = read || isRoot
		return isRoot && again
	})
}

// numaTopology sorts the processors of the NUMA topology, and rounds its memory to 64 MiB: how much the kernel reserves
// depends on the size of the initramfs.
func numaTopology(fields object) {
	topology, _ := fields["numa_topology"].(object)
	if cpus, ok := topology["cpus"].([]any); ok {
		slices.SortFunc(cpus, func(a, b any) int { return cmp.Compare(number(a, "cpu"), number(b, "cpu")) })
	}
	memory, _ := topology["ram"].([]any)
	for _, node := range memory {
		if fields, ok := node.(object); ok && fields["size_kb"] != nil {
			fields["size_kb"] = math.Round(number(fields, "size_kb")/65536) * 65536
		}
	}
}

// number returns a number of an object.
func number(value any, key string) float64 {
	fields, _ := value.(object)
	n, _ := fields[key].(float64)
	return n
}

// inspectionData replaces what is not compared in the data of an inspection.
func inspectionData(r ironicRequest) {
	fields, ok := r.Body.(object)
	if !ok || !strings.Contains(r.Path, "/continue") {
		return
	}
	inventoryShape(fields, "inventory")
	inventoryShape(fields, "dmi") // the values depend on the version of QEMU
	numaTopology(fields)
	archiveNames(fields, "logs")
	sortedDevices(fields)
	hardwareFacts(fields)
	if message, ok := fields["error"].(string); ok {
		fields["error"] = text(message)
	}
}
