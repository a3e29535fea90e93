package evidence

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// A technique that does not reach the hidden sectors of a drive has no category, and no other one is a purge. The
// texts belong to version 2, and never change.
func TestClassifyHidden(t *testing.T) {
	const unverified = "the drive hides 1000 bytes, and it cannot be verified that the erase reached them"
	const unknown = "it is not known whether the drive hides bytes, and it cannot be verified that the erase " +
		"reached them"
	const unreached = "it is not known whether the drive hides bytes by an HPA, DCO or Accessible Max Address, which " +
		"were not reached"
	hpa, overlay := Hidden{NativeBytes: 1000}, Hidden{OverlayBytes: 1000}
	both := Hidden{NativeBytes: 600, OverlayBytes: 400}
	noHPA, noOverlay := Hidden{NativeUnknown: true}, Hidden{OverlayUnknown: true}
	half := Hidden{NativeBytes: 1000, OverlayUnknown: true}
	for _, c := range []struct {
		technique string
		hidden    Hidden
		want      Category
		reason    string
	}{
		{
			"overwrite", both, None,
			"1000 bytes that the drive hides by an HPA, DCO or Accessible Max Address were not reached",
		},
		{
			"ata-secure-erase", both, None,
			"400 bytes that the drive hides by an HPA, DCO or Accessible Max Address were not reached",
		},
		{
			"ata-secure-erase", overlay, None,
			"1000 bytes that the drive hides by an HPA, DCO or Accessible Max Address were not reached",
		},
		{"ata-secure-erase", hpa, Clear, "the normal erase need not reach blocks that the drive does not address"},
		{"ata-secure-erase-enhanced", both, Clear, unverified},
		{"ata-sanitize-block", both, Clear, unverified},
		{"ata-sanitize-crypto", hpa, Clear, unverified},
		{"ata-sanitize-overwrite", overlay, Clear, unverified},

		// An unknown number of hidden sectors does not raise the category.
		{"overwrite", noHPA, None, unreached},
		{"overwrite", noOverlay, None, unreached},
		{"ata-secure-erase", noHPA, Clear, "the normal erase need not reach blocks that the drive does not address"},
		{"ata-secure-erase", noOverlay, None, unreached},
		{"ata-secure-erase", half, None, unreached},
		{"ata-secure-erase-enhanced", noOverlay, Clear, unknown},
		{"ata-sanitize-block", noHPA, Clear, unknown},
		{"ata-sanitize-crypto", half, Clear, unverified},
	} {
		r := full(c.technique)
		r.Targets[0].Hidden, r.Targets[0].Detail = &c.hidden, "the drive hides bytes"
		got := Classify(r)
		if got.Category != c.want || got.Method != c.want || got.Reason != c.reason {
			t.Errorf("%s, %+v: got %+v, want category %q, %q", c.technique, c.hidden, got, c.want, c.reason)
		}
		if c.want != None && !strings.Contains(strings.Join(got.Limits, " "), r.Targets[0].Detail) {
			t.Errorf("%s: got limits %q, want those of the target", c.technique, got.Limits)
		}
		left := Unreached(c.technique, &c.hidden)
		if (left > 0 || UnreachedUnknown(c.technique, &c.hidden)) != (c.want == None) {
			t.Errorf("%s: got %d bytes not reached", c.technique, left)
		}
	}
	if got := Unreached("magnet", &both); got != 1000 {
		t.Errorf("unknown technique: got %d bytes not reached, want 1000", got)
	}
	if got := Unreached("overwrite", nil); got != 0 {
		t.Errorf("nothing hidden: got %d bytes not reached, want 0", got)
	}
}

