package journal

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

func TestLines(t *testing.T) {
	var console bytes.Buffer
	log := New(&console, nil, 1<<20).Logger()
	log.Debug("not shown")
	log.Info("plain", "device", "/dev/sda", "n", 3, "text", "two words", "empty", "")
	log.With("node", "abc").WithGroup("g").Warn("grouped", "err", errors.New("no \"such\" thing"),
		slog.Group("in", "a", 1))
	log.Error("foreign \x1b[2Jtext", "stack", "line 1\nline \x07 2\n\u202e\u2066é\u200b\u2028\t3", "after", true)
	got := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3} `).ReplaceAllString(console.String(), "")
	want := `INFO  plain device=/dev/sda n=3 text="two words" empty=""
WARN  grouped node=abc g.err="no \"such\" thing" g.in.a=1
ERROR foreign  [2Jtext after=true
    stack:
      line 1
      line   2
        é  	3
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// Lines begin with the time of their record, if it has one: [slog.Handler].
func TestTime(t *testing.T) {
	var console bytes.Buffer
	h := New(&console, nil, 1<<20).Logger().Handler()
	for at, want := range map[time.Time]string{
		{}: "INFO  message\n", time.Date(2024, 2, 29, 23, 4, 5, 6e6, time.UTC): "23:04:05.006 INFO  message\n",
	} {
		console.Reset()
		err := h.Handle(t.Context(), slog.NewRecord(at, slog.LevelInfo, "message", 0))
		if err != nil || console.String() != want {
			t.Errorf("got %q and %v, want %q", console.String(), err, want)
		}
	}
}

// Attributes without key and value are ignored: [slog.Handler].
func TestEmptyAttribute(t *testing.T) {
	var console bytes.Buffer
	New(&console, nil, 1<<20).Logger().Info("message", slog.Attr{}, slog.Int("n", 1))
	if got := console.String(); !strings.HasSuffix(got, "INFO  message n=1\n") {
		t.Errorf("got %q", got)
	}
}

type brokenConsole struct{}

func (brokenConsole) Write([]byte) (int, error) { return 0, os.ErrClosed }

// If writing to the console fails, the error is returned and the lines are stored.
func TestBrokenConsole(t *testing.T) {
	j := New(brokenConsole{}, nil, 1<<20)
	err := j.Logger().Handler().Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, "kept", 0))
	if !errors.Is(err, os.ErrClosed) || !strings.HasSuffix(string(j.Bytes()), "kept\n") {
		t.Errorf("got error %v and lines %q", err, j.Bytes())
	}
}

// A secret that contains another one is redacted as a whole, independent of the order of registration.
func TestRedactOverlapping(t *testing.T) {
	j := New(io.Discard, nil, 1<<20)
	j.Redact("inner")
	j.Redact("the-inner-part")
	if got := j.Clean("a the-inner-part b inner c"); got != "a *** b *** c" {
		t.Errorf("got %q", got)
	}
}

// A secret is redacted anywhere in a line: also in a key, and across the parts of a line.
func TestRedactWholeLine(t *testing.T) {
	var console bytes.Buffer
	j := New(&console, nil, 1<<20)
	j.Redact("s3cret")
	j.Redact("word=two")
	j.Logger().Info("message", "s3cret", 1, "pass.word", "two")
	if got := console.String(); strings.Contains(got, "s3cret") || strings.Contains(got, "two") {
		t.Errorf("got %q", got)
	}
}

