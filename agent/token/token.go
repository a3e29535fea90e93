// Package token keeps the secret that Ironic and the agent share, by the rules of ironic-python-agent's agent token.
// It lives in memory only: a restarted process could never learn it again.
package token

import (
	"crypto/subtle"
	"errors"
	"log/slog"
	"sync"
)

const (
	// masked is what Ironic answers once a token was handed out.
	masked = "******"
	// minLength is the shortest text that is taken for a token.
	minLength = 32
)

// Outcome says what a lookup's answer did to the token.
type Outcome int

const (
	// Ignored says that the answer held nothing that could be a token.
	Ignored Outcome = iota
	// Adopted says that the answer's token replaced whatever was known.
	Adopted
	// Kept says that somebody fetched the token before, and it is the one known here.
	Kept
	// Locked says that somebody fetched the token before and it is not known here. The agent must not serve its API.
	Locked
)

func (o Outcome) String() string {
	return [...]string{"ignored", "adopted", "kept", "locked"}[o]
}

// Token holds the secret. The zero value knows none. It is safe for concurrent use, prints as "***" and refuses to be
// marshalled.
type Token struct {
	mu     sync.Mutex
	secret string
}

// Adopt takes the token of a lookup's answer: 32 or more characters replace any earlier token; the mask means that
// the token was fetched before.
func (t *Token) Adopt(answer string) Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(answer) >= minLength:
		t.secret = answer
		return Adopted
	case answer == masked && t.secret != "":
		return Kept
	case answer == masked:
		return Locked
	}
	return Ignored
}

// Set puts in a token that was shared beforehand; "" forgets it.
func (t *Token) Set(secret string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.secret = secret
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
