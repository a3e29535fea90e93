package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

const (
	diskName = "iqn.2004-01.org.example:disk"
	nodeName = "iqn.2010-04.org.ipxe:node"
)

// reply is the answer of a scripted target to a request.
type reply struct {
	flags, class, detail byte
	text                 string // with | for the zero byte
	change               func(*header)
}

// script is a transport to a target that sends replies in turn.
type script struct {
	replies  []reply
	requests []string
}

func (s *script) send(_ context.Context, _ header, data []byte) error {
	s.requests = append(s.requests, strings.ReplaceAll(string(data), "\x00", "|"))
	return nil
}

func (s *script) receive(context.Context) (h header, data []byte, err error) {
	if len(s.replies) == 0 {
		return h, nil, io.EOF
	}
	r := s.replies[0]
	s.replies = s.replies[1:]
	data = []byte(strings.ReplaceAll(r.text, "|", "\x00"))
	h[0], h[1], h[36], h[37] = opLoginResponse, r.flags, r.class, r.detail
	putLength(&h, len(data))
	if r.change != nil {
		r.change(&h)
	}
	return h, data, nil
}

const (
	security    = flagTransit | stageSecurity<<2 | stageOperational
	operational = flagTransit | stageOperational<<2 | stageFullFeature
)

// In FIPS 140-3 mode, CHAP uses SHA-256 only.
//
// Parity: T10 (CHAP)
func TestLoginFIPS(t *testing.T) {
	if !testenv.FIPS(t) {
		return
	}
	target := &script{replies: []reply{
		{flags: stageSecurity << 2, text: "AuthMethod=CHAP|TargetPortalGroupTag=1|"},
		{flags: stageSecurity << 2, text: "CHAP_A=5|CHAP_I=7|CHAP_C=0x0102|"},
	}}
	_, err := logIn(t.Context(), target,
		Target{Name: diskName, Initiator: nodeName, CHAP: CHAP{Name: "n", Secret: "s"}})
	const want = `got CHAP_A="5", want 7 (MD5 is not available in FIPS 140-3 mode)`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if len(target.requests) != 2 || !strings.Contains(target.requests[1], "CHAP_A=7|") {
		t.Errorf("got requests %q, want an offer of 7 alone", target.requests)
	}
}

