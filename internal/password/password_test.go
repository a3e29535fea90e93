package password

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

const horse = "correct horse"

// long has more bytes than bcrypt uses, and characters of more than one byte.
var long = "pässwörd " + strings.Repeat("x", 80)

// cheap matches hashes that are checked quickly.
var cheap = regexp.MustCompile(`^\$[56]\$[^=]*$|^\$2.\$0[4-6]|^\$y\$j[./0-8][./0-5]`)

// goldens are hashes of horse unless their password is named. crypt(3) of Debian 12 (libxcrypt 4.4.33) computed them
// through Python, mkpasswd of Debian's package whois, htpasswd of Apache and openssl.
var goldens = map[string]struct{ hash, password string }{
	"mkpasswd sha256crypt": {"$5$IP2EVgGurm4EYE01$wIyEzTXFwc29fYjWBG1Qfw4xbX/ksucpq5A2k6T5Pb6", horse},
	"mkpasswd sha256crypt -R 1000": {
		"$5$rounds=1000$E5juchjWmYK7iC6A$8piWManrcoD696uKfVNQmb5WS8vlyu41djRuZEY6Dc/", horse,
	},
	"openssl passwd -5":   {"$5$.rJZJ7vTul3tSgKW$dkpCgU/8/aROAUQ4AM.xxuDrj3QfEKSE4fOc3l8syn/", horse},
	"crypt SHA-256, long": {"$5$60L0zQlL6QiuEcpQ$6b6qNQalYprz7fkk9q1ODYNjMkyqyzELMrqasetb.e1", long},
	"mkpasswd sha512crypt": {
		"$6$Wd5VcGzcj4g55MIg$HHvQGZDiYBsWGJDPQEvmu4qAn16Qm1J28l64Zj9W.Vv" +
			"ePdwckCJuBatNd6U4L7vVTC8jtNxe1ywIbeufNCpB7/", horse,
	},
	"mkpasswd sha512crypt -R 10000": {
		"$6$rounds=10000$GP0naJHj8FHIpVez$K0iUXfUztQ.aKhsAMwIBmGiROHZBQ/1nvTPZEaK1jDWAHNHgel7qG7E2fXKk253XlmmF7mAq88" +
			"xh0AfywH7LX1", horse,
	},
	"crypt SHA-512, no password": {
		"$6$VYcLb/qA7pr7qsxK$9obSJbmeRcttHia2M.iBUfcww.JaFHzZA7.PpHlFLB5" +
			"dJ02E4W9itqsa8qfR76dw1K3YpEhD/33zXxa6uG9GN0", "",
	},
	"mkpasswd yescrypt": {
		"$y$j9T$30cUm99rppiQdcgFzMZsn1$mijTadAnc8R.xwvFw8Eusc5ZUSGRYMWaKnAKAzsEg/0", horse,
	},
	"mkpasswd yescrypt -R 1": {
		"$y$j75$7PLIbwKyprBJZs87kfr8T1$mlzU2pv/KKLqMAaS1zdFJFi8gtrcd.1h8TxyyBXZgeC", horse,
	},
	"crypt yescrypt, long": {
		"$y$j9T$F5Jx5fExrKuPp53xLKQ..1$W7aBT8ZdZj8uVUQKXM6Stuw/64.7Agn5qyW6KUDUAH2", long,
	},
	"mkpasswd bcrypt":     {"$2b$05$to2GcFS.D.plw2xV7GF.XeXWthuT77YLnFAlI/VC9It1Yl/qsc5pa", horse},
	"mkpasswd bcrypt-a":   {"$2a$05$bvBJ3sdg7pW3miZro9r9Heu9l7HjHiVy2oheiwUVGDFdRmSxEuBJK", horse},
	"htpasswd -B":         {"$2y$05$8n0ABqyg8w8uGroMFNkQ4.dN66CD6UzS4R.O8dgoYhxnEUJMOrJju", horse},
	"crypt bcrypt, long":  {"$2b$04$AFVwpVnT7Pvn9h63d6L/MOAzhTm9HyGZw3lfAZ.9rNf8qFHLUEaaa", long},
	"crypt bcrypt, bytes": {"$2b$04$AFVwpVnT7Pvn9h63d6L/MOAzhTm9HyGZw3lfAZ.9rNf8qFHLUEaaa", long[:72]},
}

