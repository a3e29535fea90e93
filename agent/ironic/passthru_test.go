package ironic

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// oldIronic answers as an Ironic of a given age with one node, whose driver is agent_ipmitool.
type oldIronic struct {
	root    string // root document
	newest  string // header with the newest API version, "" for none
	unknown int    // status of requests that it does not know
	mac     string // of the node

	mu    sync.Mutex
	calls []call
}

const (
	// unversioned is the root document before Ironic 5.0.
	unversioned = `{"default_version":{"id":"v1","links":[]}}`
	passthru    = "/v1/drivers/agent_ipmitool/vendor_passthru/lookup"
	macOfNode   = "52:54:00:00:00:02"
)

func (o *oldIronic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	var body map[string]any
	_ = json.Unmarshal(data, &body)
	o.mu.Lock()
	o.calls = append(o.calls, call{
		Method: r.Method, Path: r.URL.Path, Version: r.Header.Get("X-OpenStack-Ironic-API-Version"), Body: body,
	})
	mac := o.mac
	o.mu.Unlock()
	if o.newest != "" && r.URL.Path != "/" {
		w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", o.newest)
	}
	status, text := o.unknown, `{"error_message":"{\"faultstring\":\"unknown\"}"}`
	switch r.Method + " " + r.URL.Path {
	case "GET /":
		status, text = http.StatusOK, o.root
	case "POST " + passthru:
		status = http.StatusNotFound
		inventory, _ := body["inventory"].(map[string]any)
		interfaces, _ := inventory["interfaces"].([]any)
		for _, i := range interfaces {
			if fields, _ := i.(map[string]any); body["version"] == "2" && fields["mac_address"] == mac {
				status, text = http.StatusOK, `{"heartbeat_timeout":300,"node":{"uuid":"`+nodeUUID+`"}}`
			}
		}
	case "POST /v1/nodes/" + nodeUUID + "/vendor_passthru/heartbeat":
		if status, text = http.StatusAccepted, ""; body["agent_url"] == nil {
			status = http.StatusBadRequest
		}
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// paths returns method, path and version header of all requests but those for the root document.
func (o *oldIronic) paths() (list []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.calls {
		if c.Path != "/" {
			list = append(list, strings.TrimSpace(c.Method+" "+c.Path+" "+c.Version))
		}
	}
	return list
}

// A node is looked up by vendor_passthru only in an Ironic that has no other lookup. Statuses and documents were
// recorded from Ironic 5.1 (Mitaka), 4.2 (Liberty), and 2014.2 (Juno) with and without Keystone.
//
// Parity: B20 (lookup)
func TestPassthruLookup(t *testing.T) {
	const newLookup = "GET /v1/lookup 1.31"
	for _, tt := range []struct {
		name   string
		ironic *oldIronic
		driver string
		want   []string
		error  string
	}{
		{
			"Mitaka", &oldIronic{root: `{"default_version":{"id":"v1","version":"1.16"}}`, newest: "1.16"},
			"agent_ipmitool",
			[]string{"POST " + passthru},
			"",
		},
		{
			"Liberty", &oldIronic{root: unversioned, newest: "1.14", unknown: http.StatusNotAcceptable},
			"agent_ipmitool",
			[]string{newLookup, "POST " + passthru},
			"",
		},
		{
			"Juno with Keystone", &oldIronic{root: unversioned, unknown: http.StatusUnauthorized},
			"agent_ipmitool",
			[]string{newLookup, "POST " + passthru},
			"",
		},
		{
			"Juno without Keystone", &oldIronic{root: unversioned, unknown: http.StatusNotFound},
			"agent_ipmitool",
			[]string{newLookup, "POST " + passthru},
			"",
		},
		{
			"another driver", &oldIronic{root: unversioned, unknown: http.StatusNotFound},
			"../x",
			[]string{newLookup, "POST /v1/drivers/../x/vendor_passthru/lookup"},
			"lookup by vendor_passthru of driver ../x: Error 404: unknown",
		},
		{
			"no driver", &oldIronic{root: `{"default_version":{"id":"v1","version":"1.16"}}`, newest: "1.16"},
			"", nil, "ipa-driver-name",
		},
		{
			"no driver, unknown version", &oldIronic{root: unversioned, unknown: http.StatusNotFound},
			"",
			[]string{newLookup},
			"Error 404: unknown",
		},
		{
			"newer Ironic", &oldIronic{root: `{"default_version":{"version":"1.115"}}`, unknown: http.StatusNotFound},
			"agent_ipmitool",
			[]string{"GET /v1/lookup 1.62"},
			"Error 404: unknown",
		},
		{
			"newer Ironic behind a proxy", &oldIronic{root: "{}", newest: "1.22", unknown: http.StatusNotFound},
			"agent_ipmitool",
			[]string{newLookup},
			"Error 404: unknown",
		},
		{
			"failing Ironic", &oldIronic{root: unversioned, unknown: http.StatusServiceUnavailable},
			"agent_ipmitool",
			[]string{newLookup},
			"Error 503: unknown",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNetwork(t)
				tt.ironic.mac = macOfNode
				net.serve("ironic", tt.ironic)
				c, _ := newClient(t, net, "--api-url=http://ironic:6385", "--driver_name="+tt.driver)
				found, err := c.TryLookup(t.Context(), []string{"52:54:00:00:00:01", macOfNode}, "", "")
				if diff := cmp.Diff(tt.want, tt.ironic.paths()); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				if tt.error != "" {
					if err == nil || !strings.Contains(err.Error(), tt.error) {
						t.Errorf("got %+v, %v, want an error with %q", found, err, tt.error)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if found.Node.UUID() != nodeUUID || found.HeartbeatInterval != 300*time.Second || !found.Passthru {
					t.Errorf("got %+v", found)
				}
			})
		})
	}
}

// A lookup by vendor_passthru contains the UUID that the inspection returned. It is retried, and heartbeats then follow
// the same protocol. A later lookup in a newer Ironic ends it.
//
// Parity: B20 (heartbeat)
func TestPassthruHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := &oldIronic{root: unversioned, newest: "1.6", unknown: http.StatusNotAcceptable}
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic:6385", "--driver_name=agent_ipmitool")
		time.AfterFunc(time.Minute, func() {
			ironic.mu.Lock()
			defer ironic.mu.Unlock()
			ironic.mac = macOfNode
		})
		if _, err := c.Lookup(t.Context(), []string{macOfNode}, nodeUUID, ""); err != nil {
			t.Fatal(err)
		}
		lookups := ironic.calls[len(ironic.calls)-1]
		want := map[string]any{
			"version": "2", "node_uuid": nodeUUID,
			"inventory": map[string]any{"interfaces": []any{map[string]any{"mac_address": macOfNode}}},
		}
		if diff := cmp.Diff(want, lookups.Body); diff != "" {
			t.Errorf("body of the lookup (-want +got):\n%s", diff)
		}
		ironic.calls = nil
		run(t, beats(c, "certificate"), time.Second)
		if len(ironic.calls) != 1 {
			t.Fatalf("got %+v, want one heartbeat", ironic.calls)
		}
		got := ironic.calls[0]
		if want := "/v1/nodes/" + nodeUUID + "/vendor_passthru/heartbeat"; got.Path != want || got.Version != "" {
			t.Errorf("got a heartbeat to %s with version %q, want %s without", got.Path, got.Version, want)
		}
		if diff := cmp.Diff(map[string]any{"agent_url": callback}, got.Body); diff != "" {
			t.Errorf("body of the heartbeat (-want +got):\n%s", diff)
		}
		newer := newFake("1.115")
		if err := net.hosts["ironic"].server.Close(); err != nil {
			t.Error(err)
		}
		net.serve("ironic", newer)
		c.http.CloseIdleConnections()
		if found, err := c.TryLookup(t.Context(), []string{macOfNode}, nodeUUID, ""); err != nil || found.Passthru {
			t.Fatalf("got %+v, %v", found, err)
		}
		run(t, beats(c, ""), time.Second)
		if sent := newer.got("/v1/heartbeat/"); len(sent) != 1 {
			t.Errorf("got heartbeats %+v, want one of the newer protocol", sent)
		}
	})
}
