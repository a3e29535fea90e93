// Package token keeps the secret that Ironic and the agent share, by the rules of ironic-python-agent's agent token.
// It lives in memory only: a restarted process could never learn it again.
package token

import (
	"crypto/subtle"
	"errors"
	"log/slog"
	"strings"
	"sync"
)

const (
	// masked is what Ironic answers once a token was handed out.
	masked = "******"
	// minLength is the shortest text that is taken for a token.
	minLength = 32
	// maxLength and alphabet describe a token that may replace one that the operator set. Ironic's tokens have 43
	// characters.
	maxLength = 255
	alphabet  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="
)

// Outcome is what a lookup's answer did to the token.
type Outcome int

const (
	// Ignored means that the answer held nothing that could be a token.
	Ignored Outcome = iota
	// Adopted means that the answer's token replaced whatever was known.
	Adopted
	// Kept means that the token was fetched before and is known to the agent.
	Kept
	// Locked means that the token was fetched before and is not known to the agent, which must not serve its API.
	Locked
	// Rejected means that the answer's token did not replace the one that the operator set.
	Rejected
)

func (o Outcome) String() string {
	return [...]string{"ignored", "adopted", "kept", "locked", "rejected"}[o]
}

// Token holds the secret. The zero value knows none. It is safe for concurrent use, prints as "***" and refuses to be
// marshalled.
type Token struct {
	mu     sync.Mutex
	secret string
	given  bool // by the operator, and not replaced since
}

// Adopt takes the token of a lookup's answer. The mask means that the token was fetched before. 32 or more characters
// replace any earlier token of a lookup. A token that the operator set is replaced only if the answer is about the
// node that the agent knows (sameNode), and only by a token that needs no escaping in a URL, like Ironic's.
func (t *Token) Adopt(answer string, sameNode bool) Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(answer) >= minLength && t.given && (!sameNode || !valid(answer)):
		return Rejected
	case len(answer) >= minLength:
		t.secret, t.given = answer, false
		return Adopted
	case answer == masked && t.secret != "":
		return Kept
	case answer == masked:
		return Locked
	}
	return Ignored
}

// valid reports whether an answer has the form of Ironic's tokens, URL-safe base64. A mask, an error text or a
// document does not have it.
func valid(answer string) bool {
	return len(answer) <= maxLength && strings.IndexFunc(answer, func(r rune) bool { return !strings.ContainsRune(alphabet, r) }) < 0
}

// Set sets a token that the operator gave; "" clears it.
func (t *Token) Set(secret string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.secret, t.given = secret, secret != ""
}

// Known reports whether there is a token.
func (t *Token) Known() bool { return t.Reveal() != "" }

// Matches compares in constant time. Without a token nothing matches, not even "".
func (t *Token) Matches(candidate string) bool {
	secret := t.Reveal()
	equal := subtle.ConstantTimeCompare([]byte(secret), []byte(candidate)) == 1
	return secret != "" && equal
}

// Reveal returns the token, "" without one. It is for the heartbeat's body only.
func (t *Token) Reveal() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.secret
}

// String hides the token from fmt.
func (t *Token) String() string { return "***" }

// GoString hides the token from fmt.
func (t *Token) GoString() string { return "***" }

// LogValue hides the token from slog.
func (t *Token) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalJSON refuses.
func (t *Token) MarshalJSON() ([]byte, error) {
	return nil, errors.New("the agent token is not for output")
}
