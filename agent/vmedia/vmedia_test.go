package vmedia

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

const (
	mib = 1 << 20
	usb = "pci0000:00/0000:00:14.0/usb1/1-%d/1-%d:1.0/host%d/target%d:0:0/%d:0:0:0"
)

// machine is a fixture tree to which media are attached.
type machine struct {
	t       *testing.T
	root    string
	devices int
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir()}
	m.write("sys/block/loop0/size", "0")
	return m
}

func (m *machine) write(name, content string) {
	m.t.Helper()
	write(m.t, filepath.Join(m.root, name), content)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// attach plugs in a device of a SCSI type ("0" disk, "5" optical) with an image as its content.
func (m *machine) attach(name, bus, kind, model, image string, size int64) {
	m.t.Helper()
	m.devices++
	if strings.Contains(bus, "%") {
		bus = fmt.Sprintf(bus, m.devices, m.devices, m.devices, m.devices, m.devices)
	}
	device := filepath.Join(m.root, "sys/devices", bus)
	write(m.t, filepath.Join(device, "type"), kind)
	write(m.t, filepath.Join(device, "model"), model)
	write(m.t, filepath.Join(device, "block", name, "size"), fmt.Sprint(size/512))
	write(m.t, filepath.Join(device, "block", name, "removable"), "1")
	m.link(device, filepath.Join(device, "block", name, "device"))
	m.link(filepath.Join(device, "block", name), filepath.Join(m.root, "sys/class/block", name))
	m.link(filepath.Join(device, "block", name), filepath.Join(m.root, "sys/block", name))
	m.link(image, filepath.Join(m.root, "dev", name))
}

// partition creates a partition of a disk.
func (m *machine) partition(disk, name, image string) {
	m.t.Helper()
	real, err := filepath.EvalSymlinks(filepath.Join(m.root, "sys/class/block", disk))
	if err != nil {
		m.t.Fatal(err)
	}
	write(m.t, filepath.Join(real, name, "partition"), "1")
	write(m.t, filepath.Join(real, name, "size"), "2048")
	m.link(filepath.Join(real, name), filepath.Join(m.root, "sys/class/block", name))
	m.link(image, filepath.Join(m.root, "dev", name))
}

func (m *machine) link(target, path string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		m.t.Fatal(err)
	}
}

const (
	// readable is long enough to read media on a busy machine. If a medium cannot be read, it elapses completely: such
	// tests run in a bubble.
	readable = 6 * time.Second
	// short limits the wait for a device that does not appear.
	short = 100 * time.Millisecond
)

// options returns options for the machine with a short grace and a limit that no test reaches: a wait for a device
// that must appear ends with the context of the test.
func (m *machine) options(cmdline string) Options {
	return Options{
		System: sysfs.Root{Path: m.root}, Params: config.ParseCmdline(cmdline), Root: filepath.Join(m.root, "ramdisk"),
		drivers: time.Hour, limit: time.Hour, scan: time.Hour, grace: 20 * time.Millisecond,
	}
}

// unchanging are drives whose changes are not reported, so that the waits for them run in a bubble of testing/synctest:
// while media are read, its time stands still.
type unchanging struct{ removableDrives }

func (unchanging) await(ctx context.Context, done func() (bool, error)) error {
	if ok, err := done(); ok || err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// limited returns a context that limits the waits of a test.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func floppy(t *testing.T, label, file, content string) string {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat", "mcopy")
	image, source := testenv.SparseFile(t, mib), filepath.Join(t.TempDir(), "file")
	write(t, source, content)
	testenv.Run(t, "mkfs.vfat", "-n", label, image)
	testenv.Run(t, "mcopy", "-i", image, source, "::/"+file)
	return image
}

// iso makes an image whose files stand in the order of their names, whatever the order of the directory.
func iso(t *testing.T, label, publisher string, files map[string]string) string {
	t.Helper()
	testenv.Programs(t, "genisoimage")
	dir, image, order := t.TempDir(), filepath.Join(t.TempDir(), "image.iso"), filepath.Join(t.TempDir(), "order")
	var weights strings.Builder // the heaviest file comes first
	for i, name := range slices.Sorted(maps.Keys(files)) {
		write(t, filepath.Join(dir, name), files[name])
		fmt.Fprintf(&weights, "%s %d\n", filepath.Join(dir, name), len(files)-i)
	}
	write(t, order, weights.String())
	testenv.Run(t, "genisoimage", "-quiet", "-r", "-J", "-V", label, "-publisher", publisher, "-sort", order,
		"-o", image, dir)
	return image
}

