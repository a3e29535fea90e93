package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
)

const agentToken = "0123456789abcdef0123456789abcdefXYZ"

// process is `ironroot agent` in a new network namespace, which contains only loopback and a pair of links.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bufio.Scanner
	all strings.Builder
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "ip", "nsenter", "curl")
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The flags are arguments of the shell, so that it does not interpret them.
	script := "ip link set lo up && ip link add one type veth peer name two && ip link set one up && ip link set " +
		"two up && exec \"$@\""
	cmd := exec.Command("sh", append([]string{"-c", script, "sh", binary, "agent"}, args...)...)
	cmd.Env = append(os.Environ(), "OS_DEFAULT__AGENT_TOKEN="+agentToken, asProgram+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return start(t, cmd)
}

// start starts a command and reads its standard error as the log. The process is killed when the test ends.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	output, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, log: bufio.NewScanner(output)}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(syscall.SIGKILL) }) // a killed process always returns an error
	return p
}

// end sends a signal, waits for the process and returns the error of Wait. A second call returns nil.
func (p *process) end(signal os.Signal) error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.cmd.Process.Signal(signal) // fails if the process has ended; Wait returns how
	for p.log.Scan() {
		p.all.WriteString(p.log.Text() + "\n")
	}
	return p.cmd.Wait()
}

// await reads the log up to a line that contains the text. It fails after two minutes.
func (p *process) await(text string) {
	p.t.Helper()
	late := time.AfterFunc(2*time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	for p.log.Scan() {
		p.all.WriteString(p.log.Text() + "\n")
		if strings.Contains(p.log.Text(), text) {
			return
		}
	}
	p.t.Fatalf("no %q in the log:\n%s", text, p.all.String())
}

// curl runs curl in the agent's network namespace and returns its output.
func (p *process) curl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	args = append([]string{"-t", strconv.Itoa(p.cmd.Process.Pid), "-n", "curl", "-sS", "-m", "60"}, args...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	return string(out), err
}

func (p *process) run(name string) string {
	p.t.Helper()
	out, err := p.curl("-d", `{"name":"`+name+`","params":{}}`,
		"http://127.0.0.1:9999/v1/commands/?wait=true&agent_token="+agentToken)
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

func (p *process) records() []map[string]any {
	p.t.Helper()
	out, err := p.curl("http://127.0.0.1:9999/v1/commands/?agent_token=" + agentToken)
	var list struct{ Commands []map[string]any }
	if err != nil || json.Unmarshal([]byte(out), &list) != nil || list.Commands == nil {
		p.t.Fatalf("list: %v %s", err, out)
	}
	return list.Commands
}

// Parity: A11
func TestAgentRecords(t *testing.T) {
	p := startProcess(t, "--standalone", "--listen_port", "9999")
	p.await("API listening")
	var want []string
	for i := range 20 {
		name := []string{"standby.get_partition_uuids", "flow.start_flow"}[i%2]
		p.run(name)
		_, short, _ := strings.Cut(name, ".")
		want = append(want, short)
	}
	got := p.records()
	for i, r := range got {
		if i >= len(want) || r["command_name"] != want[i] {
			t.Errorf("record %d: got %v, want %v", i, r["command_name"], want)
		}
	}
	if len(got) != 20 {
		t.Errorf("records: got %d, want 20", len(got))
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("end by SIGTERM: got %v, want exit status 0\n%s", err, p.all.String())
	}
	if strings.Contains(p.all.String(), agentToken) {
		t.Errorf("the token is in the log:\n%s", p.all.String())
	}
	again := startProcess(t, "--standalone")
	again.await("API listening")
	if got := again.records(); len(got) != 0 {
		t.Errorf("records after a restart: got %v, want []", got)
	}
}

// The second example of the help works as it is printed, even without sysfs, which systems other than Linux do not
// have.
func TestAgentExample(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "ip", "mount", "curl", "openssl")
	_, example, _ := strings.Cut(agentUsage, "# Without Ironic")
	example, _, _ = strings.Cut(example, "\n\n")
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "ip link set lo up && mount -t tmpfs none /sys || exit\n"+
		"ironroot() { exec \"$PROGRAM\" \"$@\"; }\n#"+example+"\nkill $! && wait $!")
	cmd.Env = append(os.Environ(), "PROGRAM="+binary, asProgram+"=1", "no_proxy=*") // the namespace has no proxy
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"command_status":"SUCCEEDED"`) ||
		!strings.Contains(string(out), `"step":"erase_devices"`) {
		t.Errorf("got %v, want the steps:\n%s", err, out)
	}
}

// Without a URL of Ironic the agent serves its API and sends no requests.
func TestAgentWithoutIronic(t *testing.T) {
	p := startProcess(t, "--agent_token=")
	p.await("no URL of Ironic")
	p.await("API listening")
	for i := range 3 {
		out, err := p.curl("-w", "%{http_code}", "http://127.0.0.1:9999/v1/commands/?agent_token=x")
		if err != nil || !strings.HasSuffix(out, "401") {
			t.Errorf("request %d: got %s %v, want 401", i, out, err)
		}
	}
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		out, err := p.curl("http://" + host + ":9999/v1/status")
		if err != nil || !strings.Contains(out, "started_at") {
			t.Errorf("status on %s: got %s %v", host, out, err)
		}
	}
	// The five requests above opened all connections of this namespace.
	if got := p.counter("Tcp", "ActiveOpens"); got != 5 {
		t.Errorf("connections opened: got %d, want those 5 of this test", got)
	}
	if got := p.counter("Udp", "OutDatagrams"); got != 0 {
		t.Errorf("datagrams sent: got %d, want none", got)
	}
	if err := p.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the agent has ended: %v", err)
	}
}

// counter returns a counter of the kernel for the agent's network namespace.
func (p *process) counter(protocol, name string) int {
	p.t.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/net/snmp")
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if fields[0] != protocol+":" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, n := range names {
			if n == name {
				value, err := strconv.Atoi(fields[i])
				if err != nil {
					p.t.Fatal(err)
				}
				return value
			}
		}
	}
	p.t.Fatalf("no counter %s %s", protocol, name)
	return 0
}

// Without --destructive, an ordinary process refuses commands that change the machine.
func TestAgentRefuses(t *testing.T) {
	p := startProcess(t, "--standalone")
	p.await("API listening")
	for _, name := range []string{
		"standby.run_image", "standby.power_off", "system.lockdown", "standby.prepare_image",
	} {
		if got := p.run(name); !strings.Contains(got, name+" refused: started without --destructive") {
			t.Errorf("%s: got %s, want it refused", name, got)
		}
	}
}

func TestAgentLockdown(t *testing.T) {
	p := startProcess(t, "--standalone", "--destructive")
	p.await("API listening")
	if got := p.run("system.lockdown"); !strings.Contains(got, `"command_status":"SUCCEEDED"`) {
		t.Errorf("lockdown: got %s, want SUCCEEDED", got)
	}
	p.await("lockdown complete")
	links := testenv.Run(t, "nsenter", "-t", strconv.Itoa(p.cmd.Process.Pid), "-n", "ip", "-o", "link")
	for line := range strings.Lines(links) {
		if strings.Contains(line, ",UP") || strings.Contains(line, "<UP") {
			t.Errorf("link still up after lockdown: %s", line)
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		sockets, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/net/" + table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(sockets)) {
			if f := strings.Fields(line); strings.HasSuffix(f[1], ":270F") && f[3] == "0A" { // 9999, listening
				t.Errorf("port 9999 is still open: %s", line)
			}
		}
	}
	if err := p.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the agent has ended: %v", err)
	}
}
