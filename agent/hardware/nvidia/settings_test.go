package nvidia

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const settingsStep = "update_nvidia_nic_firmware_settings"

// newSettingsRig returns a rig whose cards have parameters.
func newSettingsRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, devices...)
	parameters := func() map[string]string {
		return map[string]string{
			"SRIOV_EN": "False(0)", "NUM_OF_VFS": "8", "PF_TOTAL_SF": "0", "LINK_TYPE_P1": "IB(1)",
			"HAIRPIN_QUEUES": "Array[0..7]", "MAX_SPEED": "100", "HAIRPIN_QUEUES[6]": "16", "HAIRPIN_QUEUES[7]": "16",
		}
	}
	r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010", Parameters: parameters()}
	r.Cards["0000:5e:00"] = &card{PSID: "MT_0000000222", Version: "20.36.1010", Parameters: parameters()}
	return r
}

// Parameters that have another value are set: the card's on its first function, with the function's own, which replace
// them.
//
// Parity: F8 (settings)
func TestUpdateSettings(t *testing.T) {
	r := newSettingsRig(t)
	got, err := r.run(t, settingsStep, `{'settings': [
		{'deviceID': '101D', 'globalConfig': {'SRIOV_EN': true, 'NUM_OF_VFS': 8, 'PF_TOTAL_SF': 100},
			'function0Config': {'PF_TOTAL_SF': 500, 'HAIRPIN_QUEUES[6..7]': '0x20'},
			'function1Config': {'LINK_TYPE_P1': 'eth'}},
		{'deviceID': '101b', 'globalConfig': {'LINK_TYPE_P1': 'IB', 'SRIOV_EN': false},
			'function1Config': {'NUM_OF_VFS': 1}},
		{'deviceID': '1021', 'globalConfig': {'ANYTHING': 1}}
	]}`)
	if err != nil {
		t.Fatal(err)
	}
	const want = "[" +
		"{'device':'0000:3b:00.0','set':['HAIRPIN_QUEUES[6..7]=0x20','PF_TOTAL_SF=500','SRIOV_EN=True']," +
		"'unchanged':['NUM_OF_VFS=8']}," +
		"{'device':'0000:3b:00.1','set':['LINK_TYPE_P1=eth'],'unchanged':[]}," +
		"{'device':'0000:5e:00.0','set':[],'unchanged':['LINK_TYPE_P1=IB','SRIOV_EN=False']}," +
		"{'device_id':'1021','set':[],'unchanged':[],'note':'no network card with this deviceID'}]"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	r.checkCalls(t, "mstconfig -d 0000:3b:00.0 -y set HAIRPIN_QUEUES[6..7]=0x20 PF_TOTAL_SF=500 SRIOV_EN=True",
		"mstconfig -d 0000:3b:00.1 -y set LINK_TYPE_P1=eth")
	if !strings.Contains(r.log.String(), `level=WARN msg="no network card for settings" device_id=1021`) {
		t.Errorf("got log\n%s", r.log.String())
	}
}

// A card whose latest firmware does not run yet is reset first. If that fails, the parameters of the firmware that runs
// are set.
//
// Parity: F8 (settings, pending firmware)
func TestPendingSettings(t *testing.T) {
	for _, failure := range []map[string]string{nil, {"mstfwreset": "-E- no reset"}} {
		r := newSettingsRig(t)
		r.Cards["0000:3b:00"].Running = "22.31.1014"
		r.Fail = failure
		_, err := r.run(t, settingsStep, "{'settings': [{'deviceID': '101d', 'globalConfig': {'SRIOV_EN': 1}}]}")
		if err != nil {
			t.Fatal(err)
		}
		r.checkCalls(t, "mstfwreset -d 0000:3b:00.0 -y --sync 1 reset", "mstconfig -d 0000:3b:00.0 -y set SRIOV_EN=1")
		if logged := strings.Contains(r.log.String(), "network card not reset"); logged != (failure != nil) {
			t.Errorf("failure %v: got log\n%s", failure, r.log.String())
		}
	}
}