const cmdline = "ipa-api-url=http://cmdline ipa-debug=0 boot_method=vmedia BOOTIF=01-52-54-00-00-00-01"

func TestFloppy(t *testing.T) {
	t.Parallel()
	content := "ipa-api-url=http://floppy ipa-agent-token=abc\nipa-debug=1\n\tquoted=\"x y\""
	named := floppy(t, "IR-VFD-DEV", "parameters.txt", content)
	other := floppy(t, "OTHER", "parameters.txt", content)
	over := map[string]string{
		"ipa-api-url": "http://floppy", "ipa-agent-token": "abc", "ipa-debug": "1", "quoted": `"x`,
	}
	for name, c := range map[string]struct {
		cmdline string
		attach  func(m *machine)
		want    map[string]string
		err     string
	}{
		"label": {cmdline, func(m *machine) { m.attach("sda", usb, "0", "Stick", named, mib) }, over, ""},
		"label, optical": {
			cmdline, func(m *machine) { m.attach("sr0", "pci/ata1/host1", "5", "DVD", named, mib) }, over, "",
		},
		"model": {cmdline, func(m *machine) { m.attach("sda", usb, "0", "Acme VIRTUAL Media", other, mib) }, over, ""},
		"label before model": {cmdline, func(m *machine) {
			m.attach("sda", usb, "0", "Virtual Media", floppy(t, "WRONG", "parameters.txt", "wrong=1"), mib)
			m.attach("sdb", usb, "0", "Stick", named, mib)
		}, over, ""},
		"no vmedia boot": {
			"ipa-api-url=http://cmdline",
			func(m *machine) { m.attach("sda", usb, "0", "Virtual Media", named, mib) }, nil, "",
		},
		"another method": {
			"boot_method=pxe ipa-api-url=x",
			func(m *machine) { m.attach("sda", usb, "0", "Virtual Media", named, mib) }, nil, "",
		},
		"tenant's disk": {
			cmdline, func(m *machine) { m.attach("sda", "pci/ata1/host1", "0", "Virtual Media", named, mib) }, nil, "",
		},
		"built in": {cmdline, func(m *machine) {
			m.attach("sda", usb, "0", "Virtual Media", named, mib)
			m.write("sys/class/block/sda/removable", "0")
		}, nil, ""},
		"large USB disk": {
			cmdline, func(m *machine) { m.attach("sda", usb, "0", "Virtual Media", named, 4<<30) }, nil, "",
		},
		"neither of both": {cmdline, func(m *machine) { m.attach("sda", usb, "0", "Stick", other, mib) }, nil, ""},
		"partition": {cmdline, func(m *machine) {
			m.attach("sda", usb, "0", "Virtual Media", testenv.SparseFile(t, mib), mib)
			m.partition("sda", "sda1", named)
		}, nil, ""},
		"nothing":         {cmdline, func(*machine) {}, nil, ""},
		"nothing, no URL": {"boot_method=vmedia", func(*machine) {}, nil, ""},
		"without the file": {
			cmdline, func(m *machine) { m.attach("sda", usb, "0", "S", floppy(t, "ir-vfd-dev", "x.txt", ""), mib) },
			nil, "parameters.txt on /dev/sda: file does not exist",
		},
		"too large": {cmdline, func(m *machine) {
			m.attach("sda", usb, "0", "S",
				floppy(t, "ir-vfd-dev", "parameters.txt", strings.Repeat("a=b ", 20000)), mib)
		}, nil, "has 80000 bytes"},
		"rubbish": {cmdline, func(m *machine) {
			m.attach("sda", usb, "0", "S", floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-api-url=http://x\x00y"), mib)
		}, nil, "parameters.txt on /dev/sda: byte 20 is zero"},
		"invalid and valid floppy": {cmdline, func(m *machine) {
			m.attach("sda", usb, "0", "S", floppy(t, "ir-vfd-dev", "parameters.txt", "a=\xff"), mib)
			m.attach("sdb", usb, "0", "S", named, mib)
		}, over, "parameters.txt on /dev/sda: got invalid UTF-8"},
		"a directory in its place": {cmdline, func(m *machine) {
			m.attach("sda", usb, "0", "S", iso(t, "ir-vfd-dev", "", map[string]string{"parameters.txt/x": ""}), mib)
		}, nil, "parameters.txt on /dev/sda is not a regular file"},
		"ISO cut off": {cmdline, func(m *machine) {
			m.attach("sr0", "pci/ata1/host1", "5", "D",
				cutOff(t, iso(t, "VMEDIA_BOOT_ISO", "", map[string]string{"a": "b"}), 40<<10), mib)
		}, nil, "/dev/sr0: ISO 9660"},
		"file cut off": {cmdline, func(m *machine) {
			image := iso(t, "VMEDIA_BOOT_ISO", "", map[string]string{
				"etc/ironic-python-agent/a.conf": "[DEFAULT]\n",
				"etc/ironic-python-agent/b.crt":  strings.Repeat("x", 64<<10),
			})
			m.attach("sr0", "pci/ata1/host1", "5", "D", cutOff(t, image, 100<<10), mib)
		}, nil, "etc/ironic-python-agent/b.crt on /dev/sr0"},
		"boot ISO in a drive of that model": {cmdline, func(m *machine) {
			m.attach("sr0", "pci/ata1/host1", "5", "Virtual Media",
				iso(t, "VMEDIA_BOOT_ISO", "", map[string]string{"vmlinuz": "x"}), mib)
		}, nil, ""},
		"another ISO in a drive of that model": {cmdline, func(m *machine) {
			m.attach("sr0", "pci/ata1/host1", "5", "Virtual Media",
				iso(t, "INSTALL_IMAGE", "", map[string]string{"vmlinuz": "x"}), mib)
		}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			c.attach(m)
			o := m.options(c.cmdline)
			if name == "nothing, no URL" {
				o.limit = short
			}
			want := maps.Clone(o.Params)
			maps.Copy(want, c.want)
			got, err := New(o).Load(limited(t))
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err != "" && (!errors.Is(err, ErrMedia) || !strings.Contains(err.Error(), c.err)):
				t.Errorf("got %v, want ErrMedia with %q", err, c.err)
			}
			if diff := cmp.Diff(map[string]string(want), map[string]string(got)); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
			if files, err := filepath.Glob(filepath.Join(o.Root, "etc/*/*")); err != nil || len(files) > 0 {
				t.Errorf("got files %q and %v, want none of a medium that cannot be copied in full", files, err)
			}
		})
	}
}

