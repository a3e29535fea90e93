package extension

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"ironroot/agent/command"
	"ironroot/agent/fault"
)

// Wrong parameters fail in the request, or in the command if the request does not validate them.
func TestWrongParameters(t *testing.T) {
	r := newRig(t)
	image, standby, all := image(r.deps), standby(r.deps), flow(r.deps, nil)
	for _, c := range []struct {
		command command.Command
		p       map[string]string
		want    string
	}{
		{find(t, image, "install_bootloader"), map[string]string{"root_uuid": "7"}, "parameter root_uuid"},
		{
			find(t, image, "install_bootloader"),
			map[string]string{"ignore_bootloader_failure": `"yes"`},
			"parameter ignore_bootloader_failure",
		},
		{find(t, standby, "prepare_image"), map[string]string{"image_info": "[]"}, "image_info"},
		{
			find(t, standby, "prepare_image"),
			map[string]string{"image_info": goodImage, "configdrive": "7"},
			"parameter configdrive",
		},
		{find(t, standby, "cache_image"), map[string]string{"image_info": "[]"}, "image_info"},
		{
			find(t, standby, "cache_image"),
			map[string]string{"image_info": goodImage, "force": `"yes"`},
			"parameter force",
		},
		{find(t, all, "start_flow"), map[string]string{"flow": "7"}, "parameter flow"},
		{find(t, all, "start_flow"), map[string]string{"flow": `[{"a.b": {}}]`}, "Extension with id a not found"},
	} {
		p := command.Params{}
		for name, text := range c.p {
			p[name] = json.RawMessage(text)
		}
		if err := c.command.Validate(t.Context(), p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v in the request: got %v, want %q", c.command.Name, c.p, err, c.want)
		}
		if _, err := c.command.Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v in the command: got %v, want %q", c.command.Name, c.p, err, c.want)
		}
	}
}

const goodImage = `{"id": "i", "urls": ["http://192.0.2.1/i"], "os_hash_algo": "sha256", "os_hash_value": ` +
	`"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "disk_format": "raw", ` +
	`"image_type": "whole-disk-image"}`

// A step command with a wrong parameter does not run its step.
func TestWrongStep(t *testing.T) {
	r := newRig(t)
	step := find(t, clean(r.deps), "execute_clean_step")
	good := map[string]string{"node": `{"uuid": "u"}`, "ports": "[]", "step": `{"step": "erase_devices"}`}
	for name, c := range map[string]struct{ key, value, want string }{
		"node":    {"node", "[]", "decode node object"},
		"no node": {"node", "{}", "node: uuid missing"},
		"version": {"clean_version", "[]", "parameter clean_version"},
		"step":    {"step", `"erase_devices"`, "parameter step"},
		"unnamed": {"step", `{"step": ""}`, "clean step: key 'step' missing"},
	} {
		p := command.Params{}
		for key, value := range good {
			p[key] = json.RawMessage(value)
		}
		p[c.key] = json.RawMessage(c.value)
		result, err := step.Run(t.Context(), p)
		if result != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want %q", name, result, err, c.want)
		}
		var known *fault.Error
		if name != "unnamed" && !errors.As(err, &known) {
			t.Errorf("%s: got %v, want an error of the protocol", name, err)
		}
	}
}
