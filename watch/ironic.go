package watch

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
)

// microversion is the API version of the requests: the newest of each Ironic, because the steps of deployment and
// service were added one after the other.
const microversion = "latest"

// ironic reads nodes from Ironic's API.
type ironic struct{ client *gophercloud.ServiceClient }

// detailed is a list of all nodes with all fields. From API version 1.83 on, Ironic leaves out nodes that have a parent
// unless they are requested. In Debian's 1:29.0 each node becomes its own parent when it is changed.
type detailed struct{ withChildren bool }

// ToNodeListQuery implements [nodes.ListOptsBuilder].
func (d detailed) ToNodeListQuery() (string, error) { return d.ToNodeListDetailQuery() }

// ToNodeListDetailQuery implements [nodes.ListOptsBuilder].
func (d detailed) ToNodeListDetailQuery() (string, error) {
	if d.withChildren {
		return "?include_children=true", nil
	}
	return "", nil
}

// Node implements [Source].
func (i ironic) Node(ctx context.Context, name string) (Node, error) {
	n, err := nodes.Get(ctx, i.client, name).Extract()
	switch {
	case gophercloud.ResponseCodeIs(err, http.StatusNotFound):
		return Node{}, ErrNotFound
	case err != nil:
		return Node{}, err
	}
	return newNode(n), nil
}

// Nodes implements [Source].
func (i ironic) Nodes(ctx context.Context) ([]Node, error) {
	pages, err := nodes.ListDetail(i.client, detailed{withChildren: true}).AllPages(ctx)
	if gophercloud.ResponseCodeIs(err, http.StatusNotAcceptable) ||
		gophercloud.ResponseCodeIs(err, http.StatusBadRequest) { // before API version 1.83
		pages, err = nodes.ListDetail(i.client, detailed{}).AllPages(ctx)
	}
	if err != nil {
		return nil, err
	}
	all, err := nodes.ExtractNodes(pages)
	if err != nil {
		return nil, fmt.Errorf("decode list of nodes: %w", err)
	}
	var list []Node
	for _, n := range all {
		list = append(list, newNode(&n))
	}
	return list, nil
}

func newNode(n *nodes.Node) Node {
	node := Node{
		UUID: n.UUID, Name: n.Name, State: n.ProvisionState, Target: n.TargetProvisionState, LastError: n.LastError,
		UpdatedAt: n.ProvisionUpdatedAt,
	}
	for _, step := range []map[string]any{n.CleanStep, n.DeployStep, n.ServiceStep} {
		if name, ok := step["step"].(string); ok && node.Step == "" {
			node.Step = name
		}
	}
	node.Progress, _ = n.DriverInternalInfo["agent_status_message"].(string)
	if heartbeat, ok := n.DriverInternalInfo["agent_last_heartbeat"].(string); ok {
		node.Heartbeat, _ = time.Parse("2006-01-02T15:04:05", heartbeat) // UTC; zero if the form is another one
	}
	return node
}
