package conductor

import (
	"context"
	"encoding/json"
	"fmt"
)

// StartISCSITarget requests the export of the root disk, as the deploy interface iscsi of Ironic up to version 17 did,
// and returns the name of the target.
func (n *Node) StartISCSITarget(ctx context.Context, port int, wipe bool) (iqn string, err error) {
	iqn = "iqn.2008-10.org.openstack:" + n.spec.UUID
	r, err := n.Command(ctx, "iscsi.start_iscsi_target", map[string]any{
		"iqn": iqn, "portal_port": port, "wipe_disk_metadata": wipe,
	}, true)
	if err != nil {
		return "", err
	}
	if err := r.err(); err != nil {
		return "", err
	}
	var result map[string]string
	if err := json.Unmarshal(r.Result, &result); err != nil || len(result) != 1 || result["iscsi_target_iqn"] != iqn {
		return "", fmt.Errorf("iscsi.start_iscsi_target: got result %s, want iscsi_target_iqn %s", r.Result, iqn)
	}
	return iqn, nil
}

// DeployISCSI deploys a whole-disk image over iSCSI, as the deploy interface iscsi of Ironic up to version 17 did: the
// agent exports its root disk at the port, write logs in to the target, writes the image, logs out and returns the disk
// identifier of the image, and the agent makes the disk bootable and powers the machine off.
func (n *Node) DeployISCSI(
	ctx context.Context, port int, write func(ctx context.Context, iqn string) (diskID string, err error),
) error {
	if err := n.deployISCSI(ctx, port, write); err != nil {
		return fmt.Errorf("deploy node %s over iSCSI: %w", n.spec.UUID, err)
	}
	return nil
}

func (n *Node) deployISCSI(
	ctx context.Context, port int, write func(ctx context.Context, iqn string) (diskID string, err error),
) error {
	n.SetState(DeployWait)
	n.event(EventDeployStarted, "iSCSI port %d", port)
	if err := n.WaitAgent(ctx); err != nil {
		return err
	}
	iqn, err := n.StartISCSITarget(ctx, port, false)
	if err != nil {
		return err
	}
	diskID, err := write(ctx, iqn)
	if err != nil {
		return err
	}
	n.event(EventImageWritten, "disk identifier %s", diskID)
	if err := n.bootloader(ctx, map[string]any{
		"root_uuid": diskID, "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil,
		"target_boot_mode": n.spec.BootMode,
	}); err != nil {
		return err
	}
	return n.finishDeployment(ctx)
}
