//go:build linux

package rig

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ironroot/lab/conductor"
)

// DiskNames waits for all disks and returns their paths by serial number, because the kernel names disks in any
// order. Of several namespaces with the same one, the second is SERIAL-2.
func (r *Rig) DiskNames(t *testing.T, serials ...string) map[string]string {
	t.Helper()
	for ctx := Soon(t); ctx.Err() == nil; {
		var inventory struct {
			Disks []struct{ Name, Serial string }
		}
		if err := json.Unmarshal([]byte(r.Succeed(t, "poll.get_hardware_info", nil)), &inventory); err != nil {
			t.Fatal(err)
		}
		names := map[string]string{}
		for _, d := range inventory.Disks {
			key := d.Serial
			for n := 2; names[key] != ""; n++ {
				key = fmt.Sprintf("%s-%d", d.Serial, n)
			}
			names[key] = d.Name
		}
		if !slices.ContainsFunc(serials, func(s string) bool { return names[s] == "" }) {
			return names
		}
	}
	t.Fatalf("disks %q are not all there", serials)
	return nil
}

// EraseStep runs a clean step with fields of the node.
func (r *Rig) EraseStep(t *testing.T, name string, fields map[string]any) *conductor.Record {
	t.Helper()
	node := map[string]any{"uuid": r.Node.UUID(), "properties": map[string]any{}, "instance_info": map[string]any{}}
	for key, value := range fields {
		node[key] = value
	}
	return r.Command(t, "clean.execute_clean_step", map[string]any{
		"step": map[string]any{"step": name, "interface": "deploy"}, "node": node, "ports": []any{},
	})
}

// CleanStep runs a clean step with arguments.
func (r *Rig) CleanStep(t *testing.T, name string, args map[string]any) *conductor.Record {
	t.Helper()
	return r.Command(t, "clean.execute_clean_step", map[string]any{
		"step": map[string]any{"step": name, "interface": "deploy", "args": args},
		"node": map[string]any{"uuid": r.Node.UUID()}, "ports": []any{},
	})
}

// leading matches the percentage of a command as a whole.
var leading = regexp.MustCompile(`^[a-z_]+: (\d+)%`)

// PercentOf returns the percentage in a line about a command, -1 without one.
func PercentOf(line string) int {
	m := leading.FindStringSubmatch(line)
	if m == nil {
		return -1
	}
	percent, err := strconv.Atoi(m[1])
	if err != nil {
		return -1
	}
	return percent
}

// CheckProgress waits for the result of a command, and checks that the percentages that Ironic received have only grown
// since a message.
func (r *Rig) CheckProgress(t *testing.T, from int, result string) {
	t.Helper()
	lines, err := r.Node.WaitProgress(Soon(t), from, result, func(line string) bool {
		return strings.HasPrefix(line, result)
	})
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, line := range lines {
		percent := PercentOf(line)
		if percent >= 0 && percent < last {
			t.Errorf("the percentage falls:\n%s", strings.Join(lines, "\n"))
			break
		}
		last = max(last, percent)
	}
	t.Logf("progress:\n%s", strings.Join(lines, "\n"))
}
