package sntp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ironroot/netboot/sntp/sntptest"
)

func TestAsk(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		server := sntptest.Start(t, address, sntptest.Reply{Ahead: -40 * 365 * 24 * time.Hour})
		started := time.Now()
		answer, err := Ask(t.Context(), server.Address())
		if err != nil {
			t.Fatal(err)
		}
		off, now := (answer.Offset() + 40*365*24*time.Hour).Abs(), time.Since(answer.Now())-40*365*24*time.Hour
		// However busy the machine is, no error is longer than what has passed.
		took := time.Since(started) + time.Millisecond
		if off > took {
			t.Errorf("%s: got a time that is off by %v, want at most %v", address, off, took)
		}
		if now.Abs() > took {
			t.Errorf("%s: Now is %v off, want at most %v", address, now, took)
		}
	}
}

// Replies of unsynchronised servers and replies to other queries are rejected.
func TestAskRefuses(t *testing.T) {
	for want, reply := range map[string]sntptest.Reply{
		`kiss of death received, code "RATE"`: {Kiss: "RATE"},
		"stratum 16":                          {Stratum: 16},
		"leap indicator 3":                    {Unsynced: true},
		"match request":                       {OtherOrigin: true},
		"no answer":                           {Silent: true},
	} {
		server := sntptest.Start(t, "127.0.0.1:0", reply)
		limit := time.Minute
		if reply.Silent || reply.OtherOrigin { // queries are repeated until the limit
			limit = 5 * time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := Ask(ctx, server.Address())
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), server.Address()) {
			t.Errorf("got error %v, want one that names the server and says %q", err, want)
		}
	}
	server := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Silent: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ask(ctx, server.Address()); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want the context's", err)
	}
}

// A lost query is repeated, but not before its time. On a busy machine, the second query can be late too.
func TestAskAgain(t *testing.T) {
	server := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Lost: 1})
	started := time.Now()
	_, err := Ask(t.Context(), server.Address())
	took, asked := time.Since(started), server.Asked()
	if most := 1 + int(took/firstWait); err != nil || asked < 2 || asked > most {
		t.Errorf("got %v after %d questions in %v, want an answer to a later one, at most %d", err, asked, took, most)
	}
}
