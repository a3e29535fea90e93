package extension

import (
	"net/http"
	"strings"
	"testing"

	"ironroot/agent/config"
)

// The command and the step check their parameters alike. Both can be disabled.
//
// Parity: E17 (disable switch)
func TestExecuteBootcInstall(t *testing.T) {
	r := newRig(t)
	step := func(kind string, args map[string]any) answer {
		return r.run(kind+".execute_"+kind+"_step", map[string]any{
			"step": map[string]any{"step": "execute_bootc_install", "interface": "deploy", "args": args},
			"node": testNode, "ports": []any{},
		})
	}
	valid := map[string]any{"image_source": "oci://registry.example/os", "configdrive": nil, "oci_pull_secret": nil}
	invalid := map[string]any{"image_source": "oci://registry.example/os", "configdrive": nil, "oci_pull_secret": 7}
	for _, kind := range []string{"deploy", "service"} {
		if a := step(kind, valid); a.Status != "FAILED" || a.Error.Type != "DeviceNotFound" {
			t.Errorf("%s step without a disk: got %+v, want a DeviceNotFound", kind, a)
		}
		if a := step(kind, invalid); a.Status != "FAILED" || a.Error.Type != "InvalidCommandParamsError" {
			t.Errorf("%s step: got %+v, want an InvalidCommandParamsError", kind, a)
		}
		args := map[string]any{"image_source": "oci://registry.example/os", "pull_secret": "x"}
		if a := step(kind, args); a.Status != "FAILED" || !strings.Contains(a.Error.Details, "'pull_secret'") {
			t.Errorf("%s step: got %+v, want an error that names the argument", kind, a)
		}
	}
	if a := step("clean", valid); a.Status != "FAILED" || a.Error.Type != "HardwareManagerMethodNotFound" {
		t.Errorf("clean step: got %+v, want an unknown step", a)
	}
	const name = "standby.execute_bootc_install"
	for _, params := range []map[string]any{
		{"image_source": ""},
		{"image_source": 7},
		{"image_source": "a", "instance_info": 7},
		{"image_source": "a", "pull_secret": []any{}},
		{"image_source": "a", "configdrive": map[string]any{}},
	} {
		if a := r.run(name, params); a.status != http.StatusBadRequest ||
			!strings.HasPrefix(a.FaultString, "Invalid command parameters: ") {
			t.Errorf("%v: got %d %q, want invalid parameters", params, a.status, a.FaultString)
		}
	}
	params := map[string]any{
		"image_source": "oci://registry.example/os", "instance_info": map[string]any{}, "pull_secret": nil,
		"configdrive": nil,
	}
	if a := r.run(name, params); a.Status != "FAILED" || a.Error.Type != "DeviceNotFound" {
		t.Errorf("without a disk: got %+v, want a DeviceNotFound", a)
	}
	r.deps.Config.Update(func(c *config.Config) { c.DisableBootcDeploy = true })
	for _, a := range []answer{r.run(name, params), step("deploy", valid)} {
		if a.Status != "FAILED" || a.Error.Type != "CommandExecutionError" ||
			!strings.Contains(a.Error.Details, "disable_bootc_deploy") {
			t.Errorf("disabled: got %+v, want a CommandExecutionError that names the option", a)
		}
	}
}
