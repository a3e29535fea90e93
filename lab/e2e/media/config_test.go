//go:build linux

package media

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// joined appends archives to a ramdisk: the first uncompressed, the second compressed by gzip, the third by
// Zstandard.
func joined(t *testing.T, ramdisk string, archives [3][]byte) string {
	t.Helper()
	data, err := os.ReadFile(ramdisk)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(archives[1]); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	data = append(append(data, archives[0]...), zipped.Bytes()...)
	return rig.WriteFile(t, filepath.Join(t.TempDir(), "joined"), string(encoder.EncodeAll(archives[2], data)))
}

// TestJoinedConfiguration boots a ramdisk with appended archives: configuration, a certificate authority, and a
// program that leaves mounts behind. The floppy with the usual label contains Ironic's address. The command line, and
// a medium that only its model identifies as a floppy, contain wrong addresses. The machine has one small disk. A
// disk that can hold a system is plugged in while the agent waits for one.
//
// Parity: D1, D4, J3
func TestJoinedConfiguration(t *testing.T) {
	t.Parallel()
	ns := rig.NewNamespace(t)
	wrong := rig.NewDecoy(t, ns)
	premount := filepath.Join(t.TempDir(), "premount")
	testenv.Run(t, "go", "build", "-C", testenv.Top(t), "-trimpath", "-ldflags", "-s -w", "-o", premount,
		"./lab/e2e/guest/premount")
	program, err := os.ReadFile(premount)
	if err != nil {
		t.Fatal(err)
	}
	late := rig.File(t, "late", 5<<30, nil)
	certificate, key := issue(t)
	r := rig.Start(t, rig.Setup{
		Config: map[string]any{"tls_min_version": nil}, AgentCA: certificate,
		Namespace: ns, NoIronic: true,
		Append: "rdinit=/premount ipa-insecure=0 ipa-disk-wait-attempts=100 boot_method=vmedia " + wrong.APIParameter(),
		Machine: qemu.Config{
			Memory: 512 * rig.MiB,
			Disks:  []qemu.Disk{{Bus: qemu.SCSI, Size: 64 * rig.MiB, File: filepath.Join(t.TempDir(), "small")}},
			Extra: append(rig.BMCFloppy(rig.FATImage(t, rig.MiB, "OTHER", wrong.APIParameter()), "ACME",
				"Virtual Media"),
				"-blockdev", "driver=file,node-name=late,filename="+late),
		},
		Prepare: func(r *rig.Rig, c *qemu.Config) {
			c.Disks = append(c.Disks, qemu.Disk{Bus: qemu.USB, File: rig.FATImage(t, rig.MiB, "IR-VFD-DEV",
				r.APIParameter())})
			const conf = "[DEFAULT]\ncafile = /etc/site.pem\ncollect_lldp = true\nlldp_timeout = 1\n" +
				"listen_tls = true\ntls_cert_file = /etc/agent.crt\ntls_key_file = /etc/agent.key\n" +
				"advertise_protocol = https\n"
			c.Initrd = joined(t, c.Initrd, [3][]byte{
				testenv.Archive(t, cpio.StaticFile("etc/ironic-python-agent.d/50-site.conf", conf, 0o600)),
				testenv.Archive(t, cpio.StaticFile("premount", string(program), 0o755)),
				testenv.Archive(t, cpio.StaticFile("etc/site.pem", string(r.Conductor.CertificatePEM()), 0o644),
					cpio.StaticFile("etc/agent.crt", certificate, 0o644), cpio.StaticFile("etc/agent.key", key, 0o600)),
			})
		},
	})
	r.WaitAgent(t)
	t.Run("certificate", func(t *testing.T) { staticCertificate(t, r, certificate) })
	t.Run("hot-plug", func(t *testing.T) { hotPlug(t, r) }) // an inventory waits for the root disk too
	t.Run("options", func(t *testing.T) { collectsLLDP(t, r) })
	t.Run("mounts", func(t *testing.T) { noConfigDrive(t, r) })
}

// collectsLLDP checks that an inventory contains an interface's neighbours, even if there are none. Only a
// configuration file requests them.
func collectsLLDP(t *testing.T, r *rig.Rig) {
	var inventory struct {
		Interfaces []struct{ LLDP json.RawMessage }
	}
	if err := json.Unmarshal([]byte(r.Succeed(t, "poll.get_hardware_info", nil)), &inventory); err != nil {
		t.Fatal(err)
	}
	if len(inventory.Interfaces) != 1 || string(inventory.Interfaces[0].LLDP) != "[]" {
		t.Errorf("got interfaces %s, want one with an empty list of neighbours", inventory.Interfaces)
	}
}

