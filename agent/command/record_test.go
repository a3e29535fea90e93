package command

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every record stays, in order, with results of any size. Only the latest results are kept unchanged.
//
// Parity: A11 (with bounded results)
func TestResultsAreBounded(t *testing.T) {
	var size int
	r := NewRegistry(set(
		Command{
			Name: "text", Run: func(context.Context, Params) (any, error) { return strings.Repeat("x", size), nil },
		},
		Command{Name: "later", Async: true, Run: func(context.Context, Params) (any, error) {
			return strings.Repeat("x", size), nil
		}},
	), Options{})
	defer r.Close()
	var ids []string
	run := func(name string, bytes int) {
		t.Helper()
		size = bytes
		record, err := r.Execute(context.Background(), "x."+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		final, err := r.Wait(context.Background(), record.ID)
		if err != nil || final.Status != Succeeded || len(final.Result) < bytes {
			t.Fatalf("%s of %d bytes: got %s, %d bytes and %v, want all of them",
				name, bytes, final.Status, len(final.Result), err)
		}
		ids = append(ids, record.ID)
	}
	run("text", 10<<20)
	run("text", 10)
	run("later", 1<<20)
	run("text", 10)
	if got, _ := r.Get(ids[2]); len(got.Result) < 1<<20 {
		t.Errorf("latest large result: got %.80s, want it kept", got.Result)
	}
	run("text", largeResult)
	for range 100 {
		run("text", largeResult-100)
	}
	records := r.List()
	if len(records) != len(ids) {
		t.Fatalf("got %d records, want %d", len(records), len(ids))
	}
	var total int
	for i, record := range records {
		if record.ID != ids[i] || record.Status != Succeeded {
			t.Errorf("record %d: got %s %s, want %s", i, record.ID, record.Status, ids[i])
		}
		total += len(record.Result)
	}
	if limit := maxResults + len(ids)*maxNote; total > limit {
		t.Errorf("all results: got %d bytes, want at most %d", total, limit)
	}
	for i, want := range map[int]string{
		0: fmt.Sprintf(`{"note":"result of %d bytes dropped to limit memory"}`, 10<<20+len(`{"result":""}`)),
		1: `{"result":"xxxxxxxxxx"}`,
		2: `{"note":"result of`,
	} {
		if got := string(records[i].Result); !strings.HasPrefix(got, want) {
			t.Errorf("result %d: got %.100s, want %s", i, got, want)
		}
	}
}

// Of 10,000 commands, the latest 1,000 stay in the list, in order. Those before cannot be found any more.
//
// Parity: A11 (months of commands)
func TestRecordsAreBounded(t *testing.T) {
	r := NewRegistry(set(Command{Name: "nothing", Run: func(context.Context, Params) (any, error) { return nil, nil }}),
		Options{})
	defer r.Close()
	var ids []string
	for range 10_000 {
		record, err := r.Execute(t.Context(), "x.nothing", nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, record.ID)
	}
	var got []string
	for _, record := range r.List() {
		got = append(got, record.ID)
	}
	kept := ids[len(ids)-maxRecords:]
	if diff := cmp.Diff(kept, got); diff != "" || maxRecords != 1000 {
		t.Errorf("records differ (-want +got):\n%s", diff)
	}
	if _, ok := r.Get(ids[len(ids)-maxRecords-1]); ok {
		t.Error("got a record before the latest 1,000")
	}
	if _, err := r.Wait(t.Context(), kept[0]); err != nil {
		t.Errorf("oldest record in the list: %v", err)
	}
}