// Media that could not be used are read again until all of them were read. Configuration that was read before counts
// although its medium is gone.
//
// Parity: D1, D3
func TestAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := map[string]string{"etc/ironic-python-agent.d/ca.conf": "[DEFAULT]\n"}
		m := newMachine(t)
		m.attach("sda", usb, "0", "S",
			floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-api-url=http://floppy ipa-debug=1"), mib)
		// Reading a directory fails as reading a bad medium does.
		m.attach("sr0", "pci/ata1/host1", "5", "D", t.TempDir(), mib)
		o := m.options(cmdline)
		o.limit, o.drives = readable, unchanging{}
		media := New(o)
		step := func(when, read string, want map[string]string, wantErr bool) {
			t.Helper()
			load := media.Again
			if read == "Load" {
				load = media.Load
			}
			got, err := load(t.Context())
			if errors.Is(err, ErrMedia) != wantErr || err != nil && !wantErr {
				t.Errorf("%s: got error %v, want one %v", when, err, wantErr)
			}
			if diff := cmp.Diff(want, map[string]string(got)); diff != "" {
				t.Errorf("%s: parameters differ (-want +got):\n%s", when, diff)
			}
		}
		replace := func(device, image string) {
			t.Helper()
			if err := os.Remove(filepath.Join(m.root, "dev", device)); err != nil {
				t.Fatal(err)
			}
			if image != "" {
				m.link(image, filepath.Join(m.root, "dev", device))
			}
		}
		merged := maps.Clone(o.Params)
		merged["ipa-api-url"], merged["ipa-debug"] = "http://floppy", "1"
		detach := func(device string) {
			t.Helper()
			if err := os.Remove(filepath.Join(m.root, "sys/block", device)); err != nil {
				t.Fatal(err)
			}
		}
		step("bad ISO", "Load", merged, true)
		detach("sda")
		m.attach("sdb", usb, "0", "S", floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-api-url=http://second"), mib)
		merged["ipa-api-url"] = "http://second"
		step("another floppy", "Again", merged, true)
		detach("sdb")
		step("floppy gone", "Again", merged, true)
		detach("sr0")
		step("ISO gone", "Again", merged, false)
		drive, err := filepath.EvalSymlinks(filepath.Join(m.root, "sys/class/block/sr0"))
		if err != nil {
			t.Fatal(err)
		}
		m.link(drive, filepath.Join(m.root, "sys/block/sr0"))
		replace("sr0", iso(t, "VMEDIA_BOOT_ISO", "", ca))
		step("good ISO", "Again", merged, false)
		if files, err := filepath.Glob(filepath.Join(o.Root, "etc/*/*")); err != nil || len(files) != 1 {
			t.Errorf("got files %q and %v, want that of the ISO", files, err)
		}
		step("all read", "Again", nil, false)
	})
}

