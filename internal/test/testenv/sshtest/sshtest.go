// Package sshtest logs in to the ramdisk by SSH, for tests.
package sshtest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// loginTimeout limits the time of the key exchange, which takes seconds on an emulated machine.
const loginTimeout = 5 * time.Minute

// Login logs in over a connection. It accepts only a host key whose fingerprint the machine's console shows.
func Login(conn net.Conn, user string, method ssh.AuthMethod, console string) (*ssh.Client, error) {
	channel, channels, requests, err := ssh.NewClientConn(conn, "machine", &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{method}, Timeout: loginTimeout,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if fingerprint := ssh.FingerprintSHA256(key); !strings.Contains(console, fingerprint) {
				return fmt.Errorf("host key %s is not on the console", fingerprint)
			}
			return nil
		},
	})
	if err != nil {
		_ = conn.Close() // it is not used
		return nil, err
	}
	return ssh.NewClient(channel, channels, requests), nil
}

// Run runs a command that must succeed, and returns its output.
func Run(t testing.TB, client *ssh.Client, command string, input io.Reader) string {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close() //nolint:errcheck // the command has ended
	session.Stdin = input
	output, err := session.CombinedOutput(command)
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
	return string(output)
}
