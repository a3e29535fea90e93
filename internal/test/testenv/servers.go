package testenv

import (
	"fmt"
	"strings"
	"testing"
)

// Server describes the storage controllers of a recorded server.
type Server struct {
	Model, Source string
	Controllers   []Controller // distinct ones
}

// Controller describes a PCI function of base class 01h.
type Controller struct {
	Class     string // "010601"
	ID        string // vendor and device, "8086:1d02"
	Subsystem string // vendor and device
	Driver    string // in the recording, not always of Linux; "" means none
	// Modules are the modules of Debian's kernel that match its modalias.
	Modules []string
}

// Modalias returns the alias of the function by which Linux finds its drivers.
func (c Controller) Modalias() string {
	id, subsystem := strings.Split(strings.ToUpper(c.ID), ":"), strings.Split(strings.ToUpper(c.Subsystem), ":")
	class := strings.ToUpper(c.Class)
	return fmt.Sprintf("pci:v0000%sd0000%ssv0000%ssd0000%sbc%ssc%si%s",
		id[0], id[1], subsystem[0], subsystem[1], class[:2], class[2:4], class[4:])
}

// Servers returns the servers of testdata/servers.
func Servers(t testing.TB) []Server {
	t.Helper()
	modules := map[string][]string{}
	for _, line := range dataLines(t, "servers/modules.txt") {
		function, names, ok := strings.Cut(line, " ")
		if !ok {
			t.Fatalf("modules.txt: got line %q, want a function and modules", line)
		}
		modules[function] = nil
		if names != "-" {
			modules[function] = strings.Split(names, ",")
		}
	}
	var servers []Server
	for _, line := range dataLines(t, "servers/controllers.txt") {
		fields := strings.Split(line, " | ")
		if len(fields) != 3 {
			t.Fatalf("controllers.txt: got line %q, want a model, a source and functions", line)
		}
		server := Server{Model: fields[0], Source: fields[1]}
		for function := range strings.FieldsSeq(fields[2]) {
			parts := append(strings.Split(function, ":"), "")
			if len(parts) < 6 {
				t.Fatalf("controllers.txt: got function %q", function)
			}
			c := Controller{
				Class: parts[0], ID: parts[1] + ":" + parts[2], Subsystem: parts[3] + ":" + parts[4], Driver: parts[5],
			}
			names, ok := modules[strings.Join(parts[:5], ":")]
			if !ok {
				t.Fatalf("modules.txt lacks %s", function)
			}
			c.Modules = names
			server.Controllers = append(server.Controllers, c)
		}
		servers = append(servers, server)
	}
	return servers
}

// dataLines returns the lines of a file of testdata, without comments.
func dataLines(t testing.TB, name string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(string(Data(t, name))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
