package modules

import "testing"

func TestSelection(t *testing.T) {
	s, err := Select([]string{"server"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"drivers/net/virtio_net":                     true,
		"drivers/net/ethernet/intel/e1000e/e1000e":   true,
		"drivers/net/ethernet/3com/3c59x":            false,
		"drivers/nvme/host/nvme":                     true,
		"drivers/scsi/mpt3sas/mpt3sas":               true,
		"drivers/scsi/megaraid/megaraid_sas":         true,
		"drivers/ata/ahci":                           true,
		"drivers/ata/pata_acpi":                      true,
		"drivers/ata/pata_ali":                       false,
		"drivers/md/raid1":                           true,
		"drivers/char/ipmi/ipmi_si":                  true,
		"drivers/net/wireless/intel/iwlwifi/iwlwifi": false,
		"fs/ext4/ext4":                               true,
		"drivers/gpu/drm/drm":                        false,
		"drivers/usb/storage/usb-storage":            true,
		"drivers/target/iscsi/iscsi_target_mod":      true,
	} {
		if got := s.Has(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestEveryGroupIsReadable(t *testing.T) {
	for _, name := range Groups() {
		if _, err := Select([]string{name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Select([]string{"kitchen"}); err == nil {
		t.Error("got no error for an unknown group")
	}
}
