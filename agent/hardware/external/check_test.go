package external

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// checkOf checks an executable and returns the report.
func checkOf(t *testing.T, path string, o CheckOptions) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o.Out, o.Log = &out, slog.New(slog.DiscardHandler)
	err := Check(t.Context(), path, o)
	return out.String(), err
}

// The example of docs/managers.md conforms, and its step writes the image.
func TestExample(t *testing.T) {
	testenv.Programs(t, "go")
	program := filepath.Join(t.TempDir(), "firmware")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-C", testenv.Top(t), "-o", program,
		"./docs/examples/firmware")
	image := bytes.Repeat([]byte("firmware"), 50000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(image)
	}))
	defer server.Close()
	device := filepath.Join(t.TempDir(), "mtd0")
	if err := os.WriteFile(device, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	args := func(sum string) string {
		return fmt.Sprintf(`{"url":%q,"sha256":%q,"device":%q}`, server.URL, sum, device)
	}
	got, err := checkOf(t, program, CheckOptions{Step: "clean.update_firmware", Args: args("00")})
	if err == nil || !strings.Contains(got, "FAIL  run clean.update_firmware") || !strings.Contains(got, "want 00") {
		t.Errorf("wrong checksum: got %v:\n%s", err, got)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(image))
	got, err = checkOf(t, program, CheckOptions{Step: "clean.update_firmware", Args: args(sum)})
	const want = "ok    describe: example_firmware 1.0, protocol 1, 1 steps\n" +
		"ok    describe again\nok    refuse unknown version\nok    refuse unknown method\n" +
		"ok    refuse unknown step\nok    evaluate: level 2\nok    run clean.update_firmware: "
	if err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("got %v:\n%swant\n%s", err, got, want)
	}
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	written := make([]byte, len(image))
	if _, err := io.ReadFull(f, written); err != nil || !bytes.Equal(written, image) {
		t.Errorf("the device does not have the image: %v", err)
	}
}

func TestCheckFails(t *testing.T) {
	// It answers everything but describe with level 3, also methods and steps that do not exist.
	lax := script(t, answer(site), `echo '{"type":"result","result":{"level":3}}'`)
	changing := script(t, `echo '{"type":"result","result":`+strings.Replace(site, `"1.0"`, `"'$$'"`, 1)+`}'`, "exit 1")
	for _, tt := range []struct {
		path, step, args string
		want             []string
		err              string
	}{
		{script(t, "echo hello", ""), "", "", []string{"FAIL  describe: "}, "does not describe itself"},
		{lax, "", "", []string{
			`FAIL  refuse unknown version: got result {"protocol":1`, "FAIL  refuse unknown method: got result ",
			"FAIL  refuse unknown step: got result ", "ok    evaluate: level 3",
		}, "3 of 6 checks failed"},
		{lax, "clean.absent", "", []string{`FAIL  run clean.absent: no clean step "absent"`}, "4 of 7"},
		{lax, "clean.flash", "[", []string{"FAIL  run clean.flash: arguments: "}, "4 of 7"},
		{lax, "deploy.burn", "{}", []string{`ok    run deploy.burn: {"level":3}`}, "3 of 7"},
		{changing, "", "", []string{"FAIL  describe again: second description differs"}, "4 of 6 checks failed"},
	} {
		got, err := checkOf(t, tt.path, CheckOptions{Step: tt.step, Args: tt.args})
		if err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%v: got error %v, want %q:\n%s", tt.want, err, tt.err, got)
		}
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("report lacks %q:\n%s", want, got)
			}
		}
	}
}