// The answers of targets are checked.
func TestLoginAnswers(t *testing.T) {
	secrets := CHAP{"node", "secret-of-node", "", "secret-of-disk"}
	challenge := "CHAP_A=5|CHAP_I=7|CHAP_C=0x0102|"
	passed := reply{flags: security, text: "AuthMethod=None|TargetPortalGroupTag=3|"}
	for name, c := range map[string]struct {
		chap    CHAP
		replies []reply
		err     string // "" for none
	}{
		"success":        {CHAP{}, []reply{passed, {flags: operational}}, ""},
		"closes at once": {CHAP{}, nil, "EOF"},
		"closes later":   {CHAP{}, []reply{passed}, "EOF"},
		"text in parts": {CHAP{}, []reply{
			{flags: flagContinue, text: "AuthMeth"}, {flags: security, text: "od=None|"},
		}, "which was not requested"},
		"text in parts, then the stage": {CHAP{}, []reply{
			{flags: flagContinue, text: "AuthMeth"}, {text: "od=None|"}, {flags: security}, {flags: operational},
		}, ""},
		"another PDU": {CHAP{}, []reply{{change: func(h *header) { h[0] = 0x20 }}}, "operation code 0x20"},
		"another version": {
			CHAP{}, []reply{{change: func(h *header) { h[3] = 1 }}}, "version 1",
		},
		"wrong length": {CHAP{}, []reply{{change: func(h *header) { h[7] = 9 }}}, "0 bytes of a data segment of 9"},
		"long segment": {CHAP{}, []reply{{text: strings.Repeat("x", 9000)}}, "data segment of 9000"},
		"C and T":      {CHAP{}, []reply{{flags: flagContinue | security}}, "flags C and T"},
		"wrong stage":  {CHAP{}, []reply{{flags: stageOperational << 2}}, "stage 1 of the login, want 0"},
		"too far":      {CHAP{}, []reply{{flags: flagTransit | stageFullFeature}}, "which was not requested"},
		"no keys":      {CHAP{}, []reply{{flags: security, text: "garbage|"}}, "list of keys"},
		"key twice":    {CHAP{}, []reply{{flags: security, text: "A=1|A=2|"}}, "occurs twice"},
		"many keys":    {CHAP{}, []reply{{text: keys(200)}}, "more than 128 keys"},
		"CHAP unasked": {CHAP{}, []reply{{text: "AuthMethod=CHAP|"}}, "want None"},
		"other method": {secrets, []reply{{text: "AuthMethod=KRB5|"}}, "want CHAP"},
		"never ends":   {CHAP{}, repeated(reply{flags: flagContinue}, 99), "no end after 16 requests"},
		"endless negotiation": {
			CHAP{},
			append([]reply{passed}, repeated(reply{flags: stageOperational << 2}, 99)...),
			"no end after 16 requests",
		},
		"endless text": {
			CHAP{}, repeated(reply{flags: flagContinue, text: strings.Repeat("x", 8000)}, 15), "more than 65536",
		},
		"security stays": {CHAP{}, []reply{{text: "AuthMethod=None|"}, {}}, "does not end the security"},
		"unknown hash": {
			secrets, []reply{{text: "AuthMethod=CHAP|"}, {text: "CHAP_A=6|CHAP_I=7|CHAP_C=0x01|"}}, "want one of 5,7",
		},
		"no challenge": {
			secrets, []reply{{text: "AuthMethod=CHAP|"}, {text: "CHAP_A=5|CHAP_I=7|"}}, "CHAP_C is not",
		},
		"bad challenge": {
			secrets, []reply{{text: "AuthMethod=CHAP|"}, {text: "CHAP_A=5|CHAP_I=7|CHAP_C=0xzz|"}}, "CHAP_C is not",
		},
		"bad identifier": {
			secrets, []reply{{text: "AuthMethod=CHAP|"}, {text: "CHAP_A=5|CHAP_I=700|CHAP_C=0x01|"}}, "want a byte",
		},
		"target proves none": {
			secrets,
			[]reply{{text: "AuthMethod=CHAP|"}, {text: challenge}, {flags: security}},
			errTargetUnknown.Error(),
		},
		"target proves wrong": {
			secrets,
			[]reply{{text: "AuthMethod=CHAP|"}, {text: challenge}, {flags: security, text: "CHAP_N=d|CHAP_R=0x00|"}},
			errTargetUnknown.Error(),
		},
		"digest": {
			CHAP{}, []reply{passed, {flags: operational, text: "HeaderDigest=CRC32C|"}}, "want None",
		},
		"small burst": {
			CHAP{}, []reply{passed, {flags: operational, text: "MaxBurstLength=1|"}}, "want 512 to",
		},
		"burst of words": {
			CHAP{}, []reply{passed, {flags: operational, text: "MaxBurstLength=many|"}}, "want 512 to",
		},
		"no boolean": {
			CHAP{}, []reply{passed, {flags: operational, text: "InitialR2T=Maybe|"}}, "want Yes or No",
		},
		"own offers": {CHAP{}, []reply{
			passed, {flags: stageOperational << 2, text: "IFMarker=Yes|X-org.example.new=1|"}, {flags: operational},
		}, ""},
		"large values": {CHAP{}, []reply{passed, {
			flags: operational, text: "MaxBurstLength=16777215|FirstBurstLength=16777215|MaxOutstandingR2T=9|",
		}}, ""},
		"authentication": {CHAP{}, []reply{{class: 2, detail: 1}}, "authentication failed"},
		"service":        {CHAP{}, []reply{{class: 3, detail: 2}}, "target is not available"},
		"unknown status": {CHAP{}, []reply{{class: 9, detail: 9}}, "0x0909"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{replies: c.replies}
			p, err := logIn(t.Context(), s, Target{Name: diskName, Initiator: nodeName, CHAP: c.chap})
			if c.err == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got %v, want error %q", err, c.err)
			}
			if name == "large values" && (p.maxBurst != maxBurst || p.firstBurst != firstBurst || p.maxR2T != maxR2T) {
				t.Errorf("got %+v, want what was offered", p)
			}
			if name == "success" && p.group != 3 {
				t.Errorf("got portal group %d, want 3", p.group)
			}
			if name == "own offers" && !strings.Contains(s.requests[2], "IFMarker=No|") ||
				name == "own offers" && !strings.Contains(s.requests[2], "X-org.example.new=NotUnderstood|") {
				t.Errorf("got answer %q to the target's offers", s.requests[2])
			}
		})
	}
}