func TestMatches(t *testing.T) {
	for name, golden := range goldens {
		t.Run(name, func(t *testing.T) {
			h, err := Parse(golden.hash)
			if err != nil {
				t.Fatal(err)
			}
			if !h.Matches([]byte(golden.password)) {
				t.Error("the password does not match")
			}
			if cheap.MatchString(golden.hash) && h.Matches([]byte("x"+golden.password)) {
				t.Error("another password matches")
			}
		})
	}
}

// Hashes that the programs make now match, and no other password does.
func TestForeignPrograms(t *testing.T) {
	testenv.Programs(t, "mkpasswd", "openssl", "htpasswd")
	for _, command := range []string{
		"mkpasswd -s -m sha256crypt", "mkpasswd -s -m sha512crypt", "mkpasswd -s -m yescrypt",
		"mkpasswd -s -m yescrypt -R 2", "mkpasswd -s -m bcrypt -R 4", "openssl passwd -stdin -5",
		"openssl passwd -stdin -6", "htpasswd -niBC 4 user",
	} {
		args := strings.Fields(command)
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Stdin = strings.NewReader("Tr0ub4dor&3\n")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		h, err := Parse(strings.TrimPrefix(strings.TrimSpace(string(out)), "user:"))
		if err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		if !h.Matches([]byte("Tr0ub4dor&3")) || h.Matches([]byte("Tr0ub4dor&4")) || h.Matches(nil) {
			t.Errorf("%s: the hash does not match its password, or matches another one", command)
		}
	}
}

// OpenSSL computes the same hash from the salt.
func TestNew(t *testing.T) {
	testenv.Programs(t, "openssl")
	h, err := New(horse)
	if err != nil {
		t.Fatal(err)
	}
	salt := strings.Split(h.Text(), "$")[2]
	if want := strings.TrimSpace(testenv.Run(t, "openssl", "passwd", "-5", "-salt", salt, horse)); h.Text() != want {
		t.Errorf("got %s, want %s", h.Text(), want)
	}
	again, err := New(horse)
	if err != nil {
		t.Fatal(err)
	}
	if again == h || len(salt) != 16 {
		t.Errorf("salt %q: got the same hash twice: %v", salt, again == h)
	}
	for _, bad := range []string{"", strings.Repeat("x", MaxLength+1)} {
		if h, err := New(bad); err == nil {
			t.Errorf("password of %d bytes: got %s, want an error", len(bad), h)
		}
	}
}

