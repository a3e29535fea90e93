//go:build linux

package images

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/imageserver"
)

// qcow2 deploys images with all variants of qcow2 onto a used disk.
//
// Parity: K6
func qcow2(t *testing.T, r *rig.Rig, image, disk string) {
	testenv.Programs(t, "qemu-img", "qemu-io")
	r.SetHints(t, map[string]any{"serial": "small"})
	holes := rig.MBRImage(t, "holes", 24*rig.MiB)
	rig.Patch(t, holes, 8*rig.MiB, make([]byte, 8*rig.MiB))
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
			rig.Patch(t, disk, 0, []byte(strings.Repeat("\xa5", 24*rig.MiB)))
			path := t.TempDir() + "/image.qcow2"
			testenv.Run(t, "qemu-img",
				append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, tt.args...), tt.raw, path)...)
			if tt.zeros {
				testenv.Run(t, "qemu-io", "-c", "write -z 8M 8M", path)
			}
			r.Images.File(tt.name, path)
			info := r.RawInfo(tt.name, rig.SumAll(t, path))
			info["urls"] = []string{r.Images.URLFrom(rig.Host, strings.ReplaceAll(tt.name, " ", "%20"))}
			info["disk_format"] = "qcow2"
			r.Succeed(t, "standby.prepare_image", map[string]any{"image_info": info})
			if got, want := rig.Sum(t, disk, 0, 24*rig.MiB), rig.SumAll(t, tt.raw); got != want {
				t.Errorf("the disk's SHA-256 is %s, want the image's, %s", got, want)
			}
		})
	}
}

