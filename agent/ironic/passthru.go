package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

// payloadVersion is the version of the body of a lookup by vendor_passthru.
const payloadVersion = "2"

// errNoDriver explains why the node cannot be looked up in an old Ironic.
var errNoDriver = errors.New("API version is older than 1.22, whose lookup needs the node's driver (ipa-driver-name)")

// passthruLookup looks the node up by the vendor_passthru of the configured driver, the only lookup of an Ironic before
// API version 1.22. Of the inventory, Ironic reads the MAC addresses only. Such an Ironic has no token.
func (c *Client) passthruLookup(ctx context.Context, macs []string, nodeUUID string) (*Answer, error) {
	driver := c.config.Get().DriverName
	if driver == "" {
		return nil, errNoDriver
	}
	interfaces := []map[string]string{}
	for _, mac := range macs {
		interfaces = append(interfaces, map[string]string{"mac_address": mac})
	}
	fields := map[string]any{"version": payloadVersion, "inventory": map[string]any{"interfaces": interfaces}}
	if nodeUUID != "" {
		fields["node_uuid"] = nodeUUID
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	a, err := c.call(ctx, request{
		method: http.MethodPost, path: "/v1/drivers/" + url.PathEscape(driver) + "/vendor_passthru/lookup", body: body,
	})
	if err == nil && a.status != http.StatusOK {
		err = c.statusError(a)
	}
	if err != nil {
		return nil, fmt.Errorf("lookup by vendor_passthru of driver %s: %w", driver, err)
	}
	found, err := parseAnswer(a.body)
	if err != nil {
		return nil, err
	}
	found.Passthru = true
	return found, nil
}

// lacksLookup reports whether a failed lookup shows that Ironic has only the vendor_passthru of its drivers: it knows
// neither the path nor the version, or requires credentials for paths that it does not know. An Ironic that names its
// newest version decides by that.
func (c *Client) lacksLookup(a answer, err error) bool {
	status := (*StatusError)(nil)
	if !errors.As(err, &status) || c.config.Get().DriverName == "" || c.knownVersion() != nil {
		return false
	}
	if newest, err := ParseVersion(a.newest); err == nil {
		return !newest.AtLeast(ramdiskAPI)
	}
	legacy := []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusNotAcceptable}
	return slices.Contains(legacy, status.Status)
}

// passthruHeartbeat sends a heartbeat to an Ironic that was asked by vendor_passthru.
func (h *Heartbeater) passthruHeartbeat(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{"agent_url": h.Agent.CallbackURL()})
	if err != nil {
		return err
	}
	return h.deliver(ctx, request{
		method: http.MethodPost, path: "/v1/nodes/" + url.PathEscape(h.NodeUUID) + "/vendor_passthru/heartbeat",
		body: body,
	})
}
