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
		"drivers/ata/ata_generic":                    true,
		"drivers/ata/pata_ali":                       true,
		"drivers/ata/pata_serverworks":               true,
		"drivers/ata/pata_legacy":                    false,
		"drivers/ata/pata_ns87415":                   false,
		"drivers/ata/pata_pcmcia":                    false,
		"drivers/bus/mhi/host/mhi":                   false,
		"drivers/md/dm-flakey":                       false,
		"drivers/md/dm-thin-pool":                    true,
		"drivers/md/raid1":                           true,
		"drivers/scsi/qla2xxx/qla2xxx":               true,
		"drivers/scsi/qla2xxx/tcm_qla2xxx":           false,
		"drivers/char/ipmi/ipmi_si":                  true,
		"drivers/net/wireless/intel/iwlwifi/iwlwifi": false,
		"fs/ext4/ext4":                               true,
		"drivers/gpu/drm/drm":                        false,
		"drivers/usb/storage/usb-storage":            true,
		"drivers/target/iscsi/iscsi_target_mod":      true,
		"drivers/net/ethernet/qlogic/qlcnic/qlcnic":  true,
		"drivers/net/ethernet/brocade/bna/bna":       true,
		"drivers/scsi/csiostor/csiostor":             true,
		"drivers/cpufreq/acpi-cpufreq":               true,
		"drivers/cpufreq/cpufreq_ondemand":           false,
		"drivers/edac/skx_edac":                      true,
		"drivers/i2c/busses/i2c-thunderx":            true,
		"drivers/i2c/busses/i2c-parport":             false,
		"drivers/mmc/core/mmc_block":                 true,
		"drivers/acpi/nfit/nfit":                     true,
		"drivers/nvdimm/nd_pmem":                     true,
	} {
		if got := s.Has(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestRules(t *testing.T) {
	for line, want := range map[string]rule{
		"drivers/net/phy/":            {pattern: "drivers/net/phy/"},
		"!drivers/net/phy/x":          {pattern: "drivers/net/phy/x", exclude: true},
		"drivers/mmc/host/a-* arm64":  {pattern: "drivers/mmc/host/a-*", arch: "arm64"},
		"drivers/mmc/host/b\tamd64":   {pattern: "drivers/mmc/host/b", arch: "amd64"},
		"!drivers/mmc/host/c   arm64": {pattern: "drivers/mmc/host/c", exclude: true, arch: "arm64"},
	} {
		if got, err := parseRule(line); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", line, got, err, want)
		}
	}
	for _, bad := range []string{"drivers/a mips", "drivers/a arm64 amd64", "drivers/a drivers/b"} {
		if got, err := parseRule(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, got)
		}
	}
}

// The drivers for InfiniBand are in the group infiniband and not in the group server.
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
