package command

import (
	"context"
	"net/netip"
	"testing"
)

// A command knows the connection on which it was requested, also if it continues after the request.
func TestCaller(t *testing.T) {
	want := Caller{Remote: netip.MustParseAddr("192.0.2.1"), Local: netip.MustParseAddr("192.0.2.7")}
	for _, async := range []bool{false, true} {
		var got Caller
		var found bool
		r := NewRegistry(set(Command{Name: "who", Async: async, Run: func(ctx context.Context, _ Params) (any, error) {
			got, found = CallerOf(ctx)
			return nil, nil
		}}), Options{})
		defer r.Close()
		for _, ctx := range []context.Context{WithCaller(t.Context(), want), t.Context()} {
			record, err := r.Execute(ctx, "x.who", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Wait(t.Context(), record.ID); err != nil {
				t.Fatal(err)
			}
			_, has := CallerOf(ctx)
			if found != has || has && got != want {
				t.Errorf("async %v: got %v, %v, want %v, %v", async, got, found, want, has)
			}
		}
	}
}
