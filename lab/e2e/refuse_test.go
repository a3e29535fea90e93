//go:build linux

package e2e

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/imageserver"
)

// qcow2 deploys images with all variants of qcow2 onto a used disk.
//
// Parity: K6
func (r *rig) qcow2(t *testing.T, image, disk string) {
	testenv.Programs(t, "qemu-img", "qemu-io")
	r.setHints(t, map[string]any{"serial": "small"})
	holes := mbrImage(t, "holes", 24*mib)
	patch(t, holes, 8*mib, make([]byte, 8*mib))
	for _, tt := range []struct {
		name, raw string
		args      []string
		zeros     bool
	}{
		{"version 2", image, []string{"-o", "compat=0.10"}, false},
		{"version 3", image, []string{"-o", "compat=1.1"}, false},
		{"compressed", image, []string{"-c"}, false},
		{"without allocation", holes, nil, false},
		{"zero clusters", holes, []string{"-S", "0"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			patch(t, disk, 0, []byte(strings.Repeat("\xa5", 24*mib)))
			path := t.TempDir() + "/image.qcow2"
			testenv.Run(t, "qemu-img",
				append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, tt.args...), tt.raw, path)...)
			if tt.zeros {
				testenv.Run(t, "qemu-io", "-c", "write -z 8M 8M", path)
			}
			r.images.File(tt.name, path)
			info := r.rawInfo(tt.name, sumAll(t, path))
			info["urls"] = []string{r.images.URLFrom(host, strings.ReplaceAll(tt.name, " ", "%20"))}
			info["disk_format"] = "qcow2"
			r.succeed(t, "standby.prepare_image", map[string]any{"image_info": info})
			if got, want := sum(t, disk, 0, 24*mib), sumAll(t, tt.raw); got != want {
				t.Errorf("the disk's SHA-256 is %s, want the image's, %s", got, want)
			}
		})
	}
}

