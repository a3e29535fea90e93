package token

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
)

const (
	own    = "the-token-that-was-agreed-upon-before-43-cha"
	minted = "gdt9B6gPWZk2jYcAkz4tZK2B9xqXDXAhUuYwWfs5Nq0"
)

// Parity: B9
func TestAdopt(t *testing.T) {
	for _, tt := range []struct {
		name, before, answer string
		want                 Outcome
		after                string
	}{
		{"minted", "", minted, Adopted, minted},
		{"minted replaces", own, minted, Adopted, minted},
		{"exactly 32", "", minted[:32], Adopted, minted[:32]},
		{"masked with own", own, "******", Kept, own},
		{"masked without own", "", "******", Locked, ""},
		{"too short", own, minted[:31], Ignored, own},
		{"empty", "", "", Ignored, ""},
		{"almost masked", own, "*****", Ignored, own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tok Token
			tok.Set(tt.before)
			if got := tok.Adopt(tt.answer, true); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if got := tok.Reveal(); got != tt.after {
				t.Errorf("token: got %q, want %q", got, tt.after)
			}
			if got, want := tok.Known(), tt.after != ""; got != want {
				t.Errorf("Known: got %v, want %v", got, want)
			}
		})
	}
}

// A token that the operator set is replaced only by a valid token for the node; a token of a lookup is replaced by
// any.
func TestAdoptInPlaceOfGivenToken(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		sameNode     bool
		want         Outcome
	}{
		{"valid", minted, true, Adopted},
		{"of another node", minted, false, Rejected},
		{"long mask", strings.Repeat("*", 40), true, Rejected},
		{"text", "no token was minted for this node yet", true, Rejected},
		{"line feed", minted + "\n", true, Rejected},
		{"too long", strings.Repeat("x", 256), true, Rejected},
		{"mask", "******", false, Kept},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tok Token
			tok.Set(own)
			if got := tok.Adopt(tt.answer, tt.sameNode); got != tt.want {
				t.Errorf("given: got %v, want %v", got, tt.want)
			}
			if tt.want != Adopted && tok.Reveal() != own {
				t.Errorf("given: got token %q, want the one that was given", tok.Reveal())
			}
			var fetched Token
			fetched.Adopt(own, true)
			want := tt.want
			if want == Rejected {
				want = Adopted
			}
			if got := fetched.Adopt(tt.answer, tt.sameNode); got != want {
				t.Errorf("of a lookup: got %v, want %v", got, want)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	var tok Token
	if tok.Matches("") || tok.Matches(minted) {
		t.Error("something matches where no token is known")
	}
	tok.Set(minted)
	for candidate, want := range map[string]bool{
		minted: true, "": false, minted[:42]: false, minted + "x": false, own: false,
	} {
		if got := tok.Matches(candidate); got != want {
			t.Errorf("Matches(%q): got %v, want %v", candidate, got, want)
		}
	}
}

func TestPrintingHidesTheToken(t *testing.T) {
	var tok Token
	tok.Set(minted)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "token", &tok)
	for _, got := range []string{fmt.Sprint(&tok), fmt.Sprintf("%v %+v %#v %s", &tok, &tok, &tok, &tok), log.String()} {
		if strings.Contains(got, minted) || !strings.Contains(got, "***") {
			t.Errorf("got %q, want ***", got)
		}
	}
	if out, err := tok.MarshalJSON(); err == nil || strings.Contains(err.Error(), minted) {
		t.Errorf("MarshalJSON: got %s and error %v, want an error without the token", out, err)
	}
	if out, err := json.Marshal(&tok); err == nil {
		t.Errorf("json.Marshal: got %s, want an error", out)
	}
}

// Without a token, requests without one match only while it is waived.
func TestWaive(t *testing.T) {
	var tok Token
	tok.Waive(true)
	if !tok.Matches("") || tok.Matches(minted) {
		t.Error("waived: a request without a token must match, one with any must not")
	}
	tok.Set(own)
	if tok.Matches("") || !tok.Matches(own) {
		t.Error("waived, but set: only the token must match")
	}
	tok.Set("")
	tok.Waive(false)
	if tok.Matches("") {
		t.Error("no longer waived: a request without a token matches")
	}
}

// A token of an untrusted source matches once Ironic has accepted this token, and any token of a lookup replaces it.
func TestUnverifiedTokenMatchesOnceAccepted(t *testing.T) {
	var tok Token
	tok.SetUnverified(own)
	if !tok.Known() || tok.Matches(own) || !tok.Pending(own) || tok.Pending(minted) {
		t.Error("before Ironic accepts it: the token matches, or is not pending")
	}
	if got := tok.Adopt(masked, true); got != Kept || tok.Matches(own) {
		t.Errorf("masked answer: got %v, matches %t, want kept, and no match", got, tok.Matches(own))
	}
	tok.Accepted(minted)
	if tok.Matches(own) {
		t.Error("the token matches after another one was accepted")
	}
	if tok.Accepted(own); !tok.Matches(own) || tok.Pending(own) || tok.Matches(minted) {
		t.Error("accepted: the token does not match, or is pending")
	}
	tok.SetUnverified(own)
	if got := tok.Adopt(minted, false); got != Adopted || !tok.Matches(minted) || tok.Matches(own) {
		t.Errorf("token of a lookup: got %v, want it adopted at once", got)
	}
	tok.Set(own)
	if tok.Accepted(own); !tok.Matches(own) {
		t.Error("a trusted token does not match")
	}
}

// A request waits for Ironic's decision about the token, and no longer.
func TestVerifyWaitsForDecision(t *testing.T) {
	for name, tt := range map[string]struct {
		decide func(*Token, func())
		want   bool
	}{
		"accepted": {func(tok *Token, _ func()) { tok.Accepted(own) }, true},
		"refused":  {func(tok *Token, _ func()) { tok.Refused() }, false},
		"replaced": {func(tok *Token, _ func()) { tok.Adopt(minted, true) }, false},
		"canceled": {func(_ *Token, cancel func()) { cancel() }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var tok Token
			tok.SetUnverified(own)
			if tok.Verify(t.Context(), minted) {
				t.Errorf("%s: another token was verified", name)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := make(chan bool)
			for range 2 {
				go func() { got <- tok.Verify(ctx, own) }()
			}
			synctest.Wait() // both wait for the decision
			tt.decide(&tok, cancel)
			for range 2 {
				if verified := <-got; verified != tt.want {
					t.Errorf("%s: got %t, want %t", name, verified, tt.want)
				}
			}
		})
	}
}