// Formats that are not supported and parameters that take too long are errors, which name the format only.
func TestParseRefuses(t *testing.T) {
	const sha512 = "HHvQGZDiYBsWGJDPQEvmu4qAn16Qm1J28l64Zj9W.VvePdwckCJuBatNd6U4L7vVTC8jtNxe1ywIbeufNCpB7/"
	const key = "mijTadAnc8R.xwvFw8Eusc5ZUSGRYMWaKnAKAzsEg/0"
	for _, most := range []string{"$6$rounds=1000000$saltstring$" + sha512, "$2b$14$" + strings.Repeat("a", 53)} {
		if _, err := Parse(most); err != nil {
			t.Errorf("%q: %v", most, err)
		}
	}
	for hash, want := range map[string]string{
		"$1$bh/5qVzz$7N.6MXLAwa1UCLMPSmkih0":    "format MD5 not supported",
		"$apr1$cYYfl6il$bMhyX7hr9kEncvWBwqNpk.": "format MD5 of Apache not supported",
		"bUpAaKEQMEsuU":                         "format unknown",
		"$7$CU..../....sT9K61QUcH/wktqVgOSqY/$2rNSUQoxSAkM" +
			"l/zCsxrRBqbKVG8NxX5k6DcndoJ2i/0": "format scrypt not supported",
		"$gy$j9T$2XdPM99gm9iiY.AtGsDHF0$5er87gkXb8KLTRJxHu" +
			"ehtXzGqfSNaxiODoSm33tKFw/": "format GOST yescrypt not supported",
		"$3$$cfc43211ba8dc470832267827cac1407": "format NT not supported",
		"$md5,rounds=62160$QW9U6XNz$$ASbqjXjhcSRx6fUAVveXa" +
			"0": "format SunMD5 not supported",
		"_J9..ESfAT/Qoexylxtk":                          "format BSDi DES not supported",
		"$argon2id$v=19$m=4096,t=3,p=1$c2FsdHNhbHQ$qqq": "format Argon2 not supported",
		"":                                       "format unknown",
		"secret":                                 "format unknown",
		"$":                                      "format unknown",
		"$6$":                                    "format SHA-512, but malformed",
		"$5$x$" + sha512:                         "format SHA-256, but malformed",
		"$6$rounds=999$saltstring$" + sha512:     "rounds 999, want 1000 to 1000000",
		"$6$rounds=1000001$saltstring$" + sha512: "rounds 1000001, want 1000 to 1000000",
		"$6$rounds=999999999$saltstring$" + sha512:     "rounds 999999999, want 1000 to 1000000",
		"$6$rounds=9999999999$saltstring$" + sha512:    "format SHA-512, but malformed",
		"$6$saltstringsaltstring$" + sha512:            "format SHA-512, but malformed",
		"$6$salt$" + sha512 + "\n":                     "format SHA-512, but malformed",
		"$2b$31$" + strings.Repeat("a", 53):            "cost 31, want 4 to 14",
		"$2b$03$" + strings.Repeat("a", 53):            "cost 03, want 4 to 14",
		"$2b$10$" + strings.Repeat("a", 52):            "format bcrypt, but malformed",
		"$2x$10$" + strings.Repeat("a", 53):            "format bcrypt with a sign extension bug not supported",
		"$y$jFT$30cUm99rppiQdcgFzMZsn1$" + key:         "1073741824 bytes of memory, want at most 67108864",
		"$y$jzT$30cUm99rppiQdcgFzMZsn1$" + key:         "2^64 blocks, want 2^10 to 2^18",
		"$y$j/T$30cUm99rppiQdcgFzMZsn1$" + key:         "2^2 blocks, want 2^10 to 2^18",
		"$y$j9z$30cUm99rppiQdcgFzMZsn1$" + key:         "blocks of 8192 bytes, want at most 4096",
		"$y$/.T$30cUm99rppiQdcgFzMZsn1$" + key:         "format yescrypt, but malformed",
		"$y$j9T$30cUm99rppiQdcgFzMZsn1$" + key + "aaa": "format yescrypt, but malformed",
	} {
		h, err := Parse(hash)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want an error with %q", hash, h, err, want)
			continue
		}
		if secret := strings.Trim(hash, "$"); len(secret) > 5 && strings.Contains(err.Error(), secret[len(secret)-5:]) {
			t.Errorf("%q: the error contains a part of it: %v", hash, err)
		}
	}
	if _, err := Parse("$1$bh/5qVzz$7N.6MXLAwa1UCLMPSmkih0"); !errors.Is(err, ErrFormat) {
		t.Errorf("got %v, want an error that wraps ErrFormat", err)
	}
}

// A long password takes no time, and no zero value matches anything.
func TestMatchesNothing(t *testing.T) {
	h, err := Parse(goldens["mkpasswd sha256crypt"].hash)
	if err != nil {
		t.Fatal(err)
	}
	if h.Matches([]byte(strings.Repeat("x", MaxLength+1))) || (Hash{}).Matches(nil) || !(Hash{}).IsZero() ||
		h.IsZero() {
		t.Error("a password matches that cannot, or IsZero is wrong")
	}
}

