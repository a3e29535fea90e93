package uki

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
)

func command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), name, args...)
}

// digestInfo is the prefix of a SHA-256 digest in PKCS #1 v1.5, in the form of printf(1).
const digestInfo = `\060\061\060\015\006\011\140\206\110\001\145\003\004\002\001\005\000\004\040`

// The command gets the digest on its standard input and in its environment, and nothing of the image.
func TestSignCommand(t *testing.T) {
	testenv.Programs(t, "openssl", "sbverify")
	id := newIdentity(t, ownKey)
	o := options(t, id)
	seen := filepath.Join(t.TempDir(), "seen")
	t.Setenv("SEEN", seen)
	o.Key, o.SignCommand = "", `tee "$SEEN" | openssl pkeyutl -sign -inkey `+id.keyFile+
		` -pkeyopt digest:sha256; echo "$IRONROOT_DIGEST" >>"$SEEN".hex`
	mustBuild(t, o)
	testenv.Run(t, "sbverify", "--cert", id.certFile, o.Out)
	digest, err := os.ReadFile(seen)
	if err != nil || len(digest) != 32 {
		t.Fatalf("digest: got %d bytes, %v, want 32", len(digest), err)
	}
	text, err := os.ReadFile(seen + ".hex")
	if want := hex.EncodeToString(digest) + "\n"; err != nil || string(text) != want {
		t.Errorf("IRONROOT_DIGEST: got %q, %v, want %q", text, err, want)
	}
}

// A key that never leaves a PKCS #11 token signs.
func TestSignBySoftHSM(t *testing.T) {
	const module = "/usr/lib/softhsm/libsofthsm2.so"
	testenv.Programs(t, "softhsm2-util", "pkcs11-tool", "sbverify")
	testenv.Files(t, "install Debian's package softhsm2", module)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tokens"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOFTHSM2_CONF", write(t, "softhsm2.conf",
		[]byte("directories.tokendir = "+dir+"/tokens\nlog.level = ERROR\n")))
	t.Setenv("TOKEN_PIN", "1234")
	id := newIdentity(t, ownKey)
	testenv.Run(t, "softhsm2-util", "--init-token", "--free", "--label", "secureboot", "--so-pin", "5678",
		"--pin", "1234")
	testenv.Run(t, "softhsm2-util", "--import", id.keyFile, "--token", "secureboot", "--label", "db", "--id", "01",
		"--pin", "1234")
	o := options(t, id)
	o.Key, o.SignCommand = "", `(printf '`+digestInfo+`'; cat) | pkcs11-tool --module `+module+
		` --token-label secureboot --label db --login --pin env:TOKEN_PIN --sign --mechanism RSA-PKCS`
	mustBuild(t, o)
	testenv.Run(t, "sbverify", "--cert", id.certFile, o.Out)
}

// A command that does not sign leaves no file.
func TestSignCommandFails(t *testing.T) {
	testenv.Programs(t, "openssl")
	id, other := newIdentity(t, ownKey), newIdentity(t, otherKey)
	sign := "openssl pkeyutl -sign -pkeyopt digest:sha256 -inkey "
	for name, c := range map[string]struct{ command, want string }{
		"fails":              {"echo no such token >&2; exit 3", "exit status 3: no such token"},
		"does not exist":     {"/nonexistent", "exit status 127"},
		"writes nothing":     {"true", "signature has 0 bytes, want 256"},
		"writes too much":    {"head -c 100000 /dev/zero", "more than 4096 bytes"},
		"another key":        {sign + other.keyFile, "was not made with the key of the certificate"},
		"another digest":     {"head -c 32 /dev/zero | " + sign + id.keyFile, "over this SHA-256 digest"},
		"reports very much":  {"head -c 100000 /dev/zero >&2; exit 1", "exit status 1"},
		"writes other bytes": {"head -c 256 /dev/zero", "was not made with the key of the certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, id)
			o.Key, o.SignCommand = "", c.command
			_, err := Build(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2*maxSignature {
				t.Errorf("got %.300v, want an error with %q", err, c.want)
			}
			if left, err := os.ReadDir(filepath.Dir(o.Out)); err != nil || len(left) > 0 {
				t.Errorf("got the files %v, %v, want none", left, err)
			}
		})
	}
}

// A command that waits for something ends with the context, although its children keep the pipes open.
func TestSignCommandIsCancelled(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	testenv.Run(t, "mkfifo", fifo)
	ctx, cancel := context.WithCancel(t.Context())
	id := newIdentity(t, ownKey)
	s := commandSigner{ctx, "echo started >" + fifo + "; sleep 5; true", id.key.Public()}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Sign(nil, make([]byte, 32), nil)
		ended <- err
	}()
	if _, err := os.ReadFile(fifo); err != nil { // waits for the command
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	case <-time.After(time.Minute):
		t.Error("the command was not ended")
	}
}
