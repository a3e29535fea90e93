//go:build linux

package rig

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/imageserver"
	"ironroot/lab/netns"
	"ironroot/lab/qemu"
)

const (
	// Host is the host as seen from a guest on QEMU's own network.
	Host = "10.0.2.2"
	// AgentPort is the port of the agent's API.
	AgentPort = 9999
	// APIPort is the port of the conductor in the namespace. The others are forwarded to the agent and its SSH server.
	APIPort, agentForward, sshForward = 6385, 9999, 2222
	// AgentAddress is the agent's address on that network, which is in its certificate and its callback URL.
	AgentAddress = "10.0.2.15"
	// NodeMAC is the address of the first network interface.
	NodeMAC = "52:54:00:e2:e0:01"
	// MiB is a number of bytes.
	MiB = 1 << 20
	// OperationTimeout is the time limit for operations that take seconds on an idle machine. The start of a machine
	// takes minutes on a busy host without hardware virtualisation.
	OperationTimeout = 10 * time.Minute
)

// Setup describes one machine and its environment.
type Setup struct {
	Machine qemu.Config // Start sets name, network and namespace, and kernel, ramdisk and directory if they are empty
	Append  string      // additional kernel parameters
	Token   string      // pre-generated token of the node
	// Config overrides keys of config in Ironic's lookup reply.
	Config map[string]any
	// AgentCA is the certificate with which Ironic verifies an agent whose heartbeats contain none.
	AgentCA string
	// Properties are the node's properties.
	Properties map[string]any
	// NoIronic omits ipa-api-url. LateIronic defers the start of the conductor to Rig.StartConductor.
	NoIronic, LateIronic bool
	// Namespace contains QEMU, the conductor and the image server, which use fixed ports; nil means a new one.
	Namespace *netns.Namespace
	// Prepare, if not nil, changes the machine's configuration before it starts. The conductor runs, unless
	// LateIronic is set.
	Prepare func(*Rig, *qemu.Config)
}

// Rig is a machine with the ramdisk, its conductor and its image server.
type Rig struct {
	t         testing.TB
	Conductor *conductor.Conductor
	Node      *conductor.Node
	Images    *imageserver.Server
	Machine   *qemu.Machine
	token     string // the node's pre-generated token
	config    map[string]any
	agentCA   string
	Namespace *netns.Namespace
	// Properties are the node's properties.
	Properties map[string]any
	Secrets    []string // texts that no console may contain, in addition to the node's tokens
	Unplugged  int      // number of devices that were removed
}

// Start boots the ramdisk. At the end of the test the machine is stopped and its console searched for secrets.
func Start(t *testing.T, s Setup) *Rig {
	t.Helper()
	testenv.Programs(t, "qemu-system-x86_64")
	c := s.Machine
	if c.Kernel == "" {
		c.Kernel = testenv.Build(t, "ipa-ironroot-amd64.kernel")
		c.Initrd = testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	}
	c.Name = t.Name()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if s.Namespace == nil {
		s.Namespace = NewNamespace(t)
	}
	c.NetNS = s.Namespace.Path()
	r := &Rig{
		t: t, token: s.Token, Namespace: s.Namespace, Properties: s.Properties, config: s.Config, agentCA: s.AgentCA,
	}
	err := r.Namespace.Do(func() (err error) {
		r.Images, err = imageserver.New(imageserver.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Images.Close() })
	c.Append = "console=ttyS0,115200n8 loglevel=4 ipa-debug=1 ipa-insecure=1 " + qemu.KernelHints + " " + s.Append
	if !s.NoIronic {
		c.Append += fmt.Sprintf(" ipa-api-url=https://%s:%d", Host, APIPort)
	}
	if s.Token != "" {
		c.Append += " ipa-agent-token=" + s.Token
	}
	if !s.LateIronic {
		r.StartConductor()
	}
	c.NICs = append([]qemu.NIC{{MAC: NodeMAC, Forwards: []qemu.Forward{
		{Host: agentForward, Guest: AgentPort}, {Host: sshForward, Guest: SSHPort},
	}}}, c.NICs...)
	if s.Prepare != nil {
		s.Prepare(r, &c)
	}
	if r.Machine, err = qemu.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.finish)
	return r
}

// finish stops the machine, prints the end of its console if the test failed, and searches the whole console for
// secrets.
func (r *Rig) finish() {
	_ = r.Machine.Stop() // it may have ended already
	console, err := os.ReadFile(filepath.Join(r.Machine.Dir(), "console.log"))
	if err != nil {
		r.t.Error(err)
	}
	if len(console) == 0 {
		r.t.Error("the console is empty")
	}
	for i, secret := range r.Secrets {
		if bytes.Contains(console, []byte(secret)) {
			r.t.Errorf("the console shows secret %d", i)
		}
	}
	if r.t.Failed() {
		r.t.Logf("the console ends with\n%s", r.Machine.Console().Tail(60))
	}
}