// Neither an empty text nor an invalid one leaves the former hash, whose password would stay valid.
func TestUnmarshalReplaces(t *testing.T) {
	former, err := Parse(goldens["mkpasswd sha256crypt"].hash)
	if err != nil {
		t.Fatal(err)
	}
	for text, valid := range map[string]bool{"": true, "secret": false} {
		h := former
		if err := h.UnmarshalText([]byte(text)); (err == nil) != valid || !h.IsZero() {
			t.Errorf("%q: got %v and error %v, want no hash, and an error: %t", text, h, err, !valid)
		}
	}
}

// A hash is printed and logged without its text, and marshalled with it.
func TestHashIsSecret(t *testing.T) {
	text := goldens["mkpasswd sha512crypt"].hash
	h, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("account", "hash", h)
	for _, shown := range []string{log.String(), fmt.Sprint(h), fmt.Sprintf("%#v %+v", h, h)} {
		if strings.Contains(shown, "$6$") || !strings.Contains(shown, "SHA-512 hash") {
			t.Errorf("got %q, want the name of the format only", shown)
		}
	}
	encoded, err := json.Marshal(map[string]Hash{"a": h, "b": {}})
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]Hash
	if err := json.Unmarshal(encoded, &back); err != nil || back["a"] != h || !back["b"].IsZero() {
		t.Errorf("got %s, %v, want both hashes", encoded, err)
	}
	if err := json.Unmarshal([]byte(`"$1$x"`), &h); err == nil || h.String() != "no hash" {
		t.Errorf("got %v, %v, want an error", h, err)
	}
}

// Any text that is accepted is checked within the limits, and without a panic.
func FuzzParse(f *testing.F) {
	for _, golden := range goldens {
		f.Add(golden.hash)
	}
	f.Add("$y$j7.$00$mijTadAnc8R.xwvFw8Eusc5ZUSGRYMWaKnAKAzsEg/0")
	f.Add("$6$rounds=1000000$saltstring$HHvQGZDiYBsWGJDPQEvmu" +
		"4qAn16Qm1J28l64Zj9W.VvePdwckCJuBatNd6U4L7vVTC8jtNxe1ywIbeufNCpB7/")
	f.Add("$1$bh/5qVzz$7N.6MXLAwa1UCLMPSmkih0")
	f.Add("$y$j5.$00$mijTadAnc8R.xwvFw8Eusc5ZUSGRYMWaKnAKAzsEg/0")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := Parse(text)
		if err == nil && cheap.MatchString(text) {
			h.Matches([]byte("x"))
		}
		if (err == nil) == h.IsZero() {
			t.Errorf("got %v, %v", h, err)
		}
	})
}

// In FIPS 140-3 mode, the formats whose algorithms are not approved are refused.
func TestFIPS(t *testing.T) {
	if !testenv.FIPS(t) {
		return
	}
	for text, want := range map[string]string{
		"$5$l0ywjswQqnVFlZM0$GZOlSnCia3FWfVVltWwkxAFSrcOqSHI0IVxBNdFiQcB":           "",
		"$y$j9T$NPhu1vSeDfuMuAXsevOWa/$7c1nir.vsBvlgVVhIAVYnYWqHGgAZcGYCnlJEcjgSdC": "yescrypt",
		"$2b$05$D6Ke11Y2oH5nMMmCPFF/W.0KTdidV2PZSXWdA4oVBH6.xHRdbII3O":              "bcrypt",
	} {
		hash, err := Parse(text)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), "format "+want+" not available in FIPS 140-3 mode") {
				t.Errorf("%s: got %v, want an error", want, err)
			}
		} else if err != nil || !hash.Matches([]byte("secret")) {
			t.Errorf("%v: does not match its password: %v", hash, err)
		}
	}
	if _, err := New("secret"); err != nil {
		t.Error(err)
	}
}
