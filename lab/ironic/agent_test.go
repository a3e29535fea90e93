//go:build linux && long

package ironic

import (
	"context"
	_ "embed"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/debootstrap"
)

// The files of a ramdisk with ironic-python-agent.
var (
	//go:embed ipa/init
	agentInit string
	//go:embed ipa/udhcpc
	agentDHCP string
	//go:embed ipa/steps.py
	agentSteps string
	//go:embed ipa/customize.sh
	agentCustomize string
)

// agentPackages are the packages of Debian in the ramdisk: a kernel for virtual machines, the libraries of
// ironic-python-agent, and the programs that it calls.
func agentPackages() []string {
	return strings.Fields(`linux-image-cloud-amd64 udev kmod busybox iproute2 procps psmisc file
		python3-cryptography python3-eventlet python3-oslo.concurrency python3-oslo.config python3-oslo.log
		python3-oslo.service python3-oslo.utils python3-pbr python3-pint python3-psutil python3-pyudev python3-requests
		python3-stevedore python3-tenacity python3-tooz python3-werkzeug python3-yaml python3-zeroconf
		dmidecode dosfstools e2fsprogs efibootmgr ethtool fdisk gdisk genisoimage hdparm lshw mdadm nvme-cli parted
		pciutils qemu-utils smartmontools`)
}

// agentVersion is the version of ironic-python-agent in Debian trixie, which docs/migration.md names. It is part of the
// cache key.
const agentVersion = "10.2.0"

// pythonAgent describes a ramdisk with ironic-python-agent.
type pythonAgent struct {
	Kernel, Ramdisk string // paths
	Version         string // of Debian's package
}

// buildAgent builds a ramdisk with the ironic-python-agent of Debian trixie and a hardware manager with the steps of
// the command stepmanager, or takes it from the cache. The ramdisk's process 1 is a script that starts the agent.
func buildAgent(ctx context.Context, progress io.Writer) (pythonAgent, error) {
	steps := strings.ReplaceAll(agentSteps, "@REPORT_URL@", "http://"+managerAddress)
	dir, err := debootstrap.Ramdisk{
		Name: "ipa", Suite: Trixie, Packages: agentPackages(), Version: agentVersion,
		Files: map[string]string{
			"init": agentInit, "udhcpc": agentDHCP, "steps.py": steps, "customize.sh": agentCustomize,
		},
	}.Build(ctx, progress)
	if err != nil {
		return pythonAgent{}, err
	}
	version, err := os.ReadFile(filepath.Join(dir, "version"))
	return pythonAgent{
		filepath.Join(dir, "kernel"), filepath.Join(dir, "initramfs"), strings.TrimSpace(string(version)),
	}, err
}

// pythonAgentRamdisk builds the ramdisk for a test.
func pythonAgentRamdisk(t *testing.T, ctx context.Context) pythonAgent {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap", "cpio", "zstd")
	agent, err := buildAgent(ctx, t.Output())
	step(t, "build", err)
	t.Logf("ironic-python-agent %s", agent.Version)
	if !strings.HasPrefix(agent.Version, agentVersion+"-") {
		t.Errorf("ironic-python-agent: got version %s, want %s, as in docs/migration.md", agent.Version, agentVersion)
	}
	return agent
}
