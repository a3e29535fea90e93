package evidence

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

func testKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{5}, ed25519.SeedSize))
}

func sealed(t *testing.T, r Record, key ed25519.PrivateKey) []byte {
	t.Helper()
	envelope, err := Seal(r, key, "no key", nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := envelope.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSeal(t *testing.T) {
	for _, technique := range []string{"overwrite", "ata-sanitize-crypto"} {
		want := full(technique)
		data := sealed(t, want, testKey())
		got, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		want.Sanitization = Classify(want)
		want.Requested.Options["passes"] = 1.0 // as JSON returns it
		if diff := cmp.Diff(want, got.Record); diff != "" {
			t.Errorf("record differs (-want +got):\n%s", diff)
		}
		if !testKey().Public().(ed25519.PublicKey).Equal(got.Key) || got.Unsigned != "" {
			t.Errorf("got key %x and %q, want that of the signature", got.Key, got.Unsigned)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(compact.Bytes()); err != nil {
			t.Errorf("without white space: %v", err)
		}
	}
	got, err := Parse(sealed(t, full("overwrite"), nil))
	if err != nil || got.Key != nil || got.Unsigned != "no key" {
		t.Errorf("unsigned: got key %x, %q and %v, want the reason", got.Key, got.Unsigned, err)
	}
	redact := func(s string) string { return strings.ReplaceAll(s, "node", "***") }
	secret, err := Seal(full("overwrite"), testKey(), "", redact)
	if err != nil || !bytes.Contains(secret.Record, []byte(`"node":"***"`)) {
		t.Errorf("got %s and %v, want no secret", secret.Record, err)
	}
	for reason, want := range map[string]string{"": "no key", "not \xff": "not \uFFFD"} {
		if e, err := Seal(full("overwrite"), nil, reason, nil); err != nil || e.Unsigned != want {
			t.Errorf("reason %q: got %q and %v, want %q", reason, e.Unsigned, err, want)
		}
	}
}

// Seal sets the format, and times are in UTC. The samples of a zoned disk are its previous content, without
// probabilities.
func TestSealCompletes(t *testing.T) {
	r := full("ata-sanitize-block")
	want := r.Started
	r.Format, r.Version = "", 0
	r.Started, r.Ended = r.Started.In(time.FixedZone("", 3600)), r.Ended.In(time.FixedZone("", 3600))
	r.Targets[0].Samples.Written, r.Targets[0].Samples.Detection = false, nil
	e, err := Parse(sealed(t, r, nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Record; got.Format != Format || got.Version != 1 || got.Started != want ||
		got.Ended != want.Add(time.Hour) {
		t.Errorf("got %+v, want version 1 and UTC", got)
	}
}

// Evidence of version 1, as this program wrote it, stays valid in every release: the files never change, but for the
// source in the signed one, which was a placeholder.
func TestStoredVersion1(t *testing.T) {
	for name, want := range map[string]Category{"signed": Purge, "unsigned": Clear} {
		data, err := os.ReadFile("testdata/version1-" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(data)
		if err != nil || got.Record.Sanitization.Category != want || (got.Key != nil) != (name == "signed") {
			t.Errorf("%s: got category %q, key %x and %v, want %q",
				name, got.Record.Sanitization.Category, got.Key, err, want)
		}
	}
}

// Evidence with a detail, as this program wrote it before version 4, stays valid: the detail is one limit, even if it
// joins several texts. The files were signed by a release that wrote versions 1 to 3, and the claims are its output.
func TestStoredDetail(t *testing.T) {
	const (
		hidden = "the drive hides 1048576 bytes by an HPA or Accessible Max Address and 512 bytes by a DCO: " +
			"1049088 bytes erased if the drive follows ACS, which was not verified"
		joined = "the drive hides 1048576 bytes by an HPA or Accessible Max Address and 0 bytes by a DCO: " +
			"1048576 bytes erased if the drive follows ACS, which was not verified; it is not known whether the " +
			"drive hides bytes by a DCO: if so, they were erased if the drive follows ACS, which was not verified"
		shared = "the NVMe subsystem is shared, not erased: namespaces of other controllers, if any"

		areas     = "areas that the drive does not address were not reached: HPA, DCO, spare and retired blocks"
		encrypted = "assumes that the drive has encrypted all data since its first use, as its maker states"
		firmware  = "assumes that the drive's firmware erases what its command says"
	)
	for name, c := range map[string]struct {
		version int
		want    Sanitization
	}{
		"version1-restricted": {1, Sanitization{
			Clear, Clear, "NVMe Sanitize, crypto erase", "the technique was restricted: " + shared,
			[]string{encrypted, areas, shared},
		}},
		"version2-hidden": {2, Sanitization{
			Clear, Clear, "ATA CRYPTO SCRAMBLE EXT",
			"the drive hides 1049088 bytes, and it cannot be verified that the erase reached them",
			[]string{encrypted, areas, hidden},
		}},
		"version3-uniform": {3, Sanitization{
			Clear, Clear, "ATA BLOCK ERASE EXT",
			"the drive hides 1048576 bytes, and it cannot be verified that the erase reached them",
			[]string{firmware, areas, joined},
		}},
	} {
		data, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(data)
		if err != nil || got.Record.Version != c.version || !testKey().Public().(ed25519.PublicKey).Equal(got.Key) {
			t.Errorf("%s: got version %d, key %x and %v, want %d", name, got.Record.Version, got.Key, err, c.version)
			continue
		}
		if diff := cmp.Diff(c.want, got.Record.Sanitization); diff != "" {
			t.Errorf("%s: claim differs (-want +got):\n%s", name, diff)
		}
		target := got.Record.Targets[0]
		if limits := c.want.Limits; target.LimitText() != limits[len(limits)-1] || len(target.Limits) > 0 {
			t.Errorf("%s: got limits %q, want %q", name, target.LimitText(), limits[len(limits)-1])
		}
	}
}

// Evidence of a drive that reports text in an unknown encoding can be verified, also if a secret occurs in its facts.
// Evidence that could not be verified is not signed.
func TestSealedIsValid(t *testing.T) {
	r := full("nvme-sanitize-block")
	r.Disk.Serial, r.Targets[0].Detail = "S\xff1", "part 256 of \xc3"
	for _, secret := range []string{
		"none", "256", "record", "S", "disk", "erased", "ironroot", "0300", "2026", "any", "nvme", "zeros",
		"Sanitize",
	} {
		envelope, err := Seal(r, testKey(), "", func(s string) string { return strings.ReplaceAll(s, secret, "***") })
		if err != nil {
			t.Errorf("secret %q: %v", secret, err)
			continue
		}
		data, err := envelope.JSON()
		if err != nil {
			t.Fatal(err)
		}
		e, err := Parse(data)
		if err != nil {
			t.Errorf("secret %q: %v in %s", secret, err, data)
			continue
		}
		if strings.Contains(e.Record.Disk.Serial+e.Record.Disk.Model+e.Record.Targets[0].Detail, secret) {
			t.Errorf("got %+v with the secret %q", e.Record, secret)
		}
		if got := e.Record.Sanitization; got.Category != Clear {
			t.Errorf("secret %q: got %+v, want %s: a secret in the facts costs no category", secret, got, Clear)
		}
	}
	r.Ended = r.Started.Add(-1)
	if envelope, err := Seal(r, testKey(), "", nil); !errors.Is(err, ErrInvalid) || envelope.Signature != nil {
		t.Errorf("ended before it started: got %+v and %v, want ErrInvalid", envelope.Signature, err)
	}
}

// Evidence that was changed in any byte is not valid: neither is any character of it outside of strings redundant, nor
// can its text be written in another way.
func TestTampered(t *testing.T) {
	data := sealed(t, full("ata-sanitize-block"), testKey())
	for i, c := range data {
		if c == ' ' || c == '\n' {
			continue
		}
		tampered := bytes.Clone(data)
		tampered[i] ^= 1
		if _, err := Parse(tampered); !errors.Is(err, ErrInvalid) {
			t.Fatalf("byte %d, %q for %q: got %v, want ErrInvalid", i, tampered[i], c, err)
		}
	}
	again := func(change func(*Record)) []byte { // signed by the key's owner, but inconsistent
		r := full("ata-sanitize-block")
		r.Sanitization = Classify(r)
		change(&r)
		record, err := encode(r)
		if err != nil {
			t.Fatal(err)
		}
		return signedText(t, record)
	}
	if _, err := Parse(again(func(*Record) {})); err != nil {
		t.Fatal(err)
	}
	record, err := Seal(full("overwrite"), nil, "none", nil)
	if err != nil {
		t.Fatal(err)
	}
	public, _ := testKey().Public().(ed25519.PublicKey)
	shortKey := strings.Replace(string(data), base64.StdEncoding.EncodeToString(public),
		base64.StdEncoding.EncodeToString(public[1:]), 1)
	silent := append(append([]byte(`{"record":`), record.Record...), `,"signature":null}`...)
	for name, data := range map[string][]byte{
		"unsigned, unsaid":  silent,
		"signed and not":    []byte(strings.TrimSuffix(string(data), "\n}\n") + `, "unsigned": "x"}`),
		"too large":         append(bytes.Clone(data), bytes.Repeat([]byte{' '}, MaxBytes)...),
		"no record":         []byte(`{"record": 1, "signature": null, "unsigned": "x"}`),
		"short key":         []byte(shortKey),
		"key in lines":      []byte(strings.Replace(string(data), `"public_key": "`, `"public_key": "\r\n`, 1)),
		"value in lines":    []byte(strings.Replace(string(data), `"value": "`, `"value": "\n`, 1)),
		"signature removed": []byte(strings.Replace(string(data), `"signature"`, `"unsigned"`, 1)),
		"empty":             nil,
		"null":              []byte("null"),
		"two values":        append(bytes.Clone(data), "{}"...),
		"unknown field":     []byte(strings.Replace(string(data), `{`, `{"more": 1,`, 1)),
		"field twice":       []byte(strings.Replace(string(data), `{`, `{"unsigned": "x",`, 1)),
		"other spelling":    []byte(strings.Replace(string(data), `"record"`, `"Record"`, 1)),
		"higher category":   again(func(r *Record) { r.Targets[0].Technique = "ata-secure-erase" }),
		"no limits":         again(func(r *Record) { r.Sanitization.Limits = []string{} }),
		"version":           again(func(r *Record) { r.Version = 2 }),
		"format":            again(func(r *Record) { r.Format = "x" }),
		"outcome":           again(func(r *Record) { r.Outcome = "clean" }),
		"times":             again(func(r *Record) { r.Ended = r.Started.Add(-1) }),
		"error and erased":  again(func(r *Record) { r.Targets[0].Error = "x" }),
		"seed of the plan":  again(func(r *Record) { r.Targets[0].ReadBack.Seed = "00" }),
		"bytes read":        again(func(r *Record) { r.Targets[0].ReadBack.Read--; r.Targets[0].ReadBack.Zeros-- }),
		"content":           again(func(r *Record) { r.Targets[0].ReadBack.Zeros-- }),
		"probability":       again(func(r *Record) { r.Targets[0].ReadBack.Detection[0].Probability = 0.5 }),
		"size":              again(func(r *Record) { r.Targets[0].ReadBack.Size = 1 << 60 }),
		"ones for zeros": again(func(r *Record) {
			b := r.Targets[0].ReadBack
			b.Expected, b.Zeros, b.Ones = ExpectZeros, b.Zeros-512, 512
		}),
		"no expectation": again(func(r *Record) {
			r.Targets[0].ReadBack.Different = 512
			r.Sanitization = Classify(*r)
		}),
		"expectation":        again(func(r *Record) { r.Targets[0].ReadBack.Expected = "x" }),
		"samples":            again(func(r *Record) { r.Targets[0].Samples.Blocks-- }),
		"more samples":       again(func(r *Record) { r.Targets[0].Samples.Unchanged = 300 }),
		"sample probability": again(func(r *Record) { r.Targets[0].Samples.Detection[0].Probability = 1 }),
	} {
		if got, err := Parse(data); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %+v and %v, want ErrInvalid", name, got.Record, err)
		}
	}
	for field, change := range map[string]func(*Sanitization){
		"nist_sp_800_88r2": func(s *Sanitization) { s.Category = Clear },
		"ieee_2883_method": func(s *Sanitization) { s.Method = Clear },
		"technique":        func(s *Sanitization) { s.Technique = "x" },
		"reason":           func(s *Sanitization) { s.Reason = "x" },
		"limits":           func(s *Sanitization) { s.Limits = nil },
	} {
		_, err := Parse(again(func(r *Record) { change(&r.Sanitization) }))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), field+" does not follow from the facts") {
			t.Errorf("%s: got %v, want an error that names the field", field, err)
		}
	}
}

// signedText returns evidence with a record as it is, and a valid signature.
func signedText(t *testing.T, record []byte) []byte {
	t.Helper()
	key := testKey()
	public, _ := key.Public().(ed25519.PublicKey)
	e := Envelope{Record: record, Signature: &Signature{
		Algorithm: "ed25519", Key: base64.StdEncoding.EncodeToString(public),
		Value: base64.StdEncoding.EncodeToString(ed25519.Sign(key, append([]byte(signedPrefix), record...))),
	}}
	data, err := e.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Keys have OpenSSL's format, and OpenSSL verifies the signature.
func TestOpenSSL(t *testing.T) {
	testenv.Programs(t, "openssl")
	dir := t.TempDir()
	private, public := filepath.Join(dir, "key.pem"), filepath.Join(dir, "public.pem")
	testenv.Run(t, "openssl", "genpkey", "-algorithm", "ed25519", "-out", private)
	testenv.Run(t, "openssl", "pkey", "-in", private, "-pubout", "-out", public)
	if err := os.Chmod(private, 0o600); err != nil {
		t.Fatal(err)
	}
	secret := ""
	key, err := ReadPrivateKey(private, func(s string) { secret = s })
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(private); err != nil || secret == "" || !strings.Contains(string(text), secret) {
		t.Errorf("got secret of %d bytes and %v, want the key of the file", len(secret), err)
	}
	want, err := ReadPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := Seal(full("overwrite"), key, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := envelope.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Parse(data); err != nil || !want.Equal(got.Key) {
		t.Errorf("got key %x and %v, want %x", got.Key, err, want)
	}
	value, err := base64.StdEncoding.DecodeString(envelope.Signature.Value)
	if err != nil {
		t.Fatal(err)
	}
	message, signature := filepath.Join(dir, "message"), filepath.Join(dir, "signature")
	text := "ironroot-erase-evidence-v1\n" + string(envelope.Record)
	for name, content := range map[string]string{message: text, signature: string(value)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Run(t, "openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", message,
		"-sigfile", signature)

	other := filepath.Join(dir, "other.pem")
	testenv.Run(t, "openssl", "genpkey", "-algorithm", "X25519", "-out", other)
	testenv.Run(t, "openssl", "pkey", "-in", other, "-pubout", "-out", filepath.Join(dir, "exchange.pem"))
	for name, change := range map[string]func(string) error{
		"others have access": func(name string) error { return os.WriteFile(name, nil, 0o644) },
		"PEM":                func(name string) error { return os.WriteFile(name, []byte("secret"), 0o600) },
		"want Ed25519":       func(name string) error { return os.Rename(other, name) },
		"PKCS #8": func(name string) error {
			data := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")})
			return os.WriteFile(name, data, 0o600)
		},
		"not a regular file": func(name string) error { return os.Mkdir(name, 0o700) },
		"a regular file":     func(name string) error { return unix.Mkfifo(name, 0o600) }, // which is not waited for
		"no such file":       func(string) error { return nil },
	} {
		file := filepath.Join(t.TempDir(), "key")
		if err := change(file); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadPrivateKey(file, func(string) {}); err == nil || got != nil ||
			!strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want an error", name, err)
		}
	}
	broken, exchange := filepath.Join(dir, "broken.pem"), filepath.Join(dir, "exchange.pem")
	data = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})
	if err := os.WriteFile(broken, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{private, filepath.Join(dir, "missing"), message, broken, exchange} {
		if key, err := ReadPublicKey(name); err == nil || key != nil {
			t.Errorf("%s: got %x and no error", name, key)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, technique := range []string{"overwrite", "nvme-sanitize-crypto"} {
		for _, key := range []ed25519.PrivateKey{nil, testKey()} {
			envelope, err := Seal(full(technique), key, "none", nil)
			if err != nil {
				f.Fatal(err)
			}
			data, err := envelope.JSON()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
			f.Add(bytes.Replace(data, []byte(`"node": "node"`), []byte(`"node": "\u006eode"`), 1)) // another form
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Parse(data)
		if err != nil {
			return
		}
		// A valid record claims what Classify allows, and Seal writes it again unchanged.
		r := e.Record
		if r.Sanitization.Category == Purge && (r.Disk.Virtual != "" || r.Outcome != Erased) {
			t.Errorf("got purge of %+v", r)
		}
		var envelope Envelope
		if err := json.Unmarshal(data, &envelope); err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := json.Compact(&want, envelope.Record); err != nil {
			t.Fatal(err)
		}
		if got, err := encode(r); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("got %s and %v, want %s", got, err, &want)
		}
	})
}
