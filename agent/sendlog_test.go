package agent

import (
	"context"
	"net"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/internal/test/testenv"
)

// The log goes to the operator's server, with the lines from before the start and without secrets.
func TestSendLog(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // only read
	j := journal.New(&testenv.Log{}, nil, 1<<20)
	j.Logger().Info("before", "token", "token-of-this-node")
	c := &config.Config{AgentToken: "token-of-this-node", SyslogServer: "udp://" + conn.LocalAddr().String()}
	a := newAgent(Options{Config: c, Journal: j})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a.sendLog(ctx)
	a.log.Warn("after")
	for _, want := range []string{"INFO  before token=***", "WARN  after"} {
		buffer := make([]byte, 1<<16)
		n, err := conn.Read(buffer)
		if err != nil || !strings.HasSuffix(string(buffer[:n]), want) {
			t.Errorf("got message %q (%v), want one that ends with %q", buffer[:n], err, want)
		}
	}
}

// A server whose certificate cannot be verified, because the file of the CA is missing, is an error of the log.
func TestSendLogWithoutCA(t *testing.T) {
	console := &testenv.Log{}
	c := &config.Config{CAFile: t.TempDir() + "/missing.pem", SyslogServer: "tls://127.0.0.1"}
	newAgent(Options{Config: c, Journal: journal.New(console, nil, 1<<20)}).sendLog(t.Context())
	if !strings.Contains(console.String(), "log not sent to syslog server") {
		t.Errorf("got log %s", console)
	}
}
