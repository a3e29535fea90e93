package containers

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/test/disktest"
	"ironroot/storage/block"
	"ironroot/storage/image/fetch"
	"ironroot/storage/sysfs"
)

// newRunner returns a runner on a machine with four disks: one is read-only, and one is reached over a network.
func newRunner(t *testing.T) *Runner {
	t.Helper()
	system := sysfs.Root{Path: t.TempDir()}
	for _, name := range []string{"sda", "sdb", "sdc", "sde"} {
		device := system.Sys("devices/pci0000:00/ata1/host0/" + name)
		if err := errors.Join(os.MkdirAll(device, 0o755), os.MkdirAll(system.Sys("class/block"), 0o755),
			os.Symlink(device, system.Sys("class/block/"+name)),
			os.WriteFile(filepath.Join(device, "size"), []byte("8388608\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return &Runner{
		System: system, Log: slog.New(slog.DiscardHandler),
		Fetcher: fetcher(func(bool) (fetch.Options, error) { return fetch.Options{Client: &http.Client{}}, nil }),
		Disks: disktest.Lister(func(context.Context) ([]block.Device, error) {
			return []block.Device{
				{Name: "sda", Path: "/dev/sda", Type: "disk", Serial: "A", Serials: []string{"A"}},
				{Name: "sdb", Path: "/dev/sdb", Type: "disk", Serial: "B", Serials: []string{"B"}},
				{Name: "sdc", Path: "/dev/sdc", Type: "disk", Serial: "C", Serials: []string{"C"}, ReadOnly: true},
				{Name: "sde", Path: "/dev/sde", Type: "disk", Serial: "E", Serials: []string{"E"}, Network: "iscsi"},
			}, nil
		}),
		Board: (*status.Board)(nil),
	}
}

// A program sees no disk unless the options ask for it, and never one that the node protects.
func TestRunnerDisks(t *testing.T) {
	protected, err := node.FromJSON([]byte(`{"uuid": "u", "properties": {"skip_block_devices": [{"serial": "a"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		node *node.Node
		run  RunOptions
		want []string
		err  string
	}{
		"none":             {run: RunOptions{}},
		"all":              {run: RunOptions{AllDisks: true}, want: []string{"/dev/sda", "/dev/sdb"}},
		"all but one":      {node: protected, run: RunOptions{AllDisks: true}, want: []string{"/dev/sdb"}},
		"one":              {run: RunOptions{Disks: []string{"/dev/sdb"}}, want: []string{"/dev/sdb"}},
		"one of a network": {run: RunOptions{Disks: []string{"/dev/sde"}}, want: []string{"/dev/sde"}},
		"a protected one":  {node: protected, run: RunOptions{Disks: []string{"/dev/sda"}}, err: "sda is protected"},
		"a read-only one":  {run: RunOptions{Disks: []string{"/dev/sdb", "/dev/sdc"}}, err: "/dev/sdc is protected"},
		"an unknown one":   {run: RunOptions{Disks: []string{"/dev/sdd"}}, err: "/dev/sdd is not a disk"},
		"no disk at all":   {run: RunOptions{Disks: []string{"/dev/mem"}}, err: "/dev/mem is not a disk"},
		"without a device": {node: protected, run: RunOptions{}},
	} {
		r := newRunner(t)
		got, err := r.disks(t.Context(), Job{Node: tt.node, Run: tt.run})
		if tt.err != "" {
			if kind(t, err) != "DeviceNotFound" || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want a DeviceNotFound with %q", name, err, tt.err)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, disks (-want +got):\n%s", name, err, diff)
		}
	}
	r := newRunner(t)
	r.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) { return nil, errors.New("no disks") })
	if err := r.Run(t.Context(), Job{Run: RunOptions{AllDisks: true}}); kind(t, err) != "DeviceNotFound" {
		t.Errorf("got %v, want a DeviceNotFound", err)
	}
}

// The options of pull reach the client, and errors of the registry are faults.
// fetcher implements [Fetcher].
type fetcher func(skipVerify bool) (fetch.Options, error)

func (f fetcher) ContainerFetch(skipVerify bool) (fetch.Options, error) { return f(skipVerify) }

func TestRunnerFetch(t *testing.T) {
	requests := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	r := newRunner(t)
	var skipped []bool
	r.Fetcher = fetcher(func(skipVerify bool) (fetch.Options, error) {
		skipped = append(skipped, skipVerify)
		client := &http.Client{}
		if skipVerify {
			client = server.Client()
		}
		return fetch.Options{Client: client, Retries: 9}, nil
	})
	job := Job{Image: filepath.Join(strings.TrimPrefix(server.URL, "https://"), "tool")}
	job.Pull.Retries, job.Pull.RetryDelay = new(2), new(time.Duration(0))
	if err := r.Run(t.Context(), job); kind(t, err) != "ImageDownloadError" || requests > 0 {
		t.Errorf("untrusted certificate: got %v after %d requests, want an ImageDownloadError", err, requests)
	}
	job.Pull.SkipTLSVerify = true
	if err := r.Run(t.Context(), job); kind(t, err) != "ImageDownloadError" || requests != 3 {
		t.Errorf("got %v after %d requests, want an ImageDownloadError after 3", err, requests)
	}
	if diff := cmp.Diff([]bool{false, true}, skipped); diff != "" {
		t.Errorf("verification skipped (-want +got):\n%s", diff)
	}
	for image, want := range map[string]string{"tool": "does not begin", "http://a.example/b": "transport"} {
		if err := r.Run(t.Context(), Job{Image: image}); kind(t, err) != "InvalidCommandParamsError" ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an InvalidCommandParamsError with %q", image, err, want)
		}
	}
	r.Fetcher = fetcher(func(bool) (fetch.Options, error) { return fetch.Options{}, errors.New("no CA") })
	if err := r.Run(t.Context(), job); kind(t, err) != "ImageDownloadError" {
		t.Errorf("got %v, want an ImageDownloadError", err)
	}
}
