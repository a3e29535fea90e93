package vmedia

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/internal/goroutine"
)

// afterLooks calls the functions in order, each after a visit of the media that was followed by a time without changes.
// It notices these looks by a FIFO in place of the file that names the driver of a SCSI host, which is read after
// each.
func (m *machine) afterLooks(driver string, functions ...func()) {
	m.t.Helper()
	path := filepath.Join(m.root, "sys/class/scsi_host/host99/proc_name")
	m.write("sys/class/scsi_host/host99/proc_name", "")
	pipe := func() error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) }
	if err := pipe(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan error)
	goroutine.Go(func() error {
		for i, function := range functions {
			file, err := os.OpenFile(path, os.O_WRONLY, 0) // returns when the file is opened for reading
			if err != nil || m.t.Context().Err() != nil {
				return errors.Join(err, file.Close())
			}
			if i+1 < len(functions) {
				err = pipe()
			} else {
				err = errors.Join(os.Remove(path), os.WriteFile(path, []byte(driver), 0o600))
			}
			function()
			_, writing := file.WriteString(driver)
			if err = errors.Join(err, writing, file.Close()); err != nil {
				return err
			}
		}
		return nil
	}, func(err error) { ended <- err })
	m.t.Cleanup(func() { // ends the goroutine if it still waits for a reader
		for {
			file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
			if err == nil {
				defer file.Close() //nolint:errcheck // only read
			}
			select {
			case err := <-ended:
				if err != nil {
					m.t.Error(err)
				}
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

// replace changes the medium of a drive.
func (m *machine) replace(device, image string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.root, "dev", device)); err != nil {
		m.t.Error(err)
	}
	if err := os.Symlink(image, filepath.Join(m.root, "dev", device)); err != nil {
		m.t.Error(err)
	}
}

// If neither the command line nor the boot ISO contains a URL of Ironic, Load waits for the floppy.
func TestWaitsForURL(t *testing.T) {
	image := floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-api-url=http://floppy")
	for name, c := range map[string]struct {
		cmdline, conf string
		waits         bool
	}{
		"certificate only": {"boot_method=vmedia", "[DEFAULT]\ncafile = /x\n", true},
		"address":          {"boot_method=vmedia", "[DEFAULT]\napi_url = http://iso\n", false},
		"command line":     {"boot_method=vmedia ipa-api-url=http://cmdline", "[DEFAULT]\ncafile = /x\n", false},
	} {
		m := newMachine(t)
		boot := iso(t, "VMEDIA_BOOT_ISO", "", map[string]string{"etc/ironic-python-agent.d/a.conf": c.conf})
		m.attach("sr0", "pci/ata1/host1", "5", "D", boot, mib)
		m.afterLooks("ahci\n", func() { m.attach("sda", usb, "0", "S", image, mib) })
		params, err := New(m.options(c.cmdline)).Load(limited(t))
		if waited := params["ipa-api-url"] == "http://floppy"; err != nil || waited != c.waits {
			t.Errorf("%s: got %v, %v, want the floppy's address: %v", name, params, err, c.waits)
		}
	}
}

// A floppy with the label is preferred to one that is recognized by its model, also if it appears later.
func TestLabelAfterModel(t *testing.T) {
	m := newMachine(t)
	m.attach("sda", usb, "0", "Virtual Media", floppy(t, "WRONG", "parameters.txt", "ipa-api-url=http://model"), mib)
	labelled := floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-api-url=http://label")
	m.afterLooks("ahci\n", func() { m.attach("sdb", usb, "0", "S", labelled, mib) })
	params, err := New(m.options("boot_method=vmedia")).Load(limited(t))
	if err != nil || params["ipa-api-url"] != "http://label" {
		t.Errorf("got %v, %v, want the address of the medium with the label", params, err)
	}
}

// A floppy that is recognized by its model and has invalid content does not end the wait for a valid one.
func TestInvalidModelFallback(t *testing.T) {
	m := newMachine(t)
	m.attach("sda", usb, "0", "Virtual Media", floppy(t, "WRONG", "parameters.txt", "a=\xff"), mib)
	good := floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-api-url=http://label")
	m.afterLooks("ahci\n", func() {}, func() { m.attach("sdb", usb, "0", "S", good, mib) })
	params, err := New(m.options("boot_method=vmedia")).Load(limited(t))
	if !errors.Is(err, ErrMedia) || params["ipa-api-url"] != "http://label" {
		t.Errorf("got %v, %v, want the address of the second floppy, and ErrMedia for the first one", params, err)
	}
}

// The kernel scans a USB disk some time after its driver was bound. Load waits that long for the disk.
func TestUSBDiskIsWaitedFor(t *testing.T) {
	parameters := floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-debug=1")
	boot := iso(t, "VMEDIA_BOOT_ISO", "", map[string]string{"a": "b"})
	for driver, waits := range map[string]bool{"usb-storage\n": true, "uas": true, "ahci\n": false} {
		m := newMachine(t)
		m.afterLooks(driver, func() {
			m.attach("sda", usb, "0", "S", parameters, mib)
			m.attach("sr0", "pci/ata1/host1", "5", "D", boot, mib)
		})
		params, err := New(m.options(cmdline)).Load(limited(t))
		if waited := params["ipa-debug"] == "1"; err != nil || waited != waits {
			t.Errorf("driver %q: got %v, %v, want the disk's parameters: %v", driver, params, err, waits)
		}
	}
}

// A medium that cannot be read is retried until it can be. Its error is reported once.
func TestUnreadableForAWhile(t *testing.T) {
	m := newMachine(t)
	// Reading a directory fails as reading a bad medium does.
	m.attach("sr0", "pci/ata1/host1", "5", "D", t.TempDir(), mib)
	good := iso(t, "VMEDIA_BOOT_ISO", "", map[string]string{"etc/ironic-python-agent.d/a.conf": "[DEFAULT]\n"})
	m.afterLooks("ahci\n", func() {}, func() { m.replace("sr0", good) })
	o := m.options(cmdline)
	_, err := New(o).Load(limited(t))
	if !errors.Is(err, ErrMedia) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, want ErrMedia with one failure", err)
	}
	if _, err := os.Stat(filepath.Join(o.Root, "etc/ironic-python-agent.d/a.conf")); err != nil {
		t.Error(err)
	}
}

// Copying a configuration that cannot be written is retried until it succeeds.
func TestUnwritableForAWhile(t *testing.T) {
	m := newMachine(t)
	boot := iso(t, "VMEDIA_BOOT_ISO", "", map[string]string{"etc/ironic-python-agent.d/a.conf": "[DEFAULT]\n"})
	m.attach("sr0", "pci/ata1/host1", "5", "D", boot, mib)
	o := m.options(cmdline)
	obstacle := filepath.Join(o.Root, "etc")
	write(t, obstacle, "")
	m.afterLooks("ahci\n", func() {
		if err := os.Remove(obstacle); err != nil {
			t.Error(err)
		}
	})
	if _, err := New(o).Load(limited(t)); !errors.Is(err, ErrMedia) {
		t.Errorf("got %v, want ErrMedia for the first attempt", err)
	}
	if _, err := os.Stat(filepath.Join(o.Root, "etc/ironic-python-agent.d/a.conf")); err != nil {
		t.Error(err)
	}
}

// Parameters that were read again stay in effect if their medium is gone when another one is read again.
func TestAgainKeepsWhatItFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.attach("sda", usb, "0", "S", t.TempDir(), mib)
		m.attach("sr0", "pci/ata1/host1", "5", "D", t.TempDir(), mib)
		o := m.options(cmdline)
		o.limit, o.drives = readable, unchanging{}
		media := New(o)
		check := func(when, debug string, read func(context.Context) (config.Params, error)) {
			t.Helper()
			if params, err := read(limited(t)); !errors.Is(err, ErrMedia) || params["ipa-debug"] != debug {
				t.Errorf("%s: got %v, %v, want ipa-debug=%s and ErrMedia", when, params, err, debug)
			}
		}
		check("both bad", "0", media.Load)
		m.replace("sda", floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-debug=1"))
		check("floppy good", "1", media.Again)
		if err := os.Remove(filepath.Join(m.root, "sys/block/sda")); err != nil {
			t.Fatal(err)
		}
		check("floppy gone", "1", media.Again)
	})
}

