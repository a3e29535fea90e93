//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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
	host      = "10.0.2.2" // the host as seen from a guest on QEMU's own network
	agentPort = 9999
	// Ports of the rig's namespace: of the conductor, and those that are forwarded to the agent and its SSH server.
	apiPort, agentForward, sshForward = 6385, 9999, 2222
	// agentAddress is the agent's address on that network, which is in its certificate and its callback URL.
	agentAddress = "10.0.2.15"
	nodeMAC      = "52:54:00:e2:e0:01"
	mib          = 1 << 20
	// operationTimeout is the time limit for operations that take seconds on an idle machine. The start of a machine
	// takes minutes on a busy host without hardware virtualisation.
	operationTimeout = 10 * time.Minute
)

// setup describes one machine and its environment.
type setup struct {
	machine qemu.Config // start sets name, network and namespace, and kernel, ramdisk and directory if they are empty
	append  string      // additional kernel parameters
	token   string      // pre-generated token of the node
	// config overrides keys of config in Ironic's lookup reply.
	config map[string]any
	// agentCA is the certificate with which Ironic verifies an agent whose heartbeats contain none.
	agentCA string
	// properties are the node's properties.
	properties map[string]any
	// noIronic omits ipa-api-url. lateIronic defers the start of the conductor to rig.startConductor.
	noIronic, lateIronic bool
	// namespace contains QEMU, the conductor and the image server, which use fixed ports; nil means a new one.
	namespace *netns.Namespace
	// prepare, if not nil, changes the machine's configuration before it starts. The conductor runs, unless
	// lateIronic is set.
	prepare func(*rig, *qemu.Config)
}

// rig is a machine with the ramdisk, its conductor and its image server.
type rig struct {
	t         testing.TB
	conductor *conductor.Conductor
	node      *conductor.Node
	images    *imageserver.Server
	machine   *qemu.Machine
	token     string // the node's pre-generated token
	config    map[string]any
	agentCA   string
	namespace *netns.Namespace
	// properties are the node's properties.
	properties map[string]any
	secrets    []string // texts that no console may contain, in addition to the node's tokens
	unplugged  int      // number of devices that were removed
}

// start boots the ramdisk. At the end of the test the machine is stopped and its console searched for secrets.
func start(t *testing.T, s setup) *rig {
	t.Helper()
	testenv.Programs(t, "qemu-system-x86_64")
	c := s.machine
	if c.Kernel == "" {
		c.Kernel = testenv.Build(t, "ipa-ironroot-amd64.kernel")
		c.Initrd = testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	}
	c.Name = t.Name()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if s.namespace == nil {
		s.namespace = newNamespace(t)
	}
	c.NetNS = s.namespace.Path()
	r := &rig{
		t: t, token: s.token, namespace: s.namespace, properties: s.properties, config: s.config, agentCA: s.agentCA,
	}
	err := r.namespace.Do(func() (err error) {
		r.images, err = imageserver.New(imageserver.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.images.Close() })
	c.Append = "console=ttyS0,115200n8 loglevel=4 ipa-debug=1 ipa-insecure=1 " + qemu.KernelHints + " " + s.append
	if !s.noIronic {
		c.Append += fmt.Sprintf(" ipa-api-url=https://%s:%d", host, apiPort)
	}
	if s.token != "" {
		c.Append += " ipa-agent-token=" + s.token
	}
	if !s.lateIronic {
		r.startConductor()
	}
	c.NICs = append([]qemu.NIC{{MAC: nodeMAC, Forwards: []qemu.Forward{
		{Host: agentForward, Guest: agentPort}, {Host: sshForward, Guest: sshPort},
	}}}, c.NICs...)
	if s.prepare != nil {
		s.prepare(r, &c)
	}
	if r.machine, err = qemu.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.finish)
	return r
}

// finish stops the machine, prints the end of its console if the test failed, and searches the whole console for
// secrets.
func (r *rig) finish() {
	_ = r.machine.Stop() // it may have ended already
	console, err := os.ReadFile(filepath.Join(r.machine.Dir(), "console.log"))
	if err != nil {
		r.t.Error(err)
	}
	if len(console) == 0 {
		r.t.Error("the console is empty")
	}
	for i, secret := range r.secrets {
		if bytes.Contains(console, []byte(secret)) {
			r.t.Errorf("the console shows secret %d", i)
		}
	}
	if r.t.Failed() {
		r.t.Logf("the console ends with\n%s", r.machine.Console().Tail(60))
	}
}

