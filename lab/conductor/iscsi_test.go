package conductor_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/lab/conductor"
)

// DeployISCSI sends the commands of Ironic's former deploy interface iscsi, and writes between them.
func TestDeployISCSI(t *testing.T) {
	l, ctx := booted(t)
	iqn := "iqn.2008-10.org.openstack:" + l.node.UUID()
	params := map[string]string{}
	l.agent.answer = func(name string, p map[string]json.RawMessage) (any, map[string]any) {
		text, err := json.Marshal(p)
		if err != nil {
			t.Error(err)
		}
		params[name] = string(text)
		if name == "iscsi.start_iscsi_target" {
			return map[string]string{"iscsi_target_iqn": iqn}, nil
		}
		return l.agent.standard(name, p)
	}
	err := l.node.DeployISCSI(ctx, 3261, func(_ context.Context, target string) (string, error) {
		l.agent.mu.Lock()
		defer l.agent.mu.Unlock()
		if target != iqn || len(l.agent.names) != 1 {
			t.Errorf("got target %q after the commands %q, want %q after one", target, l.agent.names, iqn)
		}
		return "0xfeedc0de", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"iscsi.start_iscsi_target", "image.install_bootloader", "log.collect_system_logs", "standby.power_off",
	}
	if diff := cmp.Diff(want, l.agent.names); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{
		"iscsi.start_iscsi_target": `{"iqn":"` + iqn + `","portal_port":3261,"wipe_disk_metadata":false}`,
		"image.install_bootloader": `{"efi_system_part_uuid":null,"prep_boot_part_uuid":null,` +
			`"root_uuid":"0xfeedc0de","target_boot_mode":"uefi"}`,
	} {
		if params[name] != want {
			t.Errorf("%s: got %s, want %s", name, params[name], want)
		}
	}
	if l.node.State() != conductor.Active {
		t.Errorf("got state %q, want active", l.node.State())
	}
}

// A write that fails, and a target with another name, end the deployment before the boot loader.
func TestDeployISCSIFails(t *testing.T) {
	failure := errors.New("disk not written")
	for _, other := range []bool{false, true} {
		l, ctx := booted(t)
		iqn, want := "iqn.2008-10.org.openstack:"+l.node.UUID(), failure.Error()
		if other {
			iqn, want = "iqn.2008-10.org.openstack:other", "want iscsi_target_iqn"
		}
		l.agent.answer = func(command string, p map[string]json.RawMessage) (any, map[string]any) {
			if command != "iscsi.start_iscsi_target" {
				return l.agent.standard(command, p)
			}
			return map[string]string{"iscsi_target_iqn": iqn}, nil
		}
		err := l.node.DeployISCSI(ctx, 3260, func(context.Context, string) (string, error) { return "", failure })
		if err == nil || !strings.Contains(err.Error(), want) || len(l.agent.names) != 1 {
			t.Errorf("other target %v: got %v after %q, want %q after one command", other, err, l.agent.names, want)
		}
	}
}
