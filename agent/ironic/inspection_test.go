package ironic

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Parity: H2, H12
func TestPostInspection(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		path string
	}{
		{"Ironic's own callback", []string{"--api-url=http://dead,http://ironic/"}, "/v1/continue_inspection"},
		{
			"callback URL as it is",
			[]string{"--inspection-callback-url=http://dead/x,http://ironic/v1/continue/", "--api-url=http://dead"},
			"/v1/continue/",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNetwork(t)
				ironic := newFake("1.115")
				net.serve("ironic", ironic)
				c, _ := newClient(t, net, tt.args...)
				uuid, err := c.PostInspection(t.Context(),
					[]byte(`{"error":null,"inventory":{"a":"\u003cb\u003e"}}`))
				if err != nil || uuid != nodeUUID {
					t.Fatalf("got %q, %v, want %s", uuid, err, nodeUUID)
				}
				if len(ironic.calls) != 2 || ironic.calls[0].Path != "/" || ironic.calls[0].Version != "" {
					t.Fatalf("got calls %+v, want one probe and one post, but no request for the version", ironic.calls)
				}
				got := ironic.calls[1]
				if got.Method != http.MethodPost || got.Path != tt.path || got.Version != "" {
					t.Errorf("got %s %s with version %q, want POST %s without",
						got.Method, got.Path, got.Version, tt.path)
				}
				want := map[string]any{"inventory": map[string]any{"a": "<b>"}, "error": nil}
				if diff := cmp.Diff(want, got.Body); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Parity: H3
func TestPostInspectionRetries(t *testing.T) {
	all := []time.Duration{5 * time.Second, 5 * time.Second, 6 * time.Second, 12 * time.Second}
	for _, tt := range []struct {
		name     string
		statuses []int // the last one repeats
		waits    []time.Duration
		status   int // of the error, 0 for success
	}{
		{"endless trouble", []int{500}, all, 500},
		{"locked forever", []int{409}, all, 409},
		{"trouble that passes", []int{503, 409, 202}, all[:2], 0},
		{"last try succeeds", []int{503, 503, 503, 503, 202}, all, 0},
		{"refused", []int{404}, nil, 404},
		{"refused after trouble", []int{500, 400}, all[:1], 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNetwork(t)
				ironic := newFake("1.115")
				ironic.inspection = func(n int) (int, string) {
					status := tt.statuses[min(n, len(tt.statuses))-1]
					return status, `{"uuid":"` + nodeUUID + `","error_message":{"faultstring":"no"}}`
				}
				net.serve("ironic", ironic)
				c, _ := newClient(t, net, "--api-url=http://ironic")
				uuid, err := c.PostInspection(t.Context(), nil)
				if got := statusOf(err); got != tt.status || (err == nil) != (uuid == nodeUUID) {
					t.Errorf("got %q, %v, want status %d", uuid, err, tt.status)
				}
				if diff := cmp.Diff(tt.waits, waits(ironic.got("/v1/continue_inspection"))); diff != "" {
					t.Errorf("waits (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestPostInspectionTriesAllURLsFiveTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		c, _ := newClient(t, net, "--api-url=http://a,http://b")
		if _, err := c.PostInspection(t.Context(), nil); err == nil {
			t.Error("got no error")
		}
		if diff := cmp.Diff([]string{"a", "b", "a", "b", "a", "b", "a", "b", "a", "b"}, net.dials); diff != "" {
			t.Errorf("connections (-want +got):\n%s", diff)
		}
	})
}

func TestPostInspectionAnswers(t *testing.T) {
	for body, want := range map[string]struct {
		uuid string
		bad  bool
	}{
		`{}`: {}, `{"uuid":null}`: {}, `{"uuid":"x"}`: {uuid: "x"}, `<html>`: {bad: true}, ``: {bad: true},
		`[]`: {bad: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork(t)
			ironic := newFake("1.115")
			ironic.inspection = func(int) (int, string) { return 202, body }
			net.serve("ironic", ironic)
			c, _ := newClient(t, net, "--api-url=http://ironic")
			uuid, err := c.PostInspection(t.Context(), nil)
			if uuid != want.uuid || errors.Is(err, errResponse) != want.bad || (err != nil) != want.bad {
				t.Errorf("%q: got %q, %v, want %+v", body, uuid, err, want)
			}
			if got := len(ironic.calls); got != 1 {
				t.Errorf("%q: got %d calls, want 1", body, got)
			}
		})
	}
}

func TestPostInspectionEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(t)
		ironic := newFake("1.115")
		ironic.inspection = func(int) (int, string) { return 503, "" }
		net.serve("ironic", ironic)
		c, _ := newClient(t, net, "--api-url=http://ironic")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if uuid, err := c.PostInspection(ctx, nil); uuid != "" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %q, %v, want the context's error", uuid, err)
		}
	})
}