// StartConductor starts the conductor with one node, which waits for a deployment.
func (r *Rig) StartConductor() {
	r.t.Helper()
	var ironic *conductor.Conductor
	err := r.Namespace.Do(func() (err error) {
		ironic, err = conductor.New(conductor.Options{
			Addr: fmt.Sprintf("127.0.0.1:%d", APIPort), TLS: true, Names: []string{Host},
			CommandTimeout: OperationTimeout, Dialer: r, Config: r.config, AgentCA: r.agentCA, Events: r,
		})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = ironic.Close()
		for _, text := range ironic.Violations() {
			r.t.Errorf("the agent violated the protocol: %s", text)
		}
	})
	r.Conductor = ironic
	r.Node = ironic.AddNode(conductor.NodeSpec{
		Name: "e2e", MACs: []string{NodeMAC}, Token: r.token, Properties: r.Properties,
	})
	r.Node.SetState(conductor.DeployWait)
}

// Event records the token of the agent.
func (r *Rig) Event(n *conductor.Node, e conductor.Event) {
	if e.Name == conductor.EventFirstHeartbeat {
		r.Secrets = append(r.Secrets, n.Token())
	}
}

// DialContext connects to the agent.
func (r *Rig) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return r.dialPort(ctx, agentForward)
}

// dialPort connects to a port of the namespace that is forwarded to the machine.
func (r *Rig) dialPort(ctx context.Context, port int) (net.Conn, error) {
	return r.Namespace.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

// WaitAgent waits for the first heartbeat since the machine's start.
func (r *Rig) WaitAgent(t *testing.T) {
	t.Helper()
	if err := r.Node.WaitAgent(Soon(t)); err != nil {
		t.Fatalf("%v; the console ends with\n%s", err, r.Machine.Console().Tail(60))
	}
}

// Command runs a command to its end and returns its record.
func (r *Rig) Command(t *testing.T, name string, params map[string]any) *conductor.Record {
	t.Helper()
	record, err := r.Node.Command(t.Context(), name, params, true)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// Succeed runs a command that must succeed and returns its result without spaces.
func (r *Rig) Succeed(t *testing.T, name string, params map[string]any) string {
	t.Helper()
	record := r.Command(t, name, params)
	if record.Status != conductor.Succeeded {
		t.Fatalf("%s: got %s (%v), want %s", name, record.Status, record.Error, conductor.Succeeded)
	}
	return string(record.Result)
}

// SetHints sends the node's properties to the agent, as the conductor does before a step: the rig's and the root device
// hints.
func (r *Rig) SetHints(t *testing.T, hints map[string]any) {
	t.Helper()
	properties := map[string]any{"root_device": hints}
	maps.Copy(properties, r.Properties)
	r.Succeed(t, "deploy.get_deploy_steps", map[string]any{"ports": []any{}, "node": map[string]any{
		"uuid": r.Node.UUID(), "properties": properties,
		"instance_info": map[string]any{}, "driver_internal_info": map[string]any{},
	}})
}

// Client returns a client for the agent, which keeps its connections open.
func (r *Rig) Client() *http.Client {
	roots := x509.NewCertPool()
	if r.Node != nil {
		_, certificate := r.Node.Callback()
		roots.AppendCertsFromPEM([]byte(certificate))
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: r.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
	}}
}

// Call sends a request to the agent that the conductor would not send, and returns status and body.
func (r *Rig) Call(t *testing.T, method, token, body string) (status int, answer string) {
	t.Helper()
	client := r.Client()
	defer client.CloseIdleConnections()
	return r.CallWith(t, client, method, token, body)
}

// CallWith is like Call, with a client of the test.
func (r *Rig) CallWith(t *testing.T, client *http.Client, method, token, body string) (status int, answer string) {
	t.Helper()
	scheme := "http"
	if r.Node != nil {
		scheme = "https"
	}
	query := url.Values{"wait": {"true"}}
	if token != "" {
		query.Set("agent_token", token)
	}
	address := fmt.Sprintf("%s://%s:%d/v1/commands/?%s", scheme, AgentAddress, AgentPort, query.Encode())
	request, err := http.NewRequestWithContext(Soon(t), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, MiB))
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// WaitConsole waits until a machine's console matches an expression, and returns the whole console. A log line can
// arrive later than the reply to the request that caused it.
func WaitConsole(t testing.TB, m *qemu.Machine, expression string) (console string) {
	t.Helper()
	if _, err := m.Console().Follow(Soon(t), regexp.MustCompile(expression)); err != nil {
		t.Errorf("nothing on the console matches %q: %v", expression, err)
	}
	return m.Console().String()
}

// Soon returns a context that ends with the test, or after OperationTimeout.
func Soon(t testing.TB) context.Context { return testenv.Context(t, OperationTimeout) }