// startConductor starts the conductor with one node, which waits for a deployment.
func (r *rig) startConductor() {
	r.t.Helper()
	var ironic *conductor.Conductor
	err := r.namespace.Do(func() (err error) {
		ironic, err = conductor.New(conductor.Options{
			Addr: fmt.Sprintf("127.0.0.1:%d", apiPort), TLS: true, Names: []string{host},
			CommandTimeout: operationTimeout, Dial: r.dial, Config: r.config, AgentCA: r.agentCA,
			OnEvent: func(n *conductor.Node, e conductor.Event) {
				if e.Name == conductor.EventFirstHeartbeat {
					r.secrets = append(r.secrets, n.Token())
				}
			},
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
	r.conductor = ironic
	r.node = ironic.AddNode(conductor.NodeSpec{
		Name: "e2e", MACs: []string{nodeMAC}, Token: r.token, Properties: r.properties,
	})
	r.node.SetState(conductor.DeployWait)
}

// dial connects to the agent.
func (r *rig) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return r.dialPort(ctx, agentForward)
}

// dialPort connects to a port of the namespace that is forwarded to the machine.
func (r *rig) dialPort(ctx context.Context, port int) (net.Conn, error) {
	return r.namespace.Dial(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

// serve serves HTTP in the namespace until stop is called. The address is that for the guest.
func (r *rig) serve(t *testing.T, handler http.HandlerFunc) (address string, stop func()) {
	t.Helper()
	server := newServer(t, r.namespace, handler)
	server.Start()
	return guestAddress(server), server.Close
}

// waitAgent waits for the first heartbeat since the machine's start.
func (r *rig) waitAgent(t *testing.T) {
	t.Helper()
	if err := r.node.WaitAgent(soon(t)); err != nil {
		t.Fatalf("%v; the console ends with\n%s", err, r.machine.Console().Tail(60))
	}
}

// command runs a command to its end and returns its record.
func (r *rig) command(t *testing.T, name string, params map[string]any) *conductor.Record {
	t.Helper()
	record, err := r.node.Command(t.Context(), name, params, true)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// succeed runs a command that must succeed and returns its result without spaces.
func (r *rig) succeed(t *testing.T, name string, params map[string]any) string {
	t.Helper()
	record := r.command(t, name, params)
	if record.Status != conductor.Succeeded {
		t.Fatalf("%s: got %s (%v), want %s", name, record.Status, record.Error, conductor.Succeeded)
	}
	return string(record.Result)
}

// setHints sends the node's properties to the agent, as the conductor does before a step: those of the rig and the root
// device hints.
func (r *rig) setHints(t *testing.T, hints map[string]any) {
	t.Helper()
	properties := map[string]any{"root_device": hints}
	maps.Copy(properties, r.properties)
	r.succeed(t, "deploy.get_deploy_steps", map[string]any{"ports": []any{}, "node": map[string]any{
		"uuid": r.node.UUID(), "properties": properties,
		"instance_info": map[string]any{}, "driver_internal_info": map[string]any{},
	}})
}

// client returns a client for the agent, which keeps its connections open.
func (r *rig) client() *http.Client {
	roots := x509.NewCertPool()
	if r.node != nil {
		_, certificate := r.node.Callback()
		roots.AppendCertsFromPEM([]byte(certificate))
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: r.dial, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
	}}
}

// call sends a request to the agent that the conductor would not send, and returns status and body.
func (r *rig) call(t *testing.T, method, token, body string) (status int, answer string) {
	t.Helper()
	client := r.client()
	defer client.CloseIdleConnections()
	return r.callWith(t, client, method, token, body)
}

func (r *rig) callWith(t *testing.T, client *http.Client, method, token, body string) (status int, answer string) {
	t.Helper()
	scheme := "http"
	if r.node != nil {
		scheme = "https"
	}
	query := url.Values{"wait": {"true"}}
	if token != "" {
		query.Set("agent_token", token)
	}
	address := fmt.Sprintf("%s://%s:%d/v1/commands/?%s", scheme, agentAddress, agentPort, query.Encode())
	request, err := http.NewRequestWithContext(soon(t), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, mib))
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// fault returns the faultstring of a reply.
func fault(t *testing.T, answer string) string {
	t.Helper()
	var f struct {
		String string `json:"faultstring"`
	}
	if err := json.Unmarshal([]byte(answer), &f); err != nil || f.String == "" {
		t.Errorf("got answer %.200q, want one with a faultstring", answer)
	}
	return f.String
}

// says waits until a machine's console matches an expression, and returns the whole console. A log line can arrive
// later than the reply to the request that caused it.
func says(t testing.TB, m *qemu.Machine, expression string) (console string) {
	t.Helper()
	if _, err := m.Console().Follow(soon(t), regexp.MustCompile(expression)); err != nil {
		t.Errorf("nothing on the console matches %q: %v", expression, err)
	}
	return m.Console().String()
}

// soon returns a context that ends with the test, or after operationTimeout.
func soon(t testing.TB) context.Context { return testenv.Context(t, operationTimeout) }