// Invalid settings, and parameters that the tool or the firmware lacks, are refused before anything is set.
//
// Parity: F8 (settings errors)
func TestSettingsErrors(t *testing.T) {
	const good = "{'deviceID': '101d', 'globalConfig': {'SRIOV_EN': true}}"
	global := func(parameters string) string {
		return "{'settings': [{'deviceID': '101d', 'globalConfig': {'SRIOV_EN': true}, " +
			"'function1Config': {" + parameters + "}}]}"
	}
	const invalid, byTool, byFirmware = "InvalidFirmwareSettingsConfig", "UnSupportedConfigByMstflintPackage",
		"UnSupportedConfigByFW"
	for _, tt := range []struct{ argument, kind, details string }{
		{"{}", invalid, "the argument settings must be a list"},
		{"{'settings': {}}", invalid, "the argument settings must be a list"},
		{"{'settings': [], 'setting': 1}", "InvalidCommandParamsError", "the step has no argument 'setting'"},
		{"{'settings': [{'globalConfig': {}}]}", invalid, "settings[0]: There is no deviceID provided"},
		{"{'settings': [{'deviceID': '0x101d'}]}", invalid, `settings[0]: deviceID "0x101d": want four `},
		{"{'settings': [{'deviceID': '101d', 'global': {}}]}", invalid, `settings[0]: json: unknown field "global"`},
		{"{'settings': [" + good + ", {'deviceID': '101D'}]}", "DuplicateDeviceID", "settings[1]: duplicate settings"},
		{global("'A B': 1"), invalid, `settings[0]: parameter "A B": want NAME, NAME[I] or NAME[FIRST..LAST]`},
		{global("'A[2..1]': 1"), invalid, `settings[0]: parameter "A[2..1]"`},
		{global("'NUM_OF_VFS': 1.5"), invalid, "settings[0]: value 1.5: want a word, an integer or a boolean"},
		{global("'NUM_OF_VFS': -1"), invalid, "settings[0]: value -1: "},
		{global("'NUM_OF_VFS': [1]"), invalid, "settings[0]: value [1]: "},
		{global("'NUM_OF_VFS': '1 SRIOV_EN=0'"), invalid, "settings[0]: value "},
		{global("'NUM_OF': 1"), byTool, "network card 0000:3b:00.1: configuration NUM_OF is not supported by"},
		{global("'RATE_LIMIT': 1"), byFirmware, "configuration RATE_LIMIT for device 0000:3b:00.1 is not supported"},
		{global("'HAIRPIN_QUEUES[7..8]': 1"), byFirmware, "configuration HAIRPIN_QUEUES[7..8] for device 0000:3b:00.1"},
		{global("'NUM_OF_VFS[0]': 1"), byFirmware, `configuration NUM_OF_VFS[0] for device 0000:3b:00.1`},
	} {
		r := newSettingsRig(t)
		_, err := r.run(t, settingsStep, tt.argument)
		checkFault(t, err, tt.kind, tt.details)
		r.checkCalls(t)
	}
}

// The step fails if mstconfig does not show a new value, also for an element of an array.
func TestSettingsNotSet(t *testing.T) {
	for parameter, want := range map[string]string{
		"'SRIOV_EN': true":         `parameter SRIOV_EN: got "False(0)" after setting it, want True`,
		"'HAIRPIN_QUEUES[6]': 128": `parameter HAIRPIN_QUEUES[6]: got "16" after setting it, want 128`,
	} {
		r := newSettingsRig(t)
		r.NoEffect = true
		_, err := r.run(t, settingsStep, "{'settings': [{'deviceID': '101d', 'globalConfig': {"+parameter+"}}]}")
		checkFault(t, err, "CommandExecutionError", "network card 0000:3b:00.0: "+want)
	}
	for command, want := range map[string]string{
		"mstconfig -d 0000:3b:00.0 -y": "-E- Failed to set configuration",
		"mstconfig -d 0000:3b:00.0 i":  "-E- no access",
	} {
		r := newSettingsRig(t)
		r.Fail = map[string]string{command: want}
		_, err := r.run(t, settingsStep, "{'settings': [{'deviceID': '101d', 'globalConfig': {'SRIOV_EN': true}}]}")
		checkFault(t, err, "CommandExecutionError", "network card 0000:3b:00.0: "+want)
	}
}

// A step that is cancelled while it sets parameters verifies them, and sets no others.
func TestSettingsStepCancelled(t *testing.T) {
	r := newSettingsRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.onWrite = cancel
	_, err := r.runContext(t, ctx, settingsStep, `{'settings': [
		{'deviceID': '101d', 'function0Config': {'SRIOV_EN': true}, 'function1Config': {'SRIOV_EN': true}}]}`)
	checkFault(t, err, "CommandExecutionError", "network card 0000:3b:00.1: context canceled")
	r.checkCalls(t, "mstconfig -d 0000:3b:00.0 -y set SRIOV_EN=True")
}
