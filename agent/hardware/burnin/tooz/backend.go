package tooz

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ironroot/internal/hostname"
)

// Backend describes the servers of ZooKeeper and the credentials to connect to them.
type Backend struct {
	Hosts          []string // each with its port
	user, password string   // "": none
	session        time.Duration
}

const (
	defaultPort    = "2181"
	defaultSession = 10 * time.Second // as with tooz
	maxSession     = time.Hour
)

// errUser does not contain the user, because that can be a part of a password.
var errUser = errors.New("URL of the backend: got an invalid user, want USER:PASSWORD, percent-encoded")

// ParseURL parses the URL of a backend: zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][?OPTION=VALUE].
// Errors do not contain the password. Backends and options that are not supported are errors that name them.
func ParseURL(text string) (*Backend, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		// The text may contain a password.
		return nil, errors.New("got no URL of a backend, want zookeeper://HOST:PORT")
	}
	if name := strings.ToLower(scheme); name != "zookeeper" && name != "kazoo" {
		return nil, fmt.Errorf("backend %q is not supported, want zookeeper", scheme)
	}
	b := &Backend{session: defaultSession}
	// In an incomplete encoding, the password ends at one of these characters, and the rest of it is no host.
	if at := strings.IndexAny(rest, "/?#"); at >= 0 && strings.Contains(rest[at:], "@") {
		return nil, errUser
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	hosts, _, _ := strings.Cut(rest, "/")
	if user, list, found := strings.Cut(hosts, "@"); found {
		if err := b.setUser(user); err != nil || strings.Contains(list, "@") {
			return nil, errUser
		}
		hosts = list
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("URL of the backend: options: %w", err)
	}
	if err := b.setOptions(options); err != nil {
		return nil, fmt.Errorf("URL of the backend: %w", err)
	}
	for _, list := range append([]string{hosts}, options["hosts"]...) {
		if list == "" {
			continue
		}
		for host := range strings.SplitSeq(list, ",") {
			name, port, err := hostname.ParsePort(host, defaultPort)
			if err != nil {
				return nil, fmt.Errorf("URL of the backend: %w", err)
			}
			b.Hosts = append(b.Hosts, net.JoinHostPort(name, port))
		}
	}
	if len(b.Hosts) == 0 {
		return nil, errors.New("URL of the backend: got no host")
	}
	return b, nil
}

// setUser sets user and password.
func (b *Backend) setUser(text string) (err error) {
	user, password, _ := strings.Cut(text, ":")
	if b.user, err = url.PathUnescape(user); err != nil {
		return err
	}
	if b.password, err = url.PathUnescape(password); err != nil {
		return err
	}
	if b.user == "" || b.password == "" {
		return errors.New("user or password is missing")
	}
	return nil
}

// setOptions applies the options of tooz's driver for ZooKeeper.
func (b *Backend) setOptions(options url.Values) error {
	for name, values := range options {
		switch name {
		case "hosts", "randomize_hosts", "handler": // the order is always random, and handlers are Python's
		case "timeout":
			seconds, err := strconv.ParseFloat(values[len(values)-1], 64)
			session := time.Duration(seconds * float64(time.Second))
			if err != nil || session < time.Second || session > maxSession {
				return fmt.Errorf("option timeout: got %q, want seconds from 1 to %.0f",
					values[len(values)-1], maxSession.Seconds())
			}
			b.session = session
		default:
			return fmt.Errorf("option %s is not supported", name)
		}
	}
	return nil
}

// CheckGroup returns an error unless a text can be the name of a group.
func CheckGroup(name string) error {
	printable := !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' })
	if name == "" || !printable || slices.Contains([]string{".", "..", locks}, name) {
		return fmt.Errorf("got group %q, want a name of ASCII characters without spaces and slashes", name)
	}
	return nil
}