func keys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("K" + strings.Repeat("k", i%50) + string(rune('a'+i/50)) + "=1|")
	}
	return b.String()
}

func repeated(r reply, n int) []reply {
	list := make([]reply, n)
	for i := range list {
		list[i] = r
	}
	return list
}

// A redirection names the address without the tag of the portal group.
func TestRedirection(t *testing.T) {
	for text, want := range map[string]string{
		"TargetAddress=192.0.2.1:3260,1|":     "192.0.2.1:3260",
		"TargetAddress=192.0.2.1|":            "192.0.2.1:3260",
		"TargetAddress=[2001:db8::1]:860,2|":  "[2001:db8::1]:860",
		"TargetAddress=[2001:db8::1]|":        "[2001:db8::1]:3260",
		"TargetAddress=san.example.org:3260|": "",
		"TargetAddress=192.0.2.1:0|":          "",
		"garbage":                             "",
	} {
		s := &script{replies: []reply{{class: 1, detail: 1, text: text}}}
		_, err := logIn(t.Context(), s, Target{Name: diskName, Initiator: nodeName})
		var moved *LoginError
		if !errors.As(err, &moved) || moved.Permanent() {
			t.Fatalf("%s: got %v, want a redirection", text, err)
		}
		got, err := parseAddress(moved.Address)
		if want == "" != (err != nil) || err == nil && got.String() != want {
			t.Errorf("%s: got %v and %v, want %q", text, got, err, want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, valid := range map[string]bool{
		diskName: true, nodeName: true, "eui.02004567A425678D": true, "naa.52004567BA64678D": true,
		"": false, "iqn.2004-01.org.example:a b": false, "iqn.x": false, "disk": false, "eui.1": false,
		"iqn.2004-01." + strings.Repeat("x", 300): false, "iqn.2004-01.org\x00": false,
	} {
		if err := CheckName(name); (err == nil) != valid {
			t.Errorf("%.40q: got %v, want valid %t", name, err, valid)
		}
	}
}

// Secrets are not part of what is printed.
func TestSecretsAreHidden(t *testing.T) {
	for want, c := range map[string]CHAP{
		"none": {}, "as node": {Name: "node", Secret: "secret-of-node"},
		"mutual as node": {"node", "secret-of-node", "disk", "secret-of-disk"},
	} {
		if got := fmt.Sprint(c); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A target can send any bytes.
func FuzzLogin(f *testing.F) {
	f.Add([]byte("AuthMethod=CHAP\x00"), []byte("CHAP_A=5\x00CHAP_I=1\x00CHAP_C=0x00\x00"), byte(0), byte(0))
	f.Add([]byte("AuthMethod=None\x00"), []byte("MaxBurstLength=512\x00"), byte(security), byte(operational))
	f.Add([]byte("AuthMethod=CHAP\x00"), []byte("CHAP_A=7\x00CHAP_I=0xff\x00CHAP_C=0bAAAA\x00"), byte(0),
		byte(security))
	f.Fuzz(func(t *testing.T, first, second []byte, flags1, flags2 byte) {
		for _, c := range []CHAP{{}, {"n", "s", "t", "u"}} {
			s := &script{replies: []reply{
				{flags: flags1, text: string(first)}, {flags: flags2, text: string(second)}, {flags: operational},
			}}
			p, err := logIn(t.Context(), s, Target{Name: diskName, Initiator: nodeName, CHAP: c})
			if err == nil && (p.maxSend < 512 || p.maxBurst < 512 || p.firstBurst < 512 || p.maxR2T != 1) {
				t.Errorf("got %+v", p)
			}
			if err == nil && c.mutual() {
				t.Error("a target without the secret was accepted")
			}
		}
	})
}
