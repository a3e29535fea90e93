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

// InfiniBand's drivers, which most machines do without, are a group of their own.
func TestInfiniBand(t *testing.T) {
	for _, name := range []string{"drivers/infiniband/hw/mlx5/mlx5_ib", "drivers/infiniband/ulp/ipoib/ib_ipoib"} {
		for _, groups := range [][]string{{"server"}, {"server", "infiniband"}} {
			s, err := Select(groups)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := s.Has(name), len(groups) == 2; got != want {
				t.Errorf("%s in %v: got %v, want %v", name, groups, got, want)
			}
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
