//go:build linux

// Package ipa builds a ramdisk with Debian's ironic-python-agent and the programs that it calls. Its machine is the
// reference for what an agent does: a test starts the agent in it as often as needed, see Control.
//
// Limits: requires root, mmdebstrap, cpio and zstd; amd64.
package ipa

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"ironroot/lab/netns"
)

// ControlPort is the port on which the machine accepts requests of Control.
const ControlPort = 9998

// Ready matches the console's line after which the machine accepts requests of Control.
var Ready = regexp.MustCompile(`ipa-control: ready`)

// Control starts and stops an agent in its machine: ironic-python-agent in a Ramdisk, or the one of this project in a
// ramdisk whose init is ironroot/lab/conformance/agentinit.
type Control struct {
	Namespace *netns.Namespace // with the machine, whose ControlPort is forwarded from 127.0.0.1
}

// Start stops a running agent, and starts one with a kernel command line and configuration files. files maps paths to
// contents.
func (c Control) Start(ctx context.Context, cmdline string, files map[string]string) error {
	if files == nil {
		files = map[string]string{}
	}
	body, err := json.Marshal(map[string]any{"cmdline": cmdline, "files": files})
	if err != nil {
		return err
	}
	_, err = c.request(ctx, http.MethodPost, "/start", body)
	return err
}

// Stop ends the agent.
func (c Control) Stop(ctx context.Context) error {
	_, err := c.request(ctx, http.MethodPost, "/stop", nil)
	return err
}

// Sync writes out the machine's file systems and block devices.
func (c Control) Sync(ctx context.Context) error {
	_, err := c.request(ctx, http.MethodPost, "/sync", nil)
	return err
}

// Log returns the agent's log since its start. It is empty for an agent that logs to the console.
func (c Control) Log(ctx context.Context) (string, error) {
	text, err := c.request(ctx, http.MethodGet, "/log", nil)
	return string(text), err
}

func (c Control) request(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	url := fmt.Sprintf("http://127.0.0.1:%d%s", ControlPort, path)
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       c.Namespace.DialContext,
	}}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("control agent: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("control agent: %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("control agent: %s: status %d: %s", path, response.StatusCode, text)
	}
	return text, nil
}
