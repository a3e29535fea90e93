package ironic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
)

// Version is a version of Ironic's API, 1.62 for example.
type Version struct{ Major, Minor int }

var versionText = regexp.MustCompile(`^([0-9]{1,6})\.([0-9]{1,6})$`)

// ParseVersion reads "1.62".
func ParseVersion(text string) (Version, error) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("API version %q is not of the form MAJOR.MINOR", oneLine(text))
	}
	major, _ := strconv.Atoi(m[1]) // the expression leaves digits only, and few of them
	minor, _ := strconv.Atoi(m[2])
	return Version{major, minor}, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// AtLeast reports whether v is other or newer.
func (v Version) AtLeast(other Version) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor)) >= 0
}

// older returns the older one of both.
func (v Version) older(other Version) Version {
	if v.AtLeast(other) {
		return other
	}
	return v
}

// Versions of the API that this client knows.
var (
	fallbackVersion  = Version{1, 31} // where Ironic does not say: the oldest with lookup and heartbeat
	agentVersionAPI  = Version{1, 36} // heartbeats carry agent_version
	agentTokenAPI    = Version{1, 62} // lookups mint the token, heartbeats carry it
	lookupVersion    = agentTokenAPI  // newest a lookup asks for
	verifyCAAPI      = Version{1, 68} // heartbeats carry the certificate of the agent's API
	heartbeatVersion = verifyCAAPI    // newest a heartbeat asks for
)

// AutoTLS is the API version from which on Ironic accepts a certificate that the agent generated.
func AutoTLS() Version { return verifyCAAPI }

// APIVersion returns the newest API version Ironic speaks: the option ironic_api_version, or what its root document
// says. Where that cannot be read it is 1.31, and the next call asks again.
func (c *Client) APIVersion(ctx context.Context) Version {
	v, err := c.apiVersion(ctx)
	if err != nil && ctx.Err() == nil {
		c.log.Warn("Ironic's API version is unknown for now", "err", err, "assumed", v)
	}
	return v
}

// apiVersion is APIVersion with an error where Ironic did not answer at all.
func (c *Client) apiVersion(ctx context.Context) (Version, error) {
	if v := c.knownVersion(); v != nil {
		return *v, nil
	}
	a, err := c.call(ctx, request{method: http.MethodGet, path: "/"})
	if err != nil {
		return fallbackVersion, err
	}
	v, err := c.rootVersion(a)
	if err != nil {
		c.log.Warn("Ironic does not say its API version", "err", err, "assumed", fallbackVersion)
		return fallbackVersion, nil
	}
	c.setVersion(v)
	return v, nil
}

// knownVersion is the operator's version or the one that Ironic said, nil before that.
func (c *Client) knownVersion() *Version {
	if text := c.config.Get().IronicAPIVersion; text != "" {
		v, err := ParseVersion(text)
		if err == nil {
			return &v
		}
		c.log.Warn("option ironic_api_version is passed over", "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.api
}

func (c *Client) setVersion(v Version) {
	c.log.Info("Ironic's API version", "version", v)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.api = &v
}

// learn takes Ironic's version from an answer of its API where its root document did not say, because a proxy hides it for
// example. It reports whether there was anything to learn.
func (c *Client) learn(a answer) bool {
	v, err := ParseVersion(a.newest)
	if err != nil || c.knownVersion() != nil {
		return false
	}
	c.setVersion(v)
	return true
}

// rootVersion reads Ironic's root document.
func (c *Client) rootVersion(a answer) (Version, error) {
	if a.status != http.StatusOK {
		return Version{}, c.statusError(a)
	}
	var document struct {
		Default struct {
			Version string `json:"version"`
		} `json:"default_version"`
	}
	if err := json.Unmarshal(a.body, &document); err != nil {
		return Version{}, fmt.Errorf("root document of Ironic: %w", err)
	}
	v, err := ParseVersion(document.Default.Version)
	if err != nil {
		return Version{}, fmt.Errorf("root document of Ironic: default_version: %w", err)
	}
	return v, nil
}
