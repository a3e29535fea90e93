package token

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"strings"
	"sync"
)

const (
	// masked is the token in lookup responses after the first one.
	masked = "******"
	// minLength is the minimum length of a token.
	minLength = 32
	// maxLength and alphabet limit a token that can replace one that the operator set. Ironic's tokens have 43
	// characters.
	maxLength = 255
	alphabet  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="
)

// Outcome is the effect of a lookup response on the token.
type Outcome int

const (
	// Ignored means that the response contained no token.
	Ignored Outcome = iota
	// Adopted means that the token of the response replaced any earlier one.
	Adopted
	// Kept means that the token was issued before, and that the agent has it.
	Kept
	// Locked means that the token was issued before to another agent. This agent must not serve its API.
	Locked
	// Rejected means that the token of the response did not replace the one that the operator set.
	Rejected
)

func (o Outcome) String() string {
	return [...]string{"ignored", "adopted", "kept", "locked", "rejected"}[o]
}

// Token stores the token. The zero value has none. It is safe for concurrent use, prints as "***" and cannot be
// marshalled.
type Token struct {
	mu      sync.Mutex
	secret  string
	preset  bool // set by the operator and not replaced since
	waived  bool // requests need none while there is none
	pending bool // matches nothing before Ironic accepts it

	decided chan struct{} // closed when Ironic accepts or refuses a pending token, or it is replaced; nil if none waits
}

// Adopt applies the token of a lookup response. The mask means that the token was issued before. 32 or more characters
// replace any earlier token of a lookup. A token that the operator set is replaced only if the response is about the
// known node (sameNode), and only by a token that needs no escaping in a URL, like Ironic's.
func (t *Token) Adopt(answer string, sameNode bool) Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(answer) >= minLength && t.preset && (!sameNode || !valid(answer)):
		return Rejected
	case len(answer) >= minLength:
		t.replace(answer, false, false)
		return Adopted
	case answer == masked && t.secret != "":
		return Kept
	case answer == masked:
		return Locked
	}
	return Ignored
}

// valid reports whether a token has the form of Ironic's, URL-safe base64. A mask, an error text or a document does
// not.
func valid(answer string) bool {
	return len(answer) <= maxLength &&
		strings.IndexFunc(answer, func(r rune) bool { return !strings.ContainsRune(alphabet, r) }) < 0
}

// Set sets the operator's token; "" clears it.
func (t *Token) Set(secret string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replace(secret, secret != "", false)
}

// SetUnverified sets a token from a source that cannot be trusted; "" clears it. It matches nothing before Ironic has
// accepted it, and any token of a lookup replaces it.
func (t *Token) SetUnverified(secret string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replace(secret, false, secret != "")
}

func (t *Token) replace(secret string, preset, pending bool) {
	t.secret, t.preset, t.pending = secret, preset, pending
	t.wake()
}

// wake lets all calls of Verify look again.
func (t *Token) wake() {
	if t.decided != nil {
		close(t.decided)
		t.decided = nil
	}
}

// Accepted reports that Ironic has verified a token, which is now used if it is still the current one.
func (t *Token) Accepted(secret string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending && subtle.ConstantTimeCompare([]byte(secret), []byte(t.secret)) == 1 {
		t.pending = false
		t.wake()
	}
}

// Refused reports that Ironic has not accepted the current token. It ends the waits of Verify.
func (t *Token) Refused() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wake()
}

// Waive sets whether requests without a token match while there is none. It is set only after a lookup by
// vendor_passthru, that is for an Ironic before API version 1.22, which has no tokens.
func (t *Token) Waive(waived bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waived = waived
}

// Known reports whether there is a token.
func (t *Token) Known() bool { return t.Reveal() != "" }

// Matches compares candidate with the token in constant time. Without a token it returns false, also for "", unless the
// token is waived. It returns false for a token that Ironic has not accepted yet.
func (t *Token) Matches(candidate string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.equals(candidate) && !t.pending
}

// Pending reports whether candidate is a token that Ironic has not accepted yet.
func (t *Token) Pending(candidate string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending && t.equals(candidate)
}

// Verify is like Matches, but waits for Ironic's decision about a pending token: a conductor can send a command before
// it responds to the heartbeat that contains the token. If ctx ends first, Verify returns false.
func (t *Token) Verify(ctx context.Context, candidate string) bool {
	t.mu.Lock()
	if !t.equals(candidate) || !t.pending {
		defer t.mu.Unlock()
		return t.equals(candidate)
	}
	if t.decided == nil {
		t.decided = make(chan struct{})
	}
	decided := t.decided
	t.mu.Unlock()
	select {
	case <-decided:
		return t.Matches(candidate)
	case <-ctx.Done():
		return false
	}
}

// equals compares candidate with the token. The caller holds the lock.
func (t *Token) equals(candidate string) bool {
	equal := subtle.ConstantTimeCompare([]byte(t.secret), []byte(candidate)) == 1
	return equal && (t.secret != "" || t.waived)
}

// Reveal returns the token, "" without one. It is for the body of heartbeats and for redaction. Callers must not log
// it.
func (t *Token) Reveal() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.secret
}

// String returns a mask for fmt.
func (t *Token) String() string { return "***" }

// GoString returns a mask for fmt.
func (t *Token) GoString() string { return "***" }

// LogValue returns a mask for slog.
func (t *Token) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalJSON returns an error.
func (t *Token) MarshalJSON() ([]byte, error) {
	return nil, errors.New("agent token cannot be marshalled")
}
