package ironic

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/internal/test/testenv"
)

// avahi runs avahi-daemon, which announces the services of files, in a network of this test's thread.
func avahi(t *testing.T, files map[string]string) {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "avahi-daemon", "ip")
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	services := t.TempDir()
	for _, mount := range [][2]string{{"", "/"}, {services, "/etc/avahi/services"}, {t.TempDir(), "/run"}} {
		flags := uintptr(unix.MS_BIND)
		if mount[0] == "" {
			flags = unix.MS_REC | unix.MS_PRIVATE
		}
		if err := unix.Mount(mount[0], mount[1], "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"link add wire type veth peer name cable", "link set cable up", "link set wire multicast on up",
		"link set lo up", "address add 192.0.2.1/24 dev wire", "address add 2001:db8::1/64 dev wire nodad",
	} {
		testenv.Run(t, "ip", strings.Fields(args)...)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(services, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf := filepath.Join(t.TempDir(), "avahi.conf")
	settings := []byte("[server]\nhost-name=conductor\nenable-dbus=no\nallow-interfaces=wire\n")
	if err := os.WriteFile(conf, settings, 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.CommandContext(t.Context(), "avahi-daemon", "-f", conf, "--no-drop-root", "--no-chroot",
		"--no-rlimits")
	if daemon.Err != nil {
		daemon.Path, daemon.Err = "/usr/sbin/avahi-daemon", nil
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
}

const publisher = `<?xml version="1.0" standalone='no'?><!DOCTYPE service-group SYSTEM "avahi-service.dtd">
<service-group><name>NAME</name><service><type>_openstack._tcp</type><port>PORT</port>
<txt-record>path=/ironic</txt-record><txt-record>protocol=http</txt-record>
<txt-record>ipa_ntp_server=192.0.2.9</txt-record><txt-record>ipa_insecure=true</txt-record></service></service-group>`

// plugged is a machine that queries a service for at most wait, and whose cable is plugged in after the first query.
type plugged struct {
	machine
	t     *testing.T
	wait  time.Duration
	looks int
}

func (p *plugged) AskService(
	ctx context.Context, _ time.Duration, instance string, interfaces []string, _ Network,
) (service, error) {
	p.looks = 0
	return p.machine.AskService(ctx, p.wait, instance, interfaces, p)
}

func (p *plugged) Changed() <-chan struct{} {
	switch p.looks++; p.looks {
	case 1: // before the first query, for which there is no link
		now := make(chan struct{})
		close(now)
		return now
	case 2:
		testenv.Run(p.t, "ip", "link", "set", "wire", "up")
		testenv.Run(p.t, "ip", "address", "replace", "2001:db8::1/64", "dev", "wire", "nodad")
	}
	return nil
}

// The agent finds an Ironic that Avahi announces, although the link comes up during the search, and sets only the
// allowed option.
func TestAvahi(t *testing.T) {
	named := func(name, port string) string {
		return strings.NewReplacer("NAME", name, "PORT", port).Replace(publisher)
	}
	avahi(t, map[string]string{
		"a.service": named("baremetal", "6385"), "b.service": named("baremetal-introspection", "5050"),
	})
	settings, err := config.Load(config.Sources{
		Params:  config.Params{"ipa-api-url": "mdns", "ipa-inspection-callback-url": "mdns"},
		Environ: []string{"OS_MDNS__LOOKUP_ATTEMPTS=1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	live := config.NewLive(settings)
	c, err := New(Options{Config: live})
	if err != nil {
		t.Fatal(err)
	}
	// Avahi announces services again seconds after the cable is plugged in, and later on a busy machine.
	const wait = 2 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	testenv.Run(t, "ip", "link", "set", "wire", "down")
	c.host = &plugged{t: t, wait: wait}
	if err := c.Discover(ctx); err != nil {
		t.Fatal(err)
	}
	got := live.Get()
	// Either address is right: it is the one of the answer that comes first.
	match := regexp.MustCompile(`^http://(192\.0\.2\.1|\[2001:db8::1\]):6385/ironic ` +
		`http://(192\.0\.2\.1|\[2001:db8::1\]):5050/ironic/v1/continue$`)
	if !match.MatchString(got.APIURL+" "+got.InspectionCallbackURL) || got.NTPServer != "192.0.2.9" || got.Insecure {
		t.Errorf("got %s, %s, ntp_server %q, insecure %v",
			got.APIURL, got.InspectionCallbackURL, got.NTPServer, got.Insecure)
	}
}