// cutOff keeps the beginning of an image.
func cutOff(t *testing.T, image string, size int64) string {
	t.Helper()
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	return image
}

// Valid and invalid texts of parameters.
func TestParseParameters(t *testing.T) {
	for text, want := range map[string]config.Params{
		"a=1 b=2\n":              {"a": "1", "b": "2"},
		"a=1\r\nb=2\r\n":         {"a": "1", "b": "2"},
		"\ufeffa=1":              {"a": "1"},
		"a=1\n\x00\x00\x00":      {"a": "1"},
		"no word\n=x\n#c\na=\n":  {"a": ""},
		`a="b c=d" 'e=f g'`:      {"a": `"b`, "c": `d"`, "'e": "f"},
		"":                       {},
		"a=" + longName + " b=ü": {"a": longName, "b": "ü"},
		"a\x00=1":                nil,
		"a=\xff":                 nil,
		"a\x00=\x001\x00":        nil, // UTF-16
	} {
		got, err := parseParameters([]byte(text))
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != (want == nil) {
			t.Errorf("%q: error %v, parameters (-want +got):\n%s", text, err, diff)
		}
	}
}

// FuzzParameters checks that accepted data is text, and that it parses like the kernel's command line.
func FuzzParameters(f *testing.F) {
	for _, text := range []string{
		"", "ipa-api-url=http://192.0.2.1 ipa-debug=1\n", "a=1\r\n\x00\x00", "\ufeffa=1", "a\x00=1",
		`sshkey="a b" c=d`, "a=\xff", "= == a",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		params, err := parseParameters(data)
		if err != nil {
			if len(data) == 0 || params != nil {
				t.Fatalf("%q: got %v and %v", data, params, err)
			}
			return
		}
		for name, value := range params {
			if strings.ContainsAny(name+value, "\x00") || !utf8.ValidString(name+value) ||
				!bytes.Contains(data, []byte(value)) {
				t.Errorf("%q: got %q=%q", data, name, value)
			}
		}
	})
}

