//go:build linux && long

package firmware

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ironroot/initramfs/debian"
	"ironroot/internal/test/debtest"
	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// ownKey is a key for Secure Boot with its certificate, as paths of files.
type ownKey struct{ key, cert string }

func newOwnKey(t *testing.T) ownKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "own key"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		return rig.WriteFile(t, filepath.Join(t.TempDir(), name), string(text))
	}
	return ownKey{
		key:  write("db.key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)),
		cert: write("db.pem", "CERTIFICATE", cert),
	}
}

// variable is a UEFI variable in the form of virt-fw-vars.
type variable struct {
	Name  string `json:"name"`
	GUID  string `json:"guid"`
	Attr  int    `json:"attr"`
	Value string `json:"data"` // hexadecimal
}

// enroll returns a new directory for a machine with Secure Boot, whose firmware has only this key, and more variables.
func (k ownKey) enroll(t *testing.T, more ...variable) (dir string) {
	t.Helper()
	const python = "/usr/bin/python3" // the authority of Debian's packages
	modules := "/usr/lib/python3/dist-packages/"
	testenv.Files(t, "install Debian's packages python3-cryptography, python3-importlib-resources and python3-pefile",
		modules+"cryptography", modules+"importlib_resources", modules+"pefile.py")
	unpacked := t.TempDir()
	deb := debtest.Packages(t, "", "python3-virt-firmware")
	if err := debian.Extract(t.Context(), deb[0], unpacked, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	empty, err := qemu.Variables(qemu.UEFI)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"version": 2, "variables": append([]variable{}, more...)})
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	const owner = "a0baa8a3-041d-48a8-bc87-c36d121b5e3d"
	testenv.Run(t, "env", "PYTHONPATH="+filepath.Join(unpacked, modules), python, "-m", "virt.firmware.vars",
		"--input", empty, "--output", filepath.Join(dir, "vars.fd"), "--set-pk", owner, k.cert,
		"--add-kek", owner, k.cert, "--add-db", owner, k.cert, "--secure-boot",
		"--set-json", rig.WriteFile(t, filepath.Join(t.TempDir(), "more.json"), string(text)))
	if err := os.Chmod(filepath.Join(dir, "vars.fd"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