// badInput checks that every failure has the error type of the protocol, names the cause and leaves a disk that does
// not boot, and that the agent continues to serve.
//
// Parity: K10 (no space), K14
func (r *rig) badInput(t *testing.T, image, small, failing string) {
	r.images.File("large.raw", file(t, "large", 65*mib, nil))
	junk := file(t, "junk.raw", 2*mib, old{})
	r.images.File("junk.raw", junk)
	const (
		password = "hunter2-in-the-url"
		basic    = "hunter3-of-the-image"
		bearer   = "hunter4-of-the-registry"
	)
	r.secrets = append(r.secrets, password, basic, bearer, base64.StdEncoding.EncodeToString([]byte("user:"+basic)))
	onSmall, onFailing := map[string]any{"serial": "small"}, map[string]any{"serial": "failing"}
	checksum := sumAll(t, image)
	url := r.images.URLFrom(host, "mbr.raw")
	for _, tt := range []struct {
		name   string
		hints  map[string]any
		image  string // "" means mbr.raw
		fault  imageserver.Fault
		change func(info map[string]any)
		want   string   // the error's type
		names  []string // texts that the details must contain
		disk   string   // its first MiB must be zeros afterwards; "" if no disk is affected
	}{
		{
			name: "wrong checksum", hints: onSmall, want: "ImageChecksumError", names: []string{url, checksum},
			disk:   small,
			change: func(info map[string]any) { info["os_hash_value"] = strings.Repeat("0", 64) },
		},
		{
			name: "truncated download", hints: onSmall, fault: imageserver.Fault{Truncate: 4 * mib, NoRange: true},
			want: "ImageDownloadError", names: []string{url}, disk: small,
		},
		{
			name: "endless download", hints: onSmall, fault: imageserver.Fault{Endless: true},
			want: "ImageWriteError", names: []string{"/dev/vdb", "too small"}, disk: small,
		},
		{
			name: "image not there", hints: onSmall, image: "missing.raw",
			want: "ImageDownloadFatalError", names: []string{r.images.URLFrom(host, "missing.raw"), "404"}, disk: small,
		},
		{
			name: "password in the URL", hints: onSmall, image: "missing.raw",
			want: "ImageDownloadFatalError", names: []string{r.images.URLFrom(host, "missing.raw"), "404"}, disk: small,
			change: func(info map[string]any) {
				info["urls"] = []string{
					strings.Replace(r.images.URLFrom(host, "missing.raw"), "//", "//user:"+password+"@", 1),
				}
			},
		},
		{
			name: "password of the image", hints: onSmall, image: "missing.raw",
			want: "ImageDownloadFatalError", names: []string{r.images.URLFrom(host, "missing.raw"), "404"}, disk: small,
			change: func(info map[string]any) {
				info["image_server_auth_strategy"] = "http_basic"
				info["image_server_user"], info["image_server_password"] = "user", basic
			},
		},
		{
			name: "token of the registry", hints: onSmall, image: "missing.raw",
			want: "ImageDownloadFatalError", names: []string{r.images.URLFrom(host, "missing.raw"), "404"}, disk: small,
			change: func(info map[string]any) {
				info["image_request_authorization"] = base64.StdEncoding.EncodeToString([]byte("Bearer " + bearer))
			},
		},
		{
			name: "disk too small", hints: onSmall, image: "large.raw",
			want: "ImageWriteError", names: []string{"/dev/vdb", "67108864", "68157440"}, disk: small,
		},
		{
			name: "failing disk", hints: onFailing, want: "ImageWriteError",
			names: []string{"/dev/vdc", "input/output error"}, disk: failing,
		},
		{
			name: "no partition table", hints: onSmall, image: "junk.raw", want: "DeploymentError",
			names:  []string{"/dev/vdb"},
			change: func(info map[string]any) { info["os_hash_value"] = sumAll(t, junk) },
		},
		{
			name: "unknown hint", hints: map[string]any{"colour": "red"}, want: "DeviceNotFound",
			names: []string{"colour"},
		},
		{
			name: "hint that fits no disk", hints: map[string]any{"serial": "elsewhere"},
			want: "DeviceNotFound", names: []string{"serial", "elsewhere"},
		},
		{
			name: "no id", hints: onSmall, change: func(info map[string]any) { delete(info, "id") }, want: "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.disk != "" {
				patch(t, tt.disk, 0, []byte(strings.Repeat("\xa5", mib)))
			}
			r.setHints(t, tt.hints)
			if tt.image == "" {
				tt.image = "mbr.raw"
			}
			r.images.Fault("mbr.raw", tt.fault)
			defer r.images.Fault("mbr.raw", imageserver.Fault{})
			info := r.rawInfo(tt.image, checksum)
			if tt.change != nil {
				tt.change(info)
			}
			if tt.want == "" {
				r.refused(t, info)
				return
			}
			before := r.images.Stats(tt.image).Requests
			record := r.command(t, "standby.prepare_image", map[string]any{"image_info": info})
			if record.Status != conductor.Failed || record.Error.Type != tt.want {
				t.Fatalf("got %s (%v), want a %s", record.Status, record.Error, tt.want)
			}
			// A retry would fail in the same way on a disk that is too small or faulty.
			if got := r.images.Stats(tt.image).Requests - before; tt.want == "ImageWriteError" && got != 1 {
				t.Errorf("got %d requests for the image, want one", got)
			}
			for _, name := range tt.names {
				if !strings.Contains(record.Error.Details, name) {
					t.Errorf("got details %q, want them to name %q", record.Error.Details, name)
				}
			}
			for _, secret := range r.secrets {
				if strings.Contains(record.Error.Error(), secret) {
					t.Errorf("the error shows a password")
				}
			}
			if tt.disk != "" && !zero(t, tt.disk) {
				t.Errorf("the first MiB of the disk is not zeros")
			}
			r.succeed(t, "standby.get_partition_uuids", nil)
		})
	}
	t.Run("connections that break off", func(t *testing.T) {
		r.setHints(t, onSmall)
		r.images.Fault("mbr.raw", imageserver.Fault{Truncate: 4 * mib})
		defer r.images.Fault("mbr.raw", imageserver.Fault{})
		before := r.images.Stats("mbr.raw").Bytes
		r.succeed(t, "standby.prepare_image", map[string]any{"image_info": r.rawInfo("mbr.raw", checksum)})
		if got, want := r.images.Stats("mbr.raw").Bytes-before, sizeOf(t, image); got != want {
			t.Errorf("got %d bytes served, want each of the image's %d once", got, want)
		}
		if got := sum(t, small, 0, sizeOf(t, image)); got != checksum {
			t.Errorf("the disk's SHA-256 is %s, want the image's, %s", got, checksum)
		}
	})
	t.Run("broken JSON", func(t *testing.T) {
		status, answer := r.call(t, http.MethodPost, r.node.Token(), `{"name": "standby.sync", "params": {`)
		if text := fault(t, answer); status != http.StatusBadRequest || !strings.Contains(text, "JSON") {
			t.Errorf("got %d %q, want 400 and a text that speaks of JSON", status, text)
		}
		r.succeed(t, "standby.get_partition_uuids", nil)
	})
	t.Run("wrong token", func(t *testing.T) {
		for _, token := range []string{"", "wrong", strings.ToUpper(r.node.Token())} {
			status, answer := r.call(t, http.MethodPost, token, `{"name": "standby.power_off", "params": {}}`)
			text := fault(t, answer)
			if status != http.StatusUnauthorized || text != "401 Unauthorized: Token invalid." {
				t.Errorf("got %d %q, want 401", status, text)
			}
		}
		r.succeed(t, "standby.get_partition_uuids", nil)
	})
}

// refused sends prepare_image with an invalid image_info, which must be rejected.
func (r *rig) refused(t *testing.T, info map[string]any) {
	t.Helper()
	_, err := r.node.Command(t.Context(), "standby.prepare_image", map[string]any{"image_info": info}, true)
	if err == nil || !strings.Contains(err.Error(), "400") || !strings.Contains(err.Error(), "'id'") {
		t.Errorf("got %v, want 400 and the name of the field", err)
	}
}