// Values of the floppy, the agent's token among them, are not logged.
func TestNoSecretsInLog(t *testing.T) {
	m := newMachine(t)
	m.attach("sda", usb, "0", "S", floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-agent-token=verysecret"), mib)
	var log testenv.Log
	o := m.options(cmdline)
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := New(o).Load(limited(t)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "verysecret") || !strings.Contains(log.String(), "ipa-agent-token") {
		t.Errorf("want the name and not the value in %s", log.String())
	}
}

// config.Load finds the files of the boot ISO, including certificates. A partition or a large disk with the label is
// ignored, and without boot_method=vmedia everything is.
func TestBootISO(t *testing.T) {
	testenv.Programs(t, "genisoimage")
	files := map[string]string{
		"etc/ironic-python-agent/ironic.crt":           "certificate",
		"etc/ironic-python-agent.d/ironic-tls.conf":    "[DEFAULT]\ncafile = /etc/ironic-python-agent/ironic.crt\n",
		"etc/ironic-python-agent.d/below/not.conf":     "x",
		"etc/ironic-python-agent.d/" + longName + ".x": "long",
		"etc/passwd":                                     "no",
		"openstack/latest/meta_data.json":                "{}",
		"etc/ironic-python-agent/with a space and (.crt": "y",
	}
	want := []string{
		"ironic-python-agent/ironic.crt", "ironic-python-agent/with a space and (.crt",
		"ironic-python-agent.d/ironic-tls.conf", "ironic-python-agent.d/" + longName + ".x",
	}
	for name, c := range map[string]struct {
		cmdline string
		attach  func(m *machine)
		want    []string
	}{
		"optical": {cmdline, func(m *machine) {
			m.attach("sr0", "pci/ata1/host1", "5", "DVD", iso(t, "CONFIG-2", "", files), mib)
		}, want},
		"usb": {cmdline, func(m *machine) {
			m.attach("sda", usb, "0", "Stick", iso(t, "VMEDIA_BOOT_ISO", "", files), mib)
		}, want},
		"gate": {"ipa-api-url=http://x", func(m *machine) {
			m.attach("sr0", "pci/ata1/host1", "5", "DVD", iso(t, "config-2", "", files), mib)
		}, nil},
		"label": {cmdline, func(m *machine) {
			m.attach("sr0", "pci/ata1/host1", "5", "DVD", iso(t, "other", "", files), mib)
		}, nil},
		"disk": {cmdline, func(m *machine) {
			m.attach("sda", "pci/ata1/host1", "0", "D", iso(t, "config-2", "", files), mib)
		}, nil},
		"partition": {cmdline, func(m *machine) {
			m.attach("sda", usb, "0", "D", testenv.SparseFile(t, mib), mib)
			m.partition("sda", "sda1", iso(t, "config-2", "", files))
		}, nil},
		"empty": {cmdline, func(m *machine) {
			m.attach("sr0", "pci/ata1/host1", "5", "D", iso(t, "config-2", "", map[string]string{"a": ""}), mib)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			c.attach(m)
			o := m.options(c.cmdline)
			outside := filepath.Join(m.root, "outside") // must not be written through
			write(t, outside, "[DEFAULT]\n")
			m.link(outside, filepath.Join(o.Root, "etc/ironic-python-agent.d/ironic-tls.conf"))
			if _, err := New(o).Load(limited(t)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, pattern := range []string{"*", "*/*", "*/*/*"} {
				found, err := filepath.Glob(filepath.Join(o.Root, "etc", pattern))
				if err != nil {
					t.Fatal(err)
				}
				for _, path := range found {
					info, err := os.Lstat(path)
					if err != nil || !info.Mode().IsRegular() {
						continue
					}
					if info.Mode().Perm() != 0o600 {
						t.Errorf("%s: got mode %v, want 0600", path, info.Mode())
					}
					got = append(got, strings.TrimPrefix(path, o.Root+"/etc/"))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if data, err := os.ReadFile(outside); err != nil || string(data) != "[DEFAULT]\n" {
				t.Errorf("a link was written through: %q, %v", data, err)
			}
			settings, err := config.Load(config.Sources{
				Params: o.Params, ConfigDirs: []string{filepath.Join(o.Root, "etc/ironic-python-agent.d")},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := settings.CAFile != ""; got != (c.want != nil) {
				t.Errorf("cafile: got %q, configuration expected: %v", settings.CAFile, c.want != nil)
			}
		})
	}
}

var longName = strings.Repeat("long-", 10)

func TestNetworkData(t *testing.T) {
	data := map[string]string{networkFile: `{"links": []}`}
	const id = "0b5e55ed-1c67-4d1e-9e0c-3e8a6f2f9d11"
	mine := iso(t, "config-2", strings.ToUpper(id), data)
	foreign := iso(t, "config-2", "somebody", map[string]string{networkFile: "foreign"})
	anonymous := iso(t, "config-2", "", data)
	upper := iso(t, "CONFIG-2", strings.ToUpper(id), data)
	for name, c := range map[string]struct {
		cmdline string
		attach  func(m *machine)
		want    bool
	}{
		"two drives": {"boot_method=vmedia ir_pub_id=" + id, func(m *machine) {
			m.attach("sr0", "pci/ata1/host1", "5", "D", foreign, mib)
			m.attach("sr1", "pci/ata2/host2", "5", "D", mine, mib)
		}, true},
		"another's": {
			"ir_pub_id=" + id, func(m *machine) { m.attach("sr0", "pci/ata1/host1", "5", "D", foreign, mib) }, false,
		},
		"no id asked for": {"", func(m *machine) { m.attach("sr0", "pci/ata1/host1", "5", "D", mine, mib) }, false},
		"neither has an id": {
			"", func(m *machine) { m.attach("sr0", "pci/ata1/host1", "5", "D", anonymous, mib) }, true,
		},
		"BOOTIF": {
			"BOOTIF=01-52-54-00-00-00-01",
			func(m *machine) { m.attach("sr0", "pci/ata1/host1", "5", "D", anonymous, mib) }, false,
		},
		"BOOTIF and id": {
			"BOOTIF=01-52-54-00-00-00-01 ir_pub_id=" + id,
			func(m *machine) { m.attach("sr0", "pci/ata1/host1", "5", "D", mine, mib) }, true,
		},
		"upper label": {
			"ir_pub_id=" + id, func(m *machine) { m.attach("sr0", "pci/ata1/host1", "5", "D", upper, mib) }, true,
		},
		"tenant's disk": {
			"ir_pub_id=" + id, func(m *machine) { m.attach("sda", "pci/ata1/host1", "0", "D", mine, mib) }, false,
		},
		"tenant's partition": {"ir_pub_id=" + id, func(m *machine) {
			m.attach("sda", "pci/ata1/host1", "0", "D", testenv.SparseFile(t, mib), mib)
			m.partition("sda", "sda1", mine)
		}, false},
		"small USB stick": {"ir_pub_id=" + id, func(m *machine) { m.attach("sda", usb, "0", "D", mine, mib) }, true},
		"no file": {"", func(m *machine) {
			m.attach("sr0", "pci/ata1/host1", "5", "D", iso(t, "config-2", "", map[string]string{"a": "b"}), mib)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			c.attach(m)
			media := New(m.options(c.cmdline))
			ctx, overdue := limited(t), func() {}
			if !c.want && media.NetworkDataExpected() { // overdue is called after the media were read
				ctx, overdue = context.WithCancel(ctx)
			} else if !c.want {
				media.limit = short
			}
			got, err := media.NetworkData(ctx, overdue)
			if err != nil && !errors.Is(err, context.Canceled) || (got != nil) != c.want ||
				c.want && string(got) != data[networkFile] {
				t.Errorf("got %q, %v, found expected: %v", got, err, c.want)
			}
		})
	}
}

// A config drive of another boot is logged, whether it appears before the node's own or after it.
func TestConfigDriveOfAnotherBoot(t *testing.T) {
	const id = "0b5e55ed-1c67-4d1e-9e0c-3e8a6f2f9d11"
	drives := []string{
		iso(t, "config-2", id, map[string]string{networkFile: `{"links": []}`}), iso(t, "config-2", "somebody", nil),
	}
	parameters := floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-api-url=http://floppy")
	for _, foreign := range []string{"sr0", "sr1"} {
		m := newMachine(t)
		m.afterLooks("ahci\n", func() {}, func() { m.attach("sda", usb, "0", "S", parameters, mib) }) // three looks
		for i, name := range []string{"sr0", "sr1"} {
			drive := drives[0]
			if name == foreign {
				drive = drives[1]
			}
			m.attach(name, fmt.Sprintf("pci/ata%d/host%d", i+1, i+1), "5", "D", drive, mib)
		}
		var log bytes.Buffer
		o := m.options("boot_method=vmedia ir_pub_id=" + id)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		media := New(o)
		if _, err := media.Load(limited(t)); err != nil {
			t.Fatal(err)
		}
		if data, err := media.NetworkData(limited(t), func() {}); err != nil || data == nil {
			t.Errorf("foreign drive %s: got %q, %v, want the data of the other one", foreign, data, err)
		}
		if got := strings.Count(log.String(), "config drive of another boot ignored"); got != 1 ||
			!strings.Contains(log.String(), "publisher=SOMEBODY") &&
				!strings.Contains(log.String(), "publisher=somebody") {
			t.Errorf("foreign drive %s: it is named %d times, want once:\n%s", foreign, got, log.String())
		}
	}
}

// The network does not wait for a drive that does not appear, but a late drive is used. A boot ISO without network data
// ends the search at once.
func TestNetworkDataLate(t *testing.T) {
	const id = "0b5e55ed-1c67-4d1e-9e0c-3e8a6f2f9d11"
	drive := iso(t, "config-2", id, map[string]string{networkFile: `{"links": []}`})
	for name, cmdline := range map[string]string{
		"announced": "boot_method=vmedia ir_pub_id=" + id, "an id alone": "ir_pub_id=" + id,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			o := m.options(cmdline)
			overdue := 0
			got, err := New(o).NetworkData(limited(t), func() {
				if overdue++; overdue == 1 {
					m.attach("sr0", "pci/ata1/host1", "5", "D", drive, mib)
				}
			})
			if err != nil || got == nil || overdue == 0 {
				t.Errorf("got %q, %v, overdue %d, want the data that came after overdue was called", got, err, overdue)
			}
		})
	}
	t.Run("boot ISO", func(t *testing.T) {
		m := newMachine(t)
		m.attach("sr0", "pci/ata1/host1", "5", "D",
			iso(t, "VMEDIA_BOOT_ISO", strings.ToUpper(id), map[string]string{"a": "b"}), mib)
		o := m.options("boot_method=vmedia ir_pub_id=" + id)
		o.limit, o.scan, o.grace = time.Hour, time.Hour, time.Hour
		if got, err := New(o).NetworkData(limited(t), func() {}); got != nil || err != nil {
			t.Errorf("got %q, %v, want nothing", got, err)
		}
	})
}

// NetworkData does not repeat the search of Load, whether that found data or not.
func TestNetworkDataOfLoad(t *testing.T) {
	const id = "0b5e55ed-1c67-4d1e-9e0c-3e8a6f2f9d11"
	drive := iso(t, "config-2", id, map[string]string{networkFile: `{"links": []}`})
	for name, want := range map[string]bool{"a drive": true, "none": false} {
		m := newMachine(t)
		if want {
			m.attach("sr0", "pci/ata1/host1", "5", "D", drive, mib)
		}
		var log bytes.Buffer
		o := m.options(cmdline + " ir_pub_id=" + id)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		media := New(o)
		if _, err := media.Load(limited(t)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(limited(t))
		data, err := media.NetworkData(ctx, cancel)
		if got := data != nil && err == nil; got != want {
			t.Errorf("%s: got %q, %v, found expected: %v", name, data, err, want)
		}
		if n := strings.Count(log.String(), "virtual media searched"); n != 1 {
			t.Errorf("%s: got %d searches, want one\n%s", name, n, log.String())
		}
		cancel()
	}
}

// A boot without virtual media does not wait. A boot with virtual media waits for the drivers, and longer while the
// kernel probes a USB disk.
func TestWaits(t *testing.T) {
	m := newMachine(t)
	o := m.options("ipa-api-url=x")
	o.Settled = make(chan struct{}) // never
	if _, err := New(o).Load(limited(t)); err != nil {
		t.Fatal(err)
	}
	overdue := false
	o.Params["BOOTIF"] = "01-52-54-00-00-00-01"
	if _, err := New(o).NetworkData(limited(t), func() { overdue = true }); err != nil || !overdue {
		t.Fatalf("got %v, overdue %v, want no wait", err, overdue)
	}
	for text, want := range map[string]bool{
		"": false, "boot_method=pxe": false, "boot_method=vmedia": true, "ir_pub_id=x": true,
	} {
		if got := New(m.options(text)).NetworkDataExpected(); got != want {
			t.Errorf("%q: got network data expected %v, want %v", text, got, want)
		}
	}
	if New(o).scanning() {
		t.Error("no USB host is there, got scanning")
	}
	m.write("sys/class/scsi_host/host1/proc_name", "ahci\n")
	m.write("sys/class/scsi_host/host5/proc_name", "usb-storage\n")
	if !New(o).scanning() {
		t.Error("a USB host without a target: got not scanning")
	}
	m.write("sys/class/scsi_host/host5/device/target5:0:0/x", "")
	if New(o).scanning() {
		t.Error("a USB host with its target: got scanning")
	}
	o = m.options(cmdline)
	o.Settled = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New(o).Load(ctx); err == nil {
		t.Error("a context that has ended: no error")
	}
}
