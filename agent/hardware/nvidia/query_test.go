package nvidia

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseFirmware(t *testing.T) {
	for _, tt := range []struct {
		text string
		want firmware
	}{
		{describe("MT_0000000359", "22.39.1002", ""), firmware{"MT_0000000359", "22.39.1002", ""}},
		{describe("DEL0000000027", "22.39.1002", "22.31.1014"), firmware{"DEL0000000027", "22.39.1002", "22.31.1014"}},
		{"  PSID:\tMT_1\r\n FW Version:\t\t1.2.3 (signed)\r\n", firmware{"MT_1", "1.2.3", ""}},
		{"FW Version: 1.2.3\nFW Version(Running): 1.2.3\nOrig PSID: MT_2\nPSID: MT_1\n", firmware{"MT_1", "1.2.3", ""}},
	} {
		if got, err := parseFirmware(tt.text); err != nil || got != tt.want {
			t.Errorf("got %+v and %v, want %+v, of:\n%s", got, err, tt.want, tt.text)
		}
	}
	for _, text := range []string{
		"", "FW Version: 1.2.3\n", "PSID: MT_1\n", "PSID: MT_1\nFW Version: N/A\n",
		"PSID: MT_1\nFW Version(Running): 1.2.3\n",
		"PSID:\nFW Version: \n", "Orig PSID: MT_1\nMin FW Version: 1.2.3\n",
	} {
		if got, err := parseFirmware(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestParseParameters(t *testing.T) {
	const text = `
Device #1:
----------

Device type:        ConnectX6DX

Configurations:                                         Next Boot
        MEMIC_BAR_SIZE                                  0
 RO     MAX_SPEED                                       100
*       SRIOV_EN                                        True(1)
*RO     PORTS                                           2
        HAIRPIN_QUEUES                                  Array[0..7]
        HAIRPIN_QUEUES[3]                               128
        EMPTY
The '*' shows parameters with next value different from default/current value.
`
	got, err := parseParameters(text)
	want := map[string]string{
		"MEMIC_BAR_SIZE": "0", "MAX_SPEED": "100", "SRIOV_EN": "True(1)", "PORTS": "2", "HAIRPIN_QUEUES": "Array[0..7]",
		"HAIRPIN_QUEUES[3]": "128", "The": "'*'",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("got %v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"", "Configurations:", "Configurations:\n\n", "Configurations: 1\nA\n", "A 1\n"} {
		if got, err := parseParameters(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestIsSet(t *testing.T) {
	for _, tt := range []struct {
		shown, wanted string
		want          bool
	}{
		{"8", "8", true},
		{"8", "0x8", true},
		{"0x1F", "31", true},
		{"127", "27", false},
		{"True(1)", "True", true},
		{"True(1)", "1", true},
		{"True(1)", "true", true},
		{"False(0)", "True", false},
		{"ETH(2)", "2", true},
		{"ETH(2)", "IB", false},
		{"DEVICE_DEFAULT(0)", "DEFAULT", false},
		{"10", "010", true},
		{"", "0", false},
	} {
		if got := isSet(tt.shown, tt.wanted); got != tt.want {
			t.Errorf("%s is %s: got %t, want %t", tt.shown, tt.wanted, got, tt.want)
		}
	}
}

func TestParameter(t *testing.T) {
	for name, within := range map[string]map[string]bool{
		"A":       {"1": true, "": false},
		"A[0]":    {"Array[0..7]": true, "Array[1..8]": false, "1": false, "": false},
		"A[7]":    {"Array[0..7]": true, "Array[0..6]": false},
		"A[2..3]": {"Array[0..7]": true, "Array[3..7]": false, "Array[0..2]": false},
	} {
		p, ok := parseParameter(name)
		if !ok {
			t.Errorf("%s: not valid", name)
		}
		for value, want := range within {
			if got := p.isIn(value); got != want {
				t.Errorf("%s of %q: got %t, want %t", name, value, got, want)
			}
		}
	}
	for _, name := range []string{"", "A[", "A[]", "A[1..]", "A[3..2]", "A[10000]", "-y", "A=1", "A\n"} {
		if p, ok := parseParameter(name); ok {
			t.Errorf("%q: got %+v, want an error", name, p)
		}
	}
}

func FuzzParseFirmware(f *testing.F) {
	f.Add(describe("MT_0000000359", "22.39.1002", "22.31.1014"))
	f.Add("PSID: MT_1\r\nFW Version: 1.2.3")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseFirmware(text)
		if err != nil {
			return
		}
		for _, part := range []string{got.psid, got.version, got.running} {
			if !strings.Contains(text, part) || strings.ContainsAny(part, " \n\t") {
				t.Errorf("got %+v, which the text does not have", got)
			}
		}
		if got.psid == "" || got.version == "" || got.running == got.version {
			t.Errorf("got %+v", got)
		}
	})
}

func FuzzParseParameters(f *testing.F) {
	f.Add(showParameters(map[string]string{"SRIOV_EN": "True(1)", "A": "Array[0..7]"}, nil))
	f.Add("Configurations:\n*RO A[1..2] Array[0..9999]\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseParameters(text)
		if err != nil {
			return
		}
		for name, value := range got {
			if !isSet(value, value) || !strings.Contains(text, name) || value == "" {
				t.Errorf("got %q=%q", name, value)
			}
			if p, ok := parseParameter(name); ok {
				p.isIn(value)
			}
		}
	})
}
