//go:build linux && long

package conformance

import (
	"maps"
	"os"
	"strings"
	"testing"

	"ironroot/internal/debtest"
	"ironroot/internal/testenv"
	"ironroot/lab/ipa"
)

// recordEnv names the group to record.
const recordEnv = "IRONROOT_RECORD_IPA"

// recordedPackages are the packages whose versions a recording contains, with the kernel.
var recordedPackages = strings.Fields(`kernel ironic-python-agent python3 python3-hardware python3-oslo.utils
	python3-werkzeug python3-cheroot mdadm parted gdisk util-linux udev qemu-utils lvm2 cryptsetup-bin efibootmgr
	multipath-tools nvme-cli hdparm smartmontools ethtool lshw grub-common dosfstools e2fsprogs xfsprogs`)

// TestRecordIPA records what ironic-python-agent does in the scenarios of the group that the environment names, or of
// all groups, if they are not recorded. A scenario that was changed is recorded again.
func TestRecordIPA(t *testing.T) {
	only := os.Getenv(recordEnv)
	if only == "" {
		t.Skip(recordEnv + " names no group")
	}
	i := ipaImage(t)
	for _, g := range groups() {
		if g.name != only && only != "all" {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			r := readRecording(t, g.name)
			if r.Scenarios == nil {
				r.Scenarios, r.Digests = map[string]observation{}, map[string]string{}
			}
			known := map[string]bool{}
			for _, s := range g.scenarios {
				known[s.name] = true
			}
			maps.DeleteFunc(r.Scenarios, func(name string, _ observation) bool { return !known[name] })
			maps.DeleteFunc(r.Digests, func(name, _ string) bool { return !known[name] })
			missing := func(s scenario) bool { return r.Digests[s.name] != s.digest() }
			m := g.run(t, i, missing, func(s scenario, o observation) {
				t.Logf("recorded %s", s.name)
				r.Scenarios[s.name], r.Digests[s.name] = o, s.digest()
				r.write(t, g.name)
			})
			versions, err := m.control.Versions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r.Versions = map[string]string{}
			for _, name := range recordedPackages {
				if version := versions[name]; version != "" {
					r.Versions[name] = version
				}
			}
			r.write(t, g.name)
		})
	}
}

// ipaImage returns the ramdisk with ironic-python-agent.
func ipaImage(t *testing.T) image {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap", "cpio", "zstd")
	debs := debtest.Packages(t, "", "linux-image-amd64:amd64", "linux-image-")
	built, err := ipa.Build(t.Context(), debs[len(debs)-1], t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return image{built.Kernel, built.Initramfs}
}