func TestRedactURLs(t *testing.T) {
	j := New(io.Discard, nil, 1<<20)
	j.RedactURLs("get http://user:p%40ss@[2001:db8::1]/path and https://:tok%zz@host:8080?q, not ftp://host:21/a@b")
	for text, want := range map[string]string{
		"http://user:p%40ss@h": "http://user:***@h", "password p@ss": "password ***", "tok%zz": "***",
		"host:21/a": "host:21/a", "8080": "8080",
	} {
		if got := j.Clean(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// The beginning of a secret at the end of a line of the kernel's log is redacted if the line is long enough to be
// truncated, or if it has lost its last word.
func TestCleanKernelLog(t *testing.T) {
	const mark = "[    0.000000] Command line: rootpwd="
	pad := strings.Repeat("quiet ", 150)
	j := New(io.Discard, nil, 1<<20)
	j.Redact("secret-of-an-operator")
	j.Redact("of-an")
	j.Redact("two words and a third")
	for text, want := range map[string]string{
		pad + mark + "secret-of-an-operator":                   pad + mark + "***",
		pad + mark + "secret-of-an-opera":                      pad + mark + "***",
		pad + mark + "secret\nnext":                            pad + mark + "***\nnext",
		pad + mark + "secret-of\n SUBSYSTEM=x\n":               pad + mark + "***\n SUBSYSTEM=x\n",
		pad + mark + "secre\n":                                 pad + mark + "secre\n",
		pad + mark + "secret-of-an-opera quiet\n":              pad + mark + "secret-***-opera quiet\n",
		mark + "secret-of\n":                                   mark + "secret-of\n",
		pad + mark + `"two words and ` + truncationMark + "\n": pad + mark + `"***` + truncationMark + "\n",
		mark + `"two words and ` + truncationMark:              mark + `"***` + truncationMark,
		"": "",
	} {
		if got := j.CleanKernelLog(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// Go and JSON escape control characters, characters beyond ASCII, and characters of HTML in different ways.
func TestRedactEscapedCharacters(t *testing.T) {
	const password = "a\x01b<c>d\u00f6&\a"
	j := New(io.Discard, nil, 1<<20)
	j.Redact(password)
	escaped, err := json.Marshal(password)
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(password); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		fmt.Sprintf("%q", password), fmt.Sprintf("%+q", password), string(escaped), strings.TrimSpace(plain.String()),
	} {
		if got := j.Clean(text); got != `"***"` {
			t.Errorf("%s: got %s, want the password masked", text, got)
		}
	}
}

func TestRedact(t *testing.T) {
	var console bytes.Buffer
	j := New(&console, nil, 1<<20)
	j.Logger().Info("before s3cret/+word")
	j.Redact("")
	j.Redact("s3cret/+word")
	j.Redact("s3cret")
	j.Logger().Info("after", "url", "http://h/?agent_token=s3cret%2F%2Bword",
		"err", errors.New("refused s3cret/+word"), "x", "s3cret")
	if kept := string(j.Bytes()); strings.Contains(kept, "s3cret") || strings.Contains(kept, "word") ||
		!strings.Contains(kept, "agent_token=***") {
		t.Errorf("kept lines: got\n%s", kept)
	}
	after := console.String()[strings.Index(console.String(), "after"):]
	if strings.Contains(after, "s3cret") {
		t.Errorf("console: got %s", after)
	}
	archive := unpack(t, j, sysfs.Root{Path: t.TempDir()}, Member{"cmdline", []byte("ipa-agent-token=s3cret/+word x")})
	if got := archive["cmdline"]; got != "ipa-agent-token=*** x" {
		t.Errorf("member of the archive: got %q, want the secret gone", got)
	}
}

// Secrets are masked before texts are quoted and clipped, and also in their forms in JSON, URLs and base64.
func TestRedactEncodedForms(t *testing.T) {
	var console bytes.Buffer
	j := New(&console, nil, 1<<20)
	const password = "p\"a\\ss <w\u00f6rd>&\n\tend/+"
	j.Redact(password)
	document, err := json.Marshal(map[string]string{"password": password})
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"attribute": password, "with a space": "x " + password, "quoted twice": fmt.Sprintf("%q", password),
		"JSON": string(document), "query": url.QueryEscape(password), "path": strings.ToLower(url.PathEscape(password)),
	}
	for i := range 4 {
		user := strings.Repeat("u", i)
		basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		texts[fmt.Sprintf("basic authentication %d", i)] = basic
		forURLs := base64.RawURLEncoding.EncodeToString([]byte(user + password + user))
		texts[fmt.Sprintf("base64 for URLs %d", i)] = forURLs
	}
	for name, text := range texts {
		console.Reset()
		j.Logger().Info("line "+text, "value", text, "err", errors.New("refused "+text))
		if got := strings.Count(console.String(), "***"); got != 3 {
			t.Errorf("%s: got %q with %d masks, want 3", name, console.String(), got)
		}
	}
	console.Reset()
	j.Logger().Info("clipped", "path", Clipped{strings.Repeat("x", 10) + password + strings.Repeat("y", 100), 16})
	if got, want := console.String(), `path="xxxxxxxxxx***yyy... (113 bytes)"`; !strings.Contains(got, want) {
		t.Errorf("clipped: got %q, want %s", got, want)
	}
}

func TestCapacity(t *testing.T) {
	j := New(io.Discard, nil, 4000)
	for i := range 1000 {
		j.Logger().Info("line", "number", i)
	}
	got := string(j.Bytes())
	if len(got) > 4100 {
		t.Errorf("kept: got %d bytes, want about 4000", len(got))
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if lines[0] != "(older lines dropped)" || !strings.HasSuffix(lines[len(lines)-1], "number=999") {
		t.Errorf("kept: got first line %q, last %q", lines[0], lines[len(lines)-1])
	}
	for i, line := range lines[1:] {
		if want := fmt.Sprintf("number=%d", 1000-len(lines)+1+i); !strings.HasSuffix(line, want) {
			t.Fatalf("line %d: got %q, want it to end with %s", i, line, want)
		}
	}
}

func unpack(t *testing.T, j *Journal, sys sysfs.Root, extra ...Member) map[string]string {
	t.Helper()
	data, err := j.Archive(context.Background(), sys, extra...)
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Untar(t, data)
}

func TestArchiveOfFixture(t *testing.T) {
	root := t.TempDir()
	files := map[string]string{
		"proc/mdstat":      "Personalities : [raid1]\n",
		"proc/self/mounts": "/dev/sda1 /mnt/with\\040space ext4 rw,relatime 0 0\n",
		"proc/7/status":    "Name:\tinit\nState:\tS (sleeping)\nPPid:\t0\nVmRSS:\t  42 kB\n",
		"proc/7/cmdline":   "init\x00--agent_token=hidden\x00",
		"sys/firmware/efi/efivars/BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x07\x00\x00\x00\x01\x00\x0a\x00",
		"sys/firmware/efi/efivars/Boot0001-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x07\x00\x00\x00\x01\x00\x00\x00" +
			"\x04\x00d\x00e\x00b\x00i\x00a\x00n\x00\x00\x00",
		"sys/firmware/efi/efivars/Boot000A-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x07\x00",
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := unpack(t, New(io.Discard, nil, 1<<20), sysfs.Root{Path: root})
	for name, want := range map[string]string{
		"mdstat":     "Personalities : [raid1]\n",
		"mount":      "/dev/sda1 on /mnt/with space type ext4 (rw,relatime)\n",
		"ps":         "    PID    PPID STATE    RSS-KIB COMMAND\n      7       0 S (sl         42 init\n",
		"efibootmgr": "Boot0001: * debian\nBoot000A: invalid argument\nBootOrder: 0001,000A\n",
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestArchiveIsBounded(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), maxMemberBytes/16+1)
	got := unpack(t, New(io.Discard, nil, 1<<20), sysfs.Root{Path: t.TempDir()},
		Member{"a", large}, Member{"b", large}, Member{"c", large}, Member{"d", large}, Member{"e", large})
	if !strings.Contains(got["truncated"], "a: first 16777216 of 16777232 bytes\n") {
		t.Errorf("got truncated %q, want a among them", got["truncated"])
	}
	delete(got, "truncated")
	total := 0
	for name, text := range got {
		if len(text) > maxMemberBytes {
			t.Errorf("member %s: got %d bytes, want at most %d", name, len(text), maxMemberBytes)
		}
		total += len(text)
	}
	if total > maxArchiveBytes {
		t.Errorf("all members: got %d bytes, want at most %d", total, maxArchiveBytes)
	}
}

// A secret at a size limit is redacted before the data is truncated.
func TestArchiveCutsNoSecrets(t *testing.T) {
	j := New(io.Discard, nil, 1<<20)
	j.Redact("secret-token-0123456789")
	secret, text := []byte("secret-token-0123456789"), bytes.Repeat([]byte("x"), maxMemberBytes-10)
	packed, _, err := j.pack([]Member{
		{"lsblk", slices.Concat(text, secret)},
		{"dmesg", slices.Concat(secret, text)},
	}, maxMemberBytes)
	if err != nil {
		t.Fatal(err)
	}
	got := testenv.Untar(t, packed)
	if end := got["lsblk"][maxMemberBytes-30:]; !strings.HasSuffix(end, "x***") {
		t.Errorf("got an end of %q, want the secret masked", end)
	}
	if start := got["dmesg"][:30]; !strings.HasPrefix(start, "***x") {
		t.Errorf("got a start of %q, want the secret masked", start)
	}
}

// The beginning of a secret is redacted in the kernel's log of an archive.
func TestArchiveTruncatedSecret(t *testing.T) {
	j := New(io.Discard, nil, 1<<20)
	j.Redact("two words")
	line := []byte(strings.Repeat("x", minTruncated) + "two wo")
	packed, _, err := j.pack([]Member{{"dmesg", line}}, maxMemberBytes)
	if err != nil {
		t.Fatal(err)
	}
	if got := testenv.Untar(t, packed)["dmesg"]; !strings.HasSuffix(got, "x***") {
		t.Errorf("got an end of %q, want the beginning of the secret masked", got[minTruncated-5:])
	}
}

// The kernel truncates its command line in its log, possibly within a secret.
func TestCutCommandLine(t *testing.T) {
	line := "<5>[    0.0] Kernel command line: " + strings.Repeat("quiet ", 150) + "ipa-agent-token=secret-tok"
	if got := string(stripPriorities([]byte(line + "\n<6>next\n"))); strings.Contains(got, "secret") ||
		!strings.HasSuffix(got, "quiet ...\nnext\n") {
		t.Errorf("got %q, want no part of the token", got[len(got)-60:])
	}
	for _, kept := range []string{"Kernel command line: a=b\n", strings.Repeat("x ", 500) + "\n"} {
		if got := string(stripPriorities([]byte(kept))); got != kept {
			t.Errorf("got %.80q, want %.80q", got, kept)
		}
	}
}

func TestStripPriorities(t *testing.T) {
	got := string(stripPriorities([]byte("<6>[    0.0] Linux\n<30>[1] x\nno priority\n")))
	if want := "[    0.0] Linux\n[1] x\nno priority\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzDescribeVariable(f *testing.F) {
	f.Add("Boot0001", []byte("\x01\x00\x00\x00\x04\x00d\x00\x00\x00"))
	f.Add("BootOrder", []byte("\x01"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if got := describeVariable(name, data); strings.ContainsAny(got, "\n\x1b") {
			t.Errorf("%q %q: got control characters in %q", name, data, got)
		}
	})
}

func TestArchiveOfMultipath(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"sys/block/dm-0/size": "2048\n", "sys/class/block/dm-0/size": "2048\n",
		"sys/class/block/dm-0/dm/uuid": "mpath-3600508b1001c5f4f\n", "sys/class/block/dm-0/slaves/sda/size": "2048\n",
		"sys/class/block/dm-0/slaves/sdb/size": "2048\n", "sys/block/dm-0/slaves/sda/size": "2048\n",
		"sys/block/dm-0/slaves/sdb/size": "2048\n", "sys/class/block/sda/size": "2048\n",
		"sys/class/block/sda/device/state": "running\n", "sys/class/block/sda/device/model": "LUN\n",
		"sys/class/block/sdb/size": "2048\n", "sys/class/block/sdb/device/state": "offline\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := unpack(t, New(io.Discard, nil, 1<<20), sysfs.Root{Path: root})["multipath"]
	for _, want := range []string{
		"dm-0 (0x600508b1001c5f4f)", "LUN size=1048576\n", "  sda running\n", "  sdb offline\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

// Secrets in data that did not pass through the journal are redacted in all members.
func TestArchiveWithoutSecrets(t *testing.T) {
	const secret = "qL9Zr0vYc1mK4tXw8sBn2dHf6gJp3aQe"
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/self/mounts": "//user:" + secret + "@server/share /mnt cifs password=" + secret + " 0 0\n",
		"proc/mdstat":      secret + "\n",
		"proc/7/status":    "Name:\t" + secret + "\nState:\tS\nPPid:\t0\n",
		"proc/7/cmdline":   "init\x00--agent_token=" + secret + "\x00",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j := New(io.Discard, nil, 1<<20)
	j.Logger().Info("before it was known", "token", secret)
	j.Redact(secret)
	j.Logger().Info("after", "token", secret)
	members := unpack(t, j, sysfs.Root{Path: root}, Member{"lshw", []byte(secret)})
	for name, text := range members {
		if strings.Contains(text, secret) {
			t.Errorf("member %s holds the secret", name)
		}
	}
	for _, name := range []string{"journal", "mount", "mdstat", "ps", "lshw"} {
		if _, ok := members[name]; !ok {
			t.Errorf("no member %s", name)
		}
	}
}