// A record has the lowest version that has all of its fields, and no other.
func TestVersions(t *testing.T) {
	r := full("ata-sanitize-block")
	r.Targets[0].Hidden = &Hidden{NativeBytes: 512, OverlayBytes: 1024}
	data := sealed(t, r, testKey())
	e, err := Parse(data)
	if err != nil || e.Record.Version != 2 || !reflect.DeepEqual(e.Record.Targets[0].Hidden, r.Targets[0].Hidden) {
		t.Fatalf("got %+v, %v, want version 2 with the hidden bytes", e.Record, err)
	}
	if e, err := Parse(sealed(t, full("ata-sanitize-block"), nil)); err != nil || e.Record.Version != 1 {
		t.Errorf("nothing hidden: got version %d, %v, want 1", e.Record.Version, err)
	}
	r.Targets[0].Hidden = &Hidden{OverlayUnknown: true}
	if e, err := Parse(sealed(t, r, testKey())); err != nil || e.Record.Version != 2 {
		t.Errorf("number not known: got version %d, %v, want 2", e.Record.Version, err)
	}
	r.Targets[0].ReadBack.Expected = ExpectUniform
	if e, err := Parse(sealed(t, r, testKey())); err != nil || e.Record.Version != 3 {
		t.Errorf("uniform content: got version %d, %v, want 3", e.Record.Version, err)
	}
	r.Targets[0].Limits = []Limit{{LimitPart, "a part"}}
	if e, err := Parse(sealed(t, r, testKey())); err != nil || e.Record.Version != 4 ||
		!reflect.DeepEqual(e.Record.Targets[0].Limits, r.Targets[0].Limits) {
		t.Errorf("limits: got %+v, %v, want version 4 with the limits", e.Record, err)
	}
	r.Targets[0].ReadBack.Expected, r.Targets[0].Limits = ExpectAny, nil
	for _, wrong := range []Hidden{
		{},
		{NativeBytes: -1, OverlayBytes: 2},
		{NativeBytes: 2, OverlayBytes: -1},
		{NativeBytes: 1, NativeUnknown: true},
		{OverlayBytes: 1, OverlayUnknown: true},
	} {
		r.Targets[0].Hidden = &wrong
		if _, err := Seal(r, nil, "", nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: got %v, want %v", wrong, err, ErrInvalid)
		}
	}
	unsigned := func(change func(*Record)) []byte {
		record := e.Record
		record.Targets = []Target{record.Targets[0]}
		change(&record)
		text, err := encode(record)
		if err != nil {
			t.Fatal(err)
		}
		return []byte(`{"record":` + string(text) + `,"signature":null,"unsigned":"x"}`)
	}
	if _, err := Parse(unsigned(func(*Record) {})); err != nil {
		t.Errorf("unchanged: got %v", err)
	}
	for name, change := range map[string]func(*Record){
		"version 1":         func(r *Record) { r.Version = 1 },
		"version 3":         func(r *Record) { r.Version = 3 },
		"version 0":         func(r *Record) { r.Version = 0 },
		"limits, version 2": func(r *Record) { r.Targets[0].Limits = []Limit{{LimitHidden, "text"}} },
		"unknown limit": func(r *Record) {
			r.Version, r.Targets[0].Limits = 4, []Limit{{"other", "text"}}
			r.Sanitization = Classify(*r)
		},
		"limits and detail": func(r *Record) {
			r.Version, r.Targets[0].Limits, r.Targets[0].Detail = 4, []Limit{{LimitHidden, "text"}}, "text"
			r.Sanitization = Classify(*r)
		},
		"purge":               func(r *Record) { r.Sanitization = Classify(full("ata-sanitize-block")) },
		"nothing, version 2":  func(r *Record) { r.Targets[0].Hidden = nil; r.Sanitization = Classify(*r) },
		"no bytes, version 2": func(r *Record) { r.Targets[0].Hidden = &Hidden{}; r.Sanitization = Classify(*r) },
	} {
		if _, err := Parse(unsigned(change)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, ErrInvalid)
		}
	}
}

// The kind of a limit decides whether it lowers the category, and not its text. A limit without a kind, in a record
// before version 4, lowers it.
func TestClassifyLimits(t *testing.T) {
	for _, c := range []struct {
		kind   LimitKind
		want   Category
		reason string
	}{
		{LimitFallback, Purge, ""}, // a record of this is not valid, see TestLimitKinds
		{LimitHidden, Clear, "the technique was restricted: text"},
		{LimitNamespaces, Clear, "the technique was restricted: text"},
		{LimitPart, Clear, "the technique was restricted: text"},
	} {
		r := full("nvme-sanitize-block")
		r.Targets[0].Limits = []Limit{{c.kind, "text"}}
		got := Classify(r)
		if got.Category != c.want || got.Reason != c.reason || got.Limits[len(got.Limits)-1] != "text" {
			t.Errorf("%s: got %+v, want %q, %q and the limit", c.kind, got, c.want, c.reason)
		}
		if text := r.Targets[0].LimitText(); text != "text" {
			t.Errorf("%s: got text %q", c.kind, text)
		}
		r.Targets[0].Limits, r.Targets[0].Detail = nil, "text"
		if got := Classify(r); got.Category != Clear || r.Targets[0].LimitText() != "text" {
			t.Errorf("version 1: got %+v, want %q", got, Clear)
		}
	}
}

// The kind of a limit must agree with the facts: otherwise another kind could be stated, to claim a higher category.
func TestLimitKinds(t *testing.T) {
	for _, c := range []struct {
		technique string
		kind      LimitKind
		hidden    *Hidden
		want      Category
		err       string
	}{
		{"nvme-sanitize-block", LimitHidden, nil, "", "states no hidden bytes"},
		{"nvme-sanitize-block", LimitFallback, nil, "", `got technique "nvme-sanitize-block", want "overwrite"`},
		{"metadata", LimitFallback, nil, "", `got technique "metadata"`},
		{"", LimitFallback, nil, "", `got technique ""`},
		{"overwrite", LimitHidden, nil, "", "states no hidden bytes"},
		{"overwrite", LimitFallback, nil, Clear, ""},
		{"overwrite", LimitHidden, &Hidden{NativeBytes: 512}, None, ""},
		{"ata-sanitize-block", LimitHidden, &Hidden{NativeBytes: 512}, Clear, ""},
		{"ata-sanitize-block", LimitHidden, &Hidden{OverlayUnknown: true}, Clear, ""},
		{"nvme-sanitize-block", LimitNamespaces, nil, Clear, ""},
		{"nvme-sanitize-block", LimitPart, nil, Clear, ""},
	} {
		r := full(c.technique)
		r.Targets[0].Limits, r.Targets[0].Hidden = []Limit{{c.kind, "text"}}, c.hidden
		r.Version, r.Sanitization = r.version(), Classify(r)
		record, err := encode(r)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Parse(signedText(t, record))
		switch {
		case c.err == "" && (err != nil || e.Record.Sanitization.Category != c.want):
			t.Errorf("%q, %s: got %q and %v, want %q",
				c.technique, c.kind, e.Record.Sanitization.Category, err, c.want)
		case c.err != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q, %s: got %v, want an error with %q", c.technique, c.kind, err, c.err)
		}
		if _, err := Seal(r, nil, "", nil); (err != nil) != (c.err != "") {
			t.Errorf("%q, %s: seal: got %v", c.technique, c.kind, err)
		}
	}
}
