package generic

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/hardware"
	"ironroot/agent/hardware/burnin"
	"ironroot/agent/journal"
	"ironroot/agent/status"
	"ironroot/internal/test/testenv"
)

// burninNode returns a node with settings in driver_info.
func burninNode(t *testing.T, info string) hardware.Call {
	t.Helper()
	return hardware.Call{Node: nodeWith(t, `"driver_info": {`+info+`}`)}
}

// The steps use the settings of the node, and fail with the type of error that Ironic knows.
//
// Parity: P9 (settings and errors)
func TestBurninSettings(t *testing.T) {
	testenv.Linux(t, "affinity")
	m := newManager(t)
	result, err := m.burninCPU(t.Context(), burninNode(t, `"agent_burnin_cpu_cpu": 1, "agent_burnin_cpu_timeout": 1`))
	report, ok := result.(*burnin.CPUReport)
	if err != nil || !ok || report.Workers != 1 || report.Seconds < 1 {
		t.Errorf("got %+v and %v, want a second on one processor", result, err)
	}
	if text, err := json.Marshal(result); err != nil || !strings.Contains(string(text), `"computations":`) {
		t.Errorf("got result %s and %v", text, err)
	}
	for name, test := range map[string]struct {
		step hardware.StepFunc
		info string
		want string
	}{
		"cpu":         {m.burninCPU, `"agent_burnin_cpu_timeout": "x"`, `agent_burnin_cpu_timeout: got "x"`},
		"memory":      {m.burninMemory, `"agent_burnin_vm_vm-bytes": "much"`, "driver_info agent_burnin_vm_vm-bytes: "},
		"disk":        {m.burninDisk, `"agent_burnin_fio_disk_loops": -1`, "driver_info agent_burnin_fio_disk_loops: "},
		"no meminfo":  {m.burninMemory, "", "burnin_memory: "},
		"gpu":         {m.burninGPU, "", "burnin_gpu: not supported: the ramdisk has no driver for GPUs"},
		"network":     {m.burninNetwork, `"agent_burnin_fio_network_runtime": 0`, "network_runtime: got 0"},
		"no disks":    {m.burninDisk, "", "burnin_disk: no disk was tested"},
		"output file": {m.burninDisk, `"agent_burnin_fio_disk_outputfile": "/dev/null"`, "burnin_disk: create output"},
	} {
		result, err := test.step(t.Context(), burninNode(t, test.info))
		if result != nil || typeOf(err) != "CommandExecutionError" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v and %v, want a CommandExecutionError with %q", name, result, err, test.want)
		}
	}
}

// Without a partner the error has the type that ironic-python-agent gives it.
func TestBurninNetworkPartner(t *testing.T) {
	m := newManager(t)
	if _, err := m.burninNetwork(t.Context(), burninNode(t, "")); typeOf(err) != "CleaningError" ||
		!strings.Contains(err.Error(), "agent_burnin_fio_network_config") {
		t.Errorf("got %v, want a CleaningError", err)
	}
	// Pairing that fails is such an error, too. The password of the backend is masked.
	var log bytes.Buffer
	m.o.Journal = journal.New(&log, &slog.LevelVar{}, 1<<20)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it answers nothing
	where := l.Addr().String()
	_, err = m.burninNetwork(t.Context(), burninNode(t,
		`"agent_burnin_fio_network_pairing_backend_url": "zookeeper://u:Hidden-1@`+where+`?timeout=1"`))
	if typeOf(err) != "CleaningError" || !strings.Contains(err.Error(), "connect to ZooKeeper "+where) ||
		strings.Contains(err.Error(), "Hidden-1") {
		t.Errorf("got %v, want a CleaningError that names the server", err)
	}
	m.o.Journal.Logger().Info("test", "password", "Hidden-1")
	if strings.Contains(log.String(), "Hidden-1") {
		t.Errorf("the log contains the password: %s", log.String())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // so that no name server is asked
	info := `"agent_burnin_fio_network_config": {"role": "reader", "partner": "partner.invalid"}`
	if _, err := m.burninNetwork(ended, burninNode(t, info)); typeOf(err) != "CommandExecutionError" ||
		!strings.Contains(err.Error(), "burnin_network: look up partner: ") {
		t.Errorf("got %v, want a CommandExecutionError about the partner", err)
	}
}

// A test of processors or memory has a percentage by its time.
func TestBurninTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t)
		board := status.NewBoard("1", nil)
		m.o.Board = board
		board.Begin("clean.execute_clean_step", "burnin_cpu")
		test := func(context.Context, burnin.Machine, burnin.CPUOptions) (any, error) {
			time.Sleep(30*time.Minute + time.Second)
			if got, want := board.Summary(), "burnin_cpu: 50%, testing processors, 30m0s left"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			time.Sleep(time.Hour)
			if got, want := board.Summary(), "burnin_cpu: 99%, testing processors"; !strings.HasPrefix(got, want) {
				t.Errorf("after the time: got %q, want %q", got, want)
			}
			return nil, nil
		}
		call := burninNode(t, `"agent_burnin_cpu_timeout": 3600`)
		if _, err := burn(t.Context(), m, call, "burnin_cpu", burnin.CPUOptionsOf, test); err != nil {
			t.Error(err)
		}
		if work := board.State().Work; len(work) > 0 {
			t.Errorf("afterwards: got work %+v, want none", work)
		}
	})
}
