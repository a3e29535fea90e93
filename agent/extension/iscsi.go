package extension

import (
	"context"

	"ironroot/agent/command"
	"ironroot/agent/fault"
	"ironroot/agent/imaging"
	"ironroot/storage/iscsitarget"
)

// iscsiTarget exports the root disk, so that the conductor of an older Ironic can write the image to it.
func iscsiTarget(d Deps) command.Extension {
	return command.Extension{Name: "iscsi", Commands: []command.Command{{
		Name: "start_iscsi_target", Destructive: true,
		Params: []command.Param{{Name: "iqn"}, {Name: "portal_port"}, {Name: "wipe_disk_metadata"}},
		Validate: func(_ context.Context, p command.Params) error {
			_, err := targetParams(p)
			return err
		},
		Run: func(ctx context.Context, p command.Params) (any, error) {
			t, err := targetParams(p)
			if err != nil {
				return nil, err
			}
			caller, ok := command.CallerOf(ctx)
			if !ok {
				return nil, fault.ISCSI("address of the client is unknown")
			}
			t.Local, t.Peer = caller.Local, caller.Remote
			iqn, err := d.Imager.StartISCSITarget(ctx, t)
			if err != nil {
				return nil, err
			}
			return map[string]string{"iscsi_target_iqn": iqn}, nil
		},
	}}}
}

// targetParams parses and checks the parameters of start_iscsi_target.
func targetParams(p command.Params) (t imaging.ISCSITarget, err error) {
	if err := p.Decode("iqn", &t.IQN); err != nil {
		return t, err
	}
	if err := iscsitarget.CheckName(t.IQN); p.Has("iqn") && err != nil {
		return t, fault.InvalidCommandParams("parameter iqn: %w", err)
	}
	if err := p.Decode("portal_port", &t.Port); err != nil {
		return t, err
	}
	if p.Has("portal_port") && t.Port == 0 {
		return t, fault.InvalidCommandParams("parameter portal_port: got 0, want 1 to 65535")
	}
	return t, p.Decode("wipe_disk_metadata", &t.WipeMetadata)
}