// badInput checks that every failure has the error type of the protocol, names the cause and leaves a disk that does
// not boot, and that the agent continues to serve.
//
// Parity: K10 (no space), K14
func badInput(t *testing.T, r *rig.Rig, image, small, failing string) {
	r.Images.File("large.raw", rig.File(t, "large", 65*rig.MiB, nil))
	junk := rig.File(t, "junk.raw", 2*rig.MiB, rig.OldContent{})
	r.Images.File("junk.raw", junk)
	const (
		password = "hunter2-in-the-url"
		basic    = "hunter3-of-the-image"
		bearer   = "hunter4-of-the-registry"
	)
	r.Secrets = append(r.Secrets, password, basic, bearer, base64.StdEncoding.EncodeToString([]byte("user:"+basic)))
	onSmall, onFailing := map[string]any{"serial": "small"}, map[string]any{"serial": "failing"}
	checksum := rig.SumAll(t, image)
	url := r.Images.URLFrom(rig.Host, "mbr.raw")
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
			name: "truncated download", hints: onSmall, fault: imageserver.Fault{Truncate: 4 * rig.MiB, NoRange: true},
			want: "ImageDownloadError", names: []string{url}, disk: small,
		},
		{
			name: "endless download", hints: onSmall, fault: imageserver.Fault{Endless: true},
			want: "ImageWriteError", names: []string{"/dev/vdb", "too small"}, disk: small,
		},
		{
			name: "image not there", hints: onSmall, image: "missing.raw",
			want: "ImageDownloadFatalError", names: []string{r.Images.URLFrom(rig.Host, "missing.raw"), "404"},
			disk: small,
		},
		{
			name: "password in the URL", hints: onSmall, image: "missing.raw",
			want: "ImageDownloadFatalError", names: []string{r.Images.URLFrom(rig.Host, "missing.raw"), "404"},
			disk: small,
			change: func(info map[string]any) {
				info["urls"] = []string{
					strings.Replace(r.Images.URLFrom(rig.Host, "missing.raw"), "//", "//user:"+password+"@", 1),
				}
			},
		},
		{
			name: "password of the image", hints: onSmall, image: "missing.raw",
			want: "ImageDownloadFatalError", names: []string{r.Images.URLFrom(rig.Host, "missing.raw"), "404"},
			disk: small,
			change: func(info map[string]any) {
				info["image_server_auth_strategy"] = "http_basic"
				info["image_server_user"], info["image_server_password"] = "user", basic
			},
		},
		{
			name: "token of the registry", hints: onSmall, image: "missing.raw",
			want: "ImageDownloadFatalError", names: []string{r.Images.URLFrom(rig.Host, "missing.raw"), "404"},
			disk: small,
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
			change: func(info map[string]any) { info["os_hash_value"] = rig.SumAll(t, junk) },
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
				rig.Patch(t, tt.disk, 0, []byte(strings.Repeat("\xa5", rig.MiB)))
			}
			r.SetHints(t, tt.hints)
			if tt.image == "" {
				tt.image = "mbr.raw"
			}
			r.Images.Fault("mbr.raw", tt.fault)
			defer r.Images.Fault("mbr.raw", imageserver.Fault{})
			info := r.RawInfo(tt.image, checksum)
			if tt.change != nil {
				tt.change(info)
			}
			if tt.want == "" {
				refused(t, r, info)
				return
			}
			before := r.Images.Stats(tt.image).Requests
			record := r.Command(t, "standby.prepare_image", map[string]any{"image_info": info})
			if record.Status != conductor.Failed || record.Error.Type != tt.want {
				t.Fatalf("got %s (%v), want a %s", record.Status, record.Error, tt.want)
			}
			// A retry would fail in the same way on a disk that is too small or faulty.
			if got := r.Images.Stats(tt.image).Requests - before; tt.want == "ImageWriteError" && got != 1 {
				t.Errorf("got %d requests for the image, want one", got)
			}
			for _, name := range tt.names {
				if !strings.Contains(record.Error.Details, name) {
					t.Errorf("got details %q, want them to name %q", record.Error.Details, name)
				}
			}
			for _, secret := range r.Secrets {
				if strings.Contains(record.Error.Error(), secret) {
					t.Errorf("the error shows a password")
				}
			}
			if tt.disk != "" && !zero(t, tt.disk) {
				t.Errorf("the first MiB of the disk is not zeros")
			}
			r.Succeed(t, "standby.get_partition_uuids", nil)
		})
	}
	t.Run("connections that break off", func(t *testing.T) {
		r.SetHints(t, onSmall)
		r.Images.Fault("mbr.raw", imageserver.Fault{Truncate: 4 * rig.MiB})
		defer r.Images.Fault("mbr.raw", imageserver.Fault{})
		before := r.Images.Stats("mbr.raw").Bytes
		r.Succeed(t, "standby.prepare_image", map[string]any{"image_info": r.RawInfo("mbr.raw", checksum)})
		if got, want := r.Images.Stats("mbr.raw").Bytes-before, rig.SizeOf(t, image); got != want {
			t.Errorf("got %d bytes served, want each of the image's %d once", got, want)
		}
		if got := rig.Sum(t, small, 0, rig.SizeOf(t, image)); got != checksum {
			t.Errorf("the disk's SHA-256 is %s, want the image's, %s", got, checksum)
		}
	})
	t.Run("broken JSON", func(t *testing.T) {
		status, answer := r.Call(t, http.MethodPost, r.Node.Token(), `{"name": "standby.sync", "params": {`)
		if text := fault(t, answer); status != http.StatusBadRequest || !strings.Contains(text, "JSON") {
			t.Errorf("got %d %q, want 400 and a text that speaks of JSON", status, text)
		}
		r.Succeed(t, "standby.get_partition_uuids", nil)
	})
	t.Run("wrong token", func(t *testing.T) {
		for _, token := range []string{"", "wrong", strings.ToUpper(r.Node.Token())} {
			status, answer := r.Call(t, http.MethodPost, token, `{"name": "standby.power_off", "params": {}}`)
			text := fault(t, answer)
			if status != http.StatusUnauthorized || text != "401 Unauthorized: Token invalid." {
				t.Errorf("got %d %q, want 401", status, text)
			}
		}
		r.Succeed(t, "standby.get_partition_uuids", nil)
	})
}

// refused sends prepare_image with an invalid image_info, which must be rejected.
func refused(t *testing.T, r *rig.Rig, info map[string]any) {
	t.Helper()
	_, err := r.Node.Command(t.Context(), "standby.prepare_image", map[string]any{"image_info": info}, true)
	if err == nil || !strings.Contains(err.Error(), "400") || !strings.Contains(err.Error(), "'id'") {
		t.Errorf("got %v, want 400 and the name of the field", err)
	}
}

// serve serves HTTP in the namespace until stop is called. The address is that for the guest.
func serve(t *testing.T, r *rig.Rig, handler http.HandlerFunc) (address string, stop func()) {
	t.Helper()
	server := rig.NewServer(t, r.Namespace, handler)
	server.Start()
	return rig.GuestAddress(server), server.Close
}

// fault returns the faultstring of a reply.
func fault(t *testing.T, answer string) string {
	t.Helper()
	var f struct {
		String string `json:"faultstring"`
	}
	if err := json.Unmarshal([]byte(answer), &f); err != nil || f.String == "" {
		t.Errorf("got answer %.200q, want one with a faultstring", answer)
	}
	return f.String
}