// noConfigDrive checks the mounts in the log archive.
func noConfigDrive(t *testing.T, r *rig.Rig) {
	mounts := r.Logs(t)["mount"]
	if !strings.Contains(mounts, " on /run type tmpfs") || strings.Contains(mounts, "/mnt/config") {
		t.Errorf("got mounts\n%swant /run among them and /mnt/config not", mounts)
	}
}

// hotPlug requests clean steps, which waits for a disk that can hold a system, and plugs one in.
func hotPlug(t *testing.T, r *rig.Rig) {
	type answer struct {
		record *conductor.Record
		err    error
	}
	answers := make(chan answer, 1)
	ctx := rig.Soon(t)
	go func() {
		record, err := r.Node.Command(ctx, "clean.get_clean_steps", map[string]any{
			"node": map[string]any{
				"uuid": r.Node.UUID(), "properties": map[string]any{}, "instance_info": map[string]any{},
			}, "ports": []any{},
		}, true)
		answers <- answer{record, err}
	}()
	if _, err := r.Machine.Console().Follow(ctx,
		regexp.MustCompile(`waiting for the root disk limit=5m0s .*/dev/sd`)); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-answers:
		t.Fatalf("got %+v and %v without a disk", a.record, a.err)
	default:
	}
	plugged := time.Now()
	if _, err := r.Machine.QMP(ctx, "device_add",
		map[string]any{"driver": "scsi-hd", "bus": "scsi.0", "scsi-id": 5, "drive": "late"}); err != nil {
		t.Fatal(err)
	}
	a := <-answers
	if a.err != nil || a.record.Status != conductor.Succeeded {
		t.Fatalf("got %+v and %v", a.record, a.err)
	}
	took := time.Since(plugged)
	t.Logf("the wait ended %v after the disk was plugged in", took.Round(time.Millisecond))
	if took > 4*time.Minute { // the limit is five; a busy host needs many seconds for the command
		t.Errorf("the wait ended %v after the disk was plugged in, want it long before the limit", took)
	}
	if _, err := r.Machine.Console().Follow(ctx, regexp.MustCompile(`root disk found`)); err != nil {
		t.Error(err)
	}
}

// TestBadMedia boots with damaged media and media with invalid content. Each causes a warning with the device's name;
// the settings of the kernel's command line apply.
func TestBadMedia(t *testing.T) {
	t.Parallel()
	ns := rig.NewNamespace(t)
	wrong := rig.NewDecoy(t, ns)
	iso := rig.ISOImage(t, "VMEDIA_BOOT_ISO", map[string]string{"etc/ironic-python-agent.d/a.conf": wrong.Conf()})
	truncate(t, iso, 40<<10) // volume descriptors without a directory
	r := rig.Start(t, rig.Setup{Namespace: ns, Append: "boot_method=vmedia", Machine: qemu.Config{
		Memory: 512 * rig.MiB, CDROM: iso,
		Disks: []qemu.Disk{
			{Bus: qemu.USB, File: rig.FATImage(t, rig.MiB, "ir-vfd-dev", wrong.APIParameter()+"\x00\x01 \x00")},
			{Bus: qemu.USB, File: rig.FATImage(t, rig.MiB, "ir-vfd-dev", strings.Repeat(wrong.APIParameter()+" ",
				4000))},
			{Bus: qemu.USB, File: circle(t)},
		},
	}})
	r.WaitAgent(t)
	for _, want := range []string{
		`device=/dev/sr0 err="ISO 9660 `, `device=/dev/sd\w err=".*parameters\.txt on /dev/sd\w: byte \d+ is zero`,
		`device=/dev/sd\w err=".*parameters\.txt on /dev/sd\w has \d+ bytes, want at most 65536`,
		`device=/dev/sd\w err="FAT directory .*/.* has more than`,
	} {
		want = "WARN .*virtual medium not usable.*" + want
		if n := len(regexp.MustCompile(want).FindAllString(rig.WaitConsole(t, r.Machine, want), -1)); n != 1 {
			t.Errorf("got %d warnings that match %s, want one", n, want)
		}
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// circle returns a FAT file system whose root directory never ends.
func circle(t *testing.T) string {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat")
	image := rig.File(t, "circle", 40*rig.MiB, nil)
	testenv.Run(t, "mkfs.vfat", "-F", "32", "-s", "1", "-n", "ir-vfd-dev", image)
	sector := rig.Read(t, image, 0, 512)
	table := int64(sector[14]) + int64(sector[15])<<8 // reserved sectors
	rig.Patch(t, image, table*512+2*4, []byte{2, 0, 0, 0})
	rig.Patch(t, image, (table+2*(int64(sector[36])+int64(sector[37])<<8))*512, bytes.Repeat([]byte{0xe5}, 512))
	return image
}
