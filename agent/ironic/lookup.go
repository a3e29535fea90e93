package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/agent/token"
)

// Answer is what a lookup found.
type Answer struct {
	Node              *node.Node
	Config            LookupConfig
	HeartbeatInterval time.Duration
}

// LookupConfig is the answer's object config by key; a legacy answer has none.
type LookupConfig map[string]json.RawMessage

// LookupError says that no lookup succeeded within the option lookup_timeout.
type LookupError struct {
	Tries int
	After time.Duration
	Err   error // of the last try
}

func (e *LookupError) Error() string {
	return fmt.Sprintf("lookup of this node failed %d times in %v: %v", e.Tries, e.After.Round(time.Second), e.Err)
}

func (e *LookupError) Unwrap() error { return e.Err }

// Lookup asks Ironic which node this machine is, by the MAC addresses of its interfaces and by nodeUUID where it is
// known. It tries again until the option lookup_timeout has passed and then returns a *LookupError.
func (c *Client) Lookup(ctx context.Context, macs []string, nodeUUID string) (*Answer, error) {
	return nil, errors.New("not implemented")
}

// Apply puts what the conductor answered into place: the node, the token and the configuration. Values that make no
// sense are logged and passed over; they never fail a lookup.
func (a *Answer) Apply(live *config.Live, cache *node.Cache, tok *token.Token, log *slog.Logger) token.Outcome {
	return token.Ignored
}
