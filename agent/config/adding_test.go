package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// The declarations of this file are quoted by docs/adding.md.

// added are lines of Config.
type added struct {
	LookupPause time.Duration `file:"lookup_pause" kernel:"ipa-lookup-pause" unit:"s" min:"0" default:"5" unsigned:"none" help:"pause after a lookup that failed"`
	LookupShare float64       `file:"lookup_share" kernel:"ipa-lookup-share" min:"0" max:"1" default:"0.5" unsigned:"none" help:"share of a pause that is random"`
}

func TestAddedOption(t *testing.T) {
	var c added
	fields := reflect.ValueOf(&c).Elem()
	for i, o := range declared(fields.Type()) {
		if err := o.setField(fields.Field(i), o.def); err != nil {
			t.Error(err)
		}
		if err := o.setField(fields.Field(i), "-1"); err == nil || !strings.Contains(err.Error(), `"-1"`) {
			t.Errorf("%s = -1: got error %v, want one with the value", o.name, err)
		}
	}
	if c.LookupPause != 5*time.Second || c.LookupShare != 0.5 {
		t.Errorf("got %+v, want the defaults", c)
	}
}