// Load does not wait forever for a drive that hangs.
func TestMediaThatHang(t *testing.T) {
	m := newMachine(t)
	path := filepath.Join(t.TempDir(), "hangs")
	if err := unix.Mkfifo(path, 0o600); err != nil { // opening it waits for a writer
		t.Fatal(err)
	}
	m.attach("sr0", "pci/ata1/host1", "5", "D", path, mib)
	o := m.options(cmdline)
	o.limit = short
	params, err := New(o).Load(limited(t))
	if err != nil || params["ipa-api-url"] != "http://cmdline" {
		t.Errorf("got %v, %v, want the parameters of the command line", params, err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0) // ends the open that still waits
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}

// A failure to list the block devices is reported.
func TestNoBlockDevices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		if err := os.RemoveAll(filepath.Join(m.root, "sys/block")); err != nil {
			t.Fatal(err)
		}
		o := m.options(cmdline)
		o.limit, o.drives = readable, unchanging{}
		params, err := New(o).Load(limited(t))
		if !errors.Is(err, ErrMedia) || !strings.Contains(err.Error(), "/sys/block") {
			t.Errorf("got %v, want ErrMedia that names /sys/block", err)
		}
		if params["ipa-api-url"] != "http://cmdline" {
			t.Errorf("got %v, want the parameters of the command line", params)
		}
	})
}

