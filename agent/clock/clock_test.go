package clock

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"ironroot/netboot/sntp/sntptest"
)

func TestCheck(t *testing.T) {
	for text, good := range map[string]bool{
		"1970-01-01T00:00:00Z": false, "2010-05-04T03:02:01Z": false, "2025-12-31T23:59:59Z": false,
		"2026-01-01T00:00:00Z": true, "2036-02-08T00:00:00Z": true, "2099-12-31T23:59:59Z": true,
		"2100-01-01T00:00:00Z": false,
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(at); (err == nil) != good {
			t.Errorf("%s: got %v, want it to be plausible: %v", text, err, good)
		}
	}
}

// All servers are queried concurrently. The first plausible answer is used, failures are logged.
func TestAsk(t *testing.T) {
	const address = "127.0.0.1:0"
	good := sntptest.Start(t, address, sntptest.Reply{Silent: true})
	reply := func(r sntptest.Reply) *sntptest.Server { return sntptest.Start(t, address, r) }
	bad := map[*sntptest.Server]string{
		reply(sntptest.Reply{At: time.Unix(1, 0)}):                                   "1970-01-01",
		reply(sntptest.Reply{At: time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)}):       "2010-01-01",
		reply(sntptest.Reply{At: time.Date(2100, 1, 1, 0, 0, 1, 0, time.UTC)}):       "2100-01-01",
		reply(sntptest.Reply{Kiss: "DENY"}):                                          "DENY",
		reply(sntptest.Reply{Stratum: 16}):                                           "stratum 16",
		reply(sntptest.Reply{Unsynced: true}):                                        "leap indicator",
		reply(sntptest.Reply{OtherOrigin: true, At: time.Now().Add(24 * time.Hour)}): "",
	}
	servers := []string{good.Address()}
	for server := range bad {
		servers = append(servers, server.Address())
	}
	log := lines{written: make(chan struct{}, len(servers))}
	go func() { // the good one, asked first, answers only when the others have: all are asked at the same time
		for range len(bad) - 1 {
			<-log.written
		}
		good.Set(sntptest.Reply{Ahead: time.Hour})
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer, server, err := Ask(ctx, func() []string { return servers }, never, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil || server != good.Address() || answer.Offset().Round(time.Minute) != time.Hour {
		t.Errorf("got %v from %s and %v, want an hour's offset from %s", answer.Offset(), server, err, good.Address())
	}
	for server, why := range bad {
		if why != "" && !strings.Contains(log.String(), server.Address()) || !strings.Contains(log.String(), why) {
			t.Errorf("the log does not say %s of server %s:\n%s", why, server.Address(), log.String())
		}
	}
}

// lines is a log that sends each line to a channel.
type lines struct {
	bytes.Buffer
	written chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.written <- struct{}{}
	return l.Buffer.Write(p)
}

// The wait for silent servers ends with the context. The error names them.
func TestAskSilence(t *testing.T) {
	silent := sntptest.Start(t, "[::1]:0", sntptest.Reply{Silent: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var log bytes.Buffer
	_, _, err := Ask(ctx, func() []string { return []string{silent.Address(), "name with spaces.invalid"} }, never,
		slog.New(slog.NewTextHandler(&log, nil)))
	if err == nil || !strings.Contains(err.Error(), silent.Address()) ||
		!strings.Contains(log.String(), silent.Address()) {
		t.Errorf("got %v and the log\n%s, want both to name the server", err, log.String())
	}
}

func never() <-chan struct{} { return nil }

// The error of a server that sends an implausible time contains the server and the time.
func TestAskImpossibleTime(t *testing.T) {
	wrong := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{At: time.Date(2010, 5, 4, 3, 2, 1, 0, time.UTC)}).Address()
	_, _, err := Ask(t.Context(), func() []string { return []string{wrong} }, never, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), wrong) || !strings.Contains(err.Error(), "2010-05-04") {
		t.Errorf("got error %v, want %s and its time in it", err, wrong)
	}
}

func TestAskByName(t *testing.T) {
	_, port, _ := net.SplitHostPort(sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{}).Address())
	name := net.JoinHostPort("localhost", port)
	_, server, err := Ask(t.Context(), func() []string { return []string{name} }, never, slog.New(slog.DiscardHandler))
	if err != nil || server != name {
		t.Errorf("got server %q and error %v, want %s", server, err, name)
	}
}

// A server that the network announces while others are queried is queried, too.
func TestAskLater(t *testing.T) {
	silent := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Silent: true}).Address()
	late := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Ahead: time.Hour}).Address()
	named, looks := []string{silent}, 0
	changed := func() <-chan struct{} {
		if looks++; looks > 2 {
			return nil
		}
		now := make(chan struct{})
		close(now)
		return now
	}
	answer, server, err := Ask(t.Context(), func() []string {
		if looks == 2 {
			named = []string{late, silent}
		}
		return named
	}, changed, slog.New(slog.DiscardHandler))
	if err != nil || server != late || answer.Offset().Round(time.Minute) != time.Hour {
		t.Errorf("got %v from %s and %v, want an hour from %s", answer.Offset(), server, err, late)
	}
}
