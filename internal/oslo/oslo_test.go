package oslo

import "testing"

func TestParseBool(t *testing.T) {
	for text, want := range map[string]struct{ value, ok bool }{
		"1": {true, true}, "t": {true, true}, "true": {true, true}, "on": {true, true}, "y": {true, true},
		"yes": {true, true}, "0": {false, true}, "f": {false, true}, "false": {false, true}, "off": {false, true},
		"n": {false, true}, "no": {false, true}, " True\n": {true, true}, "\tNO ": {false, true}, "": {}, " ": {},
		"2": {}, "01": {}, "tr": {}, "none": {}, "enabled": {}, "y e s": {},
	} {
		if value, ok := ParseBool(text); value != want.value || ok != want.ok {
			t.Errorf("%q: got %v and %v, want %v and %v", text, value, ok, want.value, want.ok)
		}
	}
}