// If neither the floppy nor the boot ISO is attached, that is logged.
func TestNoMediaWarning(t *testing.T) {
	for _, attached := range []bool{false, true} {
		m := newMachine(t)
		if attached {
			m.attach("sda", usb, "0", "Stick", floppy(t, "IR-VFD-DEV", "parameters.txt", "a=b"), mib)
		}
		var log bytes.Buffer
		o := m.options(cmdline)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		media := New(o)
		if params, err := media.Load(limited(t)); err != nil || (params["a"] == "b") != attached {
			t.Fatalf("got %v and %v, want the parameters of the floppy: %v", params, err, attached)
		}
		media.awaitWarnings(t)
		if got := strings.Contains(log.String(), "neither the floppy"); got == attached {
			t.Errorf("floppy attached: %v; got the warning: %v\n%s", attached, got, &log)
		}
	}
}

// Load waits for grace if there are no media yet. With an id of a config drive on the command line, NetworkData waits
// ten times as long as limit.
func TestTimeToAppear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		o := m.options(cmdline)
		o.grace, o.drives = 300*time.Millisecond, unchanging{}
		start := time.Now()
		if _, err := New(o).Load(limited(t)); err != nil || time.Since(start) < o.grace {
			t.Errorf("got %v after %v, want %v for media to appear", err, time.Since(start), o.grace)
		}
		o = m.options("ir_pub_id=x")
		o.limit, o.drives = short, unchanging{}
		start = time.Now()
		data, err := New(o).NetworkData(limited(t), func() {})
		if took := time.Since(start); data != nil || err != nil || took < 10*o.limit {
			t.Errorf("got %q, %v after %v, want nothing, and %v for the drive to appear", data, err, took, 10*o.limit)
		}
	})
}

// Load does not wait forever for drivers.
func TestDriversNeverLoad(t *testing.T) {
	m := newMachine(t)
	o := m.options(cmdline)
	o.Settled, o.drivers, o.limit = make(chan struct{}), short, short
	if params, err := New(o).Load(limited(t)); err != nil || params["ipa-api-url"] != "http://cmdline" {
		t.Errorf("got %v, %v, want the parameters of the command line", params, err)
	}
}

// Media are read although the drivers take longer than the limit for media.
func TestDriversLoadSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.attach("sda", usb, "0", "S", floppy(t, "ir-vfd-dev", "parameters.txt", "ipa-api-url=http://floppy"), mib)
		o := m.options(cmdline)
		settled := make(chan struct{})
		o.Settled, o.limit, o.drives = settled, readable, unchanging{}
		time.AfterFunc(readable+time.Second, func() { close(settled) })
		if params, err := New(o).Load(limited(t)); err != nil || params["ipa-api-url"] != "http://floppy" {
			t.Errorf("got %v, %v, want the parameters of the floppy", params, err)
		}
	})
}

// Without options the waits are the constants of the package.
func TestDefaults(t *testing.T) {
	m := newMachine(t)
	media := New(Options{System: m.options("").System})
	if media.Root != "/" || media.drivers != drivers || media.limit != limit || media.scan != scan ||
		media.grace != grace {
		t.Errorf("got root %q, limit %v, scan %v, grace %v", media.Root, media.limit, media.scan, media.grace)
	}
	o := m.options("")
	if media := New(o); media.Root != o.Root || media.limit != o.limit {
		t.Errorf("got root %q, limit %v, want %q and %v", media.Root, media.limit, o.Root, o.limit)
	}
}

// Invalid network data of a config drive are an error. The next call reads the drive again.
func TestInvalidNetworkData(t *testing.T) {
	m := newMachine(t)
	large := strings.Repeat(" ", maxNetworkData+1)
	m.attach("sr0", "pci/ata1/host1", "5", "D", iso(t, "config-2", "x", map[string]string{networkFile: large}), 8*mib)
	media := New(m.options("ir_pub_id=x"))
	for range 2 {
		data, err := media.NetworkData(limited(t), func() {})
		if data != nil || err == nil || !strings.Contains(err.Error(), "network data: "+networkFile) {
			t.Errorf("got %d bytes and %v, want an error that names the file", len(data), err)
		}
	}
	m.replace("sr0", iso(t, "config-2", "x", map[string]string{networkFile: "{}"}))
	if data, err := media.NetworkData(limited(t), func() {}); string(data) != "{}" || err != nil {
		t.Errorf("got %q, %v, want the data of the good drive", data, err)
	}
	m.replace("sr0", iso(t, "config-2", "x", map[string]string{networkFile: "{ }"}))
	if data, err := media.NetworkData(limited(t), func() {}); string(data) != "{}" || err != nil {
		t.Errorf("got %q, %v, want what was read before", data, err)
	}
}

// A cancelled wait for the config drive returns the error of the context.
func TestNetworkDataEnds(t *testing.T) {
	for _, cmdline := range []string{"", "boot_method=vmedia"} {
		m := newMachine(t)
		o := m.options(cmdline)
		ctx, cancel := context.WithCancel(t.Context())
		if data, err := New(o).NetworkData(ctx, cancel); data != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%q: got %q, %v, want an error of the context", cmdline, data, err)
		}
	}
}
