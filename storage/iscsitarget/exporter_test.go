package iscsitarget

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/sysfs"
)

const initiator = "iqn.1993-08.org.debian:01:conductor"

var export = Export{
	Name: "iqn.2008-10.org.openstack:node", Device: "/dev/sda", Portal: netip.MustParseAddrPort("192.0.2.7:3260"),
	Peer: netip.MustParseAddr("192.0.2.1"),
}

// rig is an exporter in a fake kernel.
type rig struct {
	*Exporter
	kernel      *configfs
	restriction *fakeRestriction
	busy        error // of the device after a removal
	freed       []string
	mounts      []string
	mountErr    error
	config      string // directory that a mount creates; "" for none
	realPortal  bool
}

func (r *rig) mount(dir string) error {
	r.mounts = append(r.mounts, dir)
	if r.mountErr != nil || r.config == "" {
		return r.mountErr
	}
	return os.MkdirAll(r.config, 0o755)
}

func (r *rig) checkPortal(ctx context.Context, portal netip.AddrPort) error {
	if r.realPortal {
		return systemKernel{}.checkPortal(ctx, portal)
	}
	return nil
}

func (r *rig) restrict(portal netip.AddrPort, peer netip.Addr) (restriction, error) {
	return r.restriction.begin(portal, peer)
}

func (r *rig) checkFree(_ context.Context, device string) error {
	r.freed = append(r.freed, device)
	return r.busy
}

// modules records the loaded modules.
type modules struct {
	loaded []string
	err    error
}

func (m *modules) Load(_ context.Context, name string) error {
	m.loaded = append(m.loaded, name)
	return m.err
}

func newRig(t *testing.T) *rig {
	t.Helper()
	kernel := newConfigfs(t)
	path, _ := strings.CutSuffix(kernel.root, "/sys/kernel/config/target")
	r := &rig{kernel: kernel, restriction: &fakeRestriction{}}
	r.Exporter = &Exporter{System: sysfs.Root{Path: path}, files: kernel, kernel: r}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

func (r *rig) start(t *testing.T, x Export) {
	t.Helper()
	if err := r.Start(t.Context(), x, nil); err != nil {
		t.Fatal(err)
	}
}

// gone checks that nothing of a target is left.
func (r *rig) gone(t *testing.T) {
	t.Helper()
	left := slices.DeleteFunc(r.kernel.objects(""), func(name string) bool { return name == "iscsi" })
	if len(left) > 0 || r.restriction.active {
		t.Errorf("got objects %q and a restriction %v, want nothing left", left, r.restriction.active)
	}
}

func TestStart(t *testing.T) {
	r := newRig(t)
	m := &modules{}
	r.Modules = m
	r.kernel.onCall = func(call string) {
		if strings.HasPrefix(call, "mkdir iscsi/"+export.Name+"/tpgt_1/np/") && !r.restriction.active {
			t.Error("the portal was opened before it was restricted")
		}
	}
	r.start(t, export)
	if want := []string{"target_core_mod", "target_core_iblock", "iscsi_target_mod"}; !slices.Equal(m.loaded, want) {
		t.Errorf("got modules %q, want %q", m.loaded, want)
	}
	if got := r.restriction; got.portal != export.Portal || got.peer != export.Peer {
		t.Errorf("got %v restricted to %v, want %v and %v", got.portal, got.peer, export.Portal, export.Peer)
	}
	got := map[string]string{}
	group := "iscsi/" + export.Name + "/tpgt_1/"
	for _, name := range []string{
		"core/iblock_0/sda/info", "core/iblock_0/sda/enable", group + "enable",
		"iscsi/discovery_auth/enforce_discovery_auth", group + "attrib/authentication",
		group + "attrib/demo_mode_write_protect", group + "attrib/generate_node_acls",
	} {
		text, err := os.ReadFile(filepath.Join(r.kernel.root, name))
		if err != nil {
			t.Fatal(err)
		}
		got[strings.TrimPrefix(name, group)] = strings.TrimSpace(string(text))
	}
	want := map[string]string{
		"core/iblock_0/sda/info": strings.TrimSpace(info("/dev/sda")), "core/iblock_0/sda/enable": "1", "enable": "1",
		"iscsi/discovery_auth/enforce_discovery_auth": "0", "attrib/authentication": "0",
		"attrib/demo_mode_write_protect": "0", "attrib/generate_node_acls": "1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	objects := r.kernel.objects("")
	slices.Sort(objects)
	if diff := cmp.Diff([]string{
		"core/iblock_0", "core/iblock_0/sda", "iscsi", "iscsi/" + export.Name, strings.TrimSuffix(group, "/"),
		group + "lun/lun_1", group + "lun/lun_1/device", group + "np/192.0.2.7:3260",
	}, objects); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	r.gone(t)
	if want := []string{"/dev/sda"}; !slices.Equal(r.freed, want) {
		t.Errorf("got checked devices %q, want %q", r.freed, want)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Errorf("second stop: got %v", err)
	}
}

// A target at an IPv6 address has its zone in the portal, and an IPv6 peer.
func TestStartIPv6(t *testing.T) {
	r := newRig(t)
	x := export
	x.Portal, x.Peer = netip.MustParseAddrPort("[fe80::7%eth0]:3261"), netip.MustParseAddr("fe80::1%eth0")
	r.start(t, x)
	if want := "iscsi/" + export.Name + "/tpgt_1/np/[fe80::7%eth0]:3261"; !slices.Contains(r.kernel.objects(""), want) {
		t.Errorf("got objects %q, want %s", r.kernel.objects(""), want)
	}
}

// When a step fails, nothing of the target is left, and the device is checked.
func TestStartFails(t *testing.T) {
	var calls []string
	r := newRig(t)
	r.kernel.onCall = func(call string) { calls = append(calls, call) }
	r.start(t, export)
	if len(calls) < 15 {
		t.Fatalf("got calls %q, want those of a whole target", calls)
	}
	for _, call := range calls {
		if strings.HasSuffix(call, "/tpgt_1/enable") {
			continue // also needed to remove a target
		}
		failure := errors.New("failure of " + call)
		r := newRig(t)
		r.kernel.fail[call] = failure
		if err := r.Start(t.Context(), export, nil); !errors.Is(err, failure) {
			t.Errorf("%s: got %v, want %v", call, err, failure)
		}
		r.gone(t)
		delete(r.kernel.fail, call)
		r.start(t, export)
	}
}

// A target that cannot be restricted to its peer is not created.
func TestStartWithoutRestriction(t *testing.T) {
	r := newRig(t)
	r.restriction.active = true // by another target, so that it fails
	if err := r.Start(t.Context(), export, nil); err == nil || !strings.Contains(err.Error(), "restricted twice") {
		t.Errorf("got %v, want the error of the restriction", err)
	}
	if got := r.kernel.objects(""); len(got) > 0 || !r.restriction.active {
		t.Errorf("got objects %q, restricted %v, want no change", got, r.restriction.active)
	}
}

// The kernel can accept a value and not use it.
func TestStartVerifies(t *testing.T) {
	r := newRig(t)
	r.kernel.onCall = func(call string) {
		if call == "read core/iblock_0/sda/info" {
			path := filepath.Join(r.kernel.root, "core/iblock_0/sda/info")
			if err := os.WriteFile(path, []byte(info("/dev/sdb")), 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	if err := r.Start(t.Context(), export, nil); err == nil || !strings.Contains(err.Error(), "/dev/sdb") {
		t.Errorf("got %v, want an error with both devices", err)
	}
	r.gone(t)
}

// A target has an iSCSI name (RFC 3720, 3.2.6.3) that can be a directory, or one of those that Ironic chose in 2014.
func TestCheckName(t *testing.T) {
	for name, valid := range map[string]bool{
		"iqn.2008-10.org.openstack:b77a8c26-f785-4c57-91f5-b6ad41a2e08d": true,
		"iqn.2001-04.com.example": true, "eui.02004567A425678D": true, "naa.52004567BA64678D": true,
		"iqn.2008-10.org:" + strings.Repeat("n", 207): true, // 223 bytes, which RFC 3720 and the kernel allow
		"iqn.2008-10.org:" + strings.Repeat("n", 208): false,

		"iqn-b77a8c26-f785-4c57-91f5-b6ad41a2e08d":  true,
		"iqn-B77A8C26-F785-4C57-91F5-B6AD41A2E08D":  true,
		"iqn-b77a8c26-f785-4c57-91f5-b6ad41a2e08":   false,
		"iqn-b77a8c26f7854c5791f5b6ad41a2e08d":      false,
		"iqn-b77a8c26-f785-4c57-91f5-b6ad41a2e08d2": false,
		"xiqn-b77a8c26-f785-4c57-91f5-b6ad41a2e08d": false,
		"b77a8c26-f785-4c57-91f5-b6ad41a2e08d":      false,

		"iqn-5": false, "iqn-": false, "": false, "disk": false, "iqn.2008-10.org:a/b": false,
	} {
		if err := CheckName(name); (err == nil) != valid {
			t.Errorf("%.60q: got %v, want valid %t", name, err, valid)
		}
	}
}

func TestStartRejectsInvalidExports(t *testing.T) {
	for name, change := range map[string]func(*Export){
		"no name":      func(x *Export) { x.Name = "" },
		"other name":   func(x *Export) { x.Name = "iqn-5" },
		"directory":    func(x *Export) { x.Name = "iqn.2008-10.org.openstack:../../core" },
		"long":         func(x *Export) { x.Name = "iqn.2008-10.org:" + strings.Repeat("n", 220) },
		"wildcard":     func(x *Export) { x.Portal = netip.MustParseAddrPort("0.0.0.0:3260") },
		"port 0":       func(x *Export) { x.Portal = netip.MustParseAddrPort("192.0.2.7:0") },
		"no portal":    func(x *Export) { x.Portal = netip.AddrPort{} },
		"no peer":      func(x *Export) { x.Peer = netip.Addr{} },
		"any peer":     func(x *Export) { x.Peer = netip.IPv4Unspecified() },
		"IPv6 peer":    func(x *Export) { x.Peer = netip.MustParseAddr("2001:db8::1") },
		"mapped peer":  func(x *Export) { x.Peer = netip.MustParseAddr("::ffff:192.0.2.1") },
		"mapped local": func(x *Export) { x.Portal = netip.MustParseAddrPort("[::ffff:192.0.2.7]:3260") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			x := export
			change(&x)
			prepared := false
			err := r.Start(t.Context(), x, func(context.Context) error {
				prepared = true
				return nil
			})
			if err == nil || prepared || len(r.kernel.objects("")) > 0 {
				t.Errorf("got %v, prepared %v, objects %q, want an error before anything is done", err, prepared,
					r.kernel.objects(""))
			}
		})
	}
}

// A kernel without the modules is named, and one with another target of this name is left alone.
func TestStartInOtherKernels(t *testing.T) {
	r := newRig(t)
	failure := errors.New("unknown module")
	r.Modules = &modules{err: failure}
	err := r.Start(t.Context(), export, nil)
	if !errors.Is(err, failure) || !strings.Contains(err.Error(), "target_core") {
		t.Errorf("module: got %v, want %v with its name", err, failure)
	}
	r.Modules = nil
	foreign := filepath.Join(r.kernel.root, "iscsi", export.Name)
	if err := os.MkdirAll(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), export, nil); !errors.Is(err, ErrExists) {
		t.Errorf("foreign target: got %v, want %v", err, ErrExists)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(r.kernel.root); err != nil {
		t.Fatal(err)
	}
	r.mountErr = failure
	prepared := false
	err = r.Start(t.Context(), export, func(context.Context) error {
		prepared = true
		return nil
	})
	if !errors.Is(err, failure) || !strings.Contains(err.Error(), "kernel has no iSCSI target") || prepared {
		t.Errorf("no configfs: got %v, prepared %v, want %v before anything is done", err, prepared, failure)
	}
	r.mountErr = nil
	if err := r.Start(t.Context(), export, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no target in configfs: got %v, want %v", err, os.ErrNotExist)
	}
	r.gone(t)
	r.mounts, r.config = nil, filepath.Join(r.kernel.root, "core")
	r.start(t, export)
	if want := []string{r.System.Sys("kernel/config")}; !slices.Equal(r.mounts, want) {
		t.Errorf("got mounts %q, want %q", r.mounts, want)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	r.gone(t)
}

// A second start replaces the same target that is not in use. Another one, or one in use, stays.
func TestStartTwice(t *testing.T) {
	r := newRig(t)
	r.start(t, export)
	called := 0
	before := func(context.Context) error {
		called++
		r.gone(t)
		return nil
	}
	if err := r.Start(t.Context(), export, before); err != nil || called != 1 {
		t.Errorf("same target: got %v, and %d calls before it, want one", err, called)
	}
	for name, change := range map[string]func(*Export){
		"name":   func(x *Export) { x.Name += "2" },
		"device": func(x *Export) { x.Device = "/dev/sdb" },
		"port":   func(x *Export) { x.Portal = netip.MustParseAddrPort("192.0.2.7:3261") },
		"peer":   func(x *Export) { x.Peer = netip.MustParseAddr("192.0.2.9") },
	} {
		x := export
		change(&x)
		err := r.Start(t.Context(), x, before)
		if !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), export.Name) {
			t.Errorf("other %s: got %v, want %v with the first target", name, err, ErrExists)
		}
	}
	if called != 1 {
		t.Errorf("got %d calls before the start, want one", called)
	}
}

// A target in use stays. The kernel can take a moment to end a session after the logout.
func TestStartInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(t, export)
		r.kernel.login(export, initiator)
		err := r.Start(t.Context(), export, func(context.Context) error { return errors.New("disk wiped") })
		if !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), initiator) {
			t.Errorf("in use: got %v, want %v with the initiator", err, ErrExists)
		}
		time.AfterFunc(logoutTimeout/2, func() { r.kernel.login(export) })
		r.start(t, export)
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A portal at a port in use, or at another machine's address, is an error before anything is done.
func TestStartChecksPortal(t *testing.T) {
	r := newRig(t)
	r.realPortal = true
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	x := export
	x.Portal, x.Peer = listener.Addr().(*net.TCPAddr).AddrPort(), netip.MustParseAddr("127.0.0.1")
	for want, x := range map[string]Export{"address already in use": x, "cannot assign requested address": export} {
		if err := r.Start(t.Context(), x, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("portal %s: got %v, want %q", x.Portal, err, want)
		}
		if len(r.kernel.objects("")) > 0 {
			t.Errorf("portal %s: got objects %q", x.Portal, r.kernel.objects(""))
		}
	}
}

// Actions that must precede the start prevent it if they fail.
func TestBeforeStart(t *testing.T) {
	r := newRig(t)
	failure := errors.New("disk not wiped")
	if err := r.Start(t.Context(), export, func(context.Context) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
	if len(r.kernel.objects("")) > 0 {
		t.Errorf("got objects %q", r.kernel.objects(""))
	}
}

// Stop waits for a logout that the kernel has not finished. Initiators that do not log out are named, and the target is
// removed nevertheless.
func TestStopWithSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(t, export)
		r.kernel.login(export, initiator)
		time.AfterFunc(logoutTimeout/2, func() { r.kernel.login(export) })
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("logged out: got %v", err)
		}
		r.gone(t)
		r.start(t, export)
		r.kernel.login(export, initiator, "iqn.2010-04.org.ipxe:other")
		var session *SessionError
		if err := r.Stop(t.Context()); !errors.As(err, &session) ||
			!slices.Equal(session.Initiators, []string{initiator, "iqn.2010-04.org.ipxe:other"}) {
			t.Errorf("logged in: got %v, want a SessionError with both initiators", err)
		}
		r.gone(t)
		if err := r.Stop(t.Context()); !errors.As(err, &session) {
			t.Errorf("once more: got %v, want the same error", err)
		}
		r.Forget()
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("forgotten: got %v", err)
		}
	})
}

// A device in use after the removal is an error.
func TestStopChecksDevice(t *testing.T) {
	r := newRig(t)
	r.start(t, export)
	r.busy = errors.New("device busy")
	for range 2 {
		if err := r.Stop(t.Context()); !errors.Is(err, r.busy) {
			t.Errorf("got %v, want %v", err, r.busy)
		}
		r.gone(t)
	}
	r.busy = nil
	r.start(t, export)
	if err := r.Stop(t.Context()); err != nil {
		t.Errorf("another target: got %v", err)
	}
}

// Sessions that cannot be read are an error of their own.
func TestStopWithoutSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(t, export)
		failure := errors.New("sessions not read")
		r.kernel.fail["read iscsi/"+export.Name+"/tpgt_1/dynamic_sessions"] = failure
		var session *SessionError
		if err := r.Stop(t.Context()); !errors.Is(err, failure) || errors.As(err, &session) {
			t.Errorf("got %v, want %v", err, failure)
		}
		r.gone(t)
	})
}

// A target that the kernel does not remove stays restricted, and the next attempt removes it.
func TestStopFails(t *testing.T) {
	r := newRig(t)
	r.start(t, export)
	for _, call := range []string{
		"write iscsi/" + export.Name + "/tpgt_1/enable", "rmdir iscsi/" + export.Name + "/tpgt_1",
		"rmdir core/iblock_0/sda",
	} {
		r.kernel.fail[call] = errors.New("failure of " + call)
		if err := r.Stop(t.Context()); !errors.Is(err, r.kernel.fail[call]) {
			t.Errorf("%s: got %v", call, err)
		}
		if !r.restriction.active {
			t.Errorf("%s: the restriction was lifted from a target that exists", call)
		}
		delete(r.kernel.fail, call)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	r.gone(t)
	r.start(t, export)
	r.restriction.liftErr = errors.New("rule not deleted")
	if err := r.Stop(t.Context()); !errors.Is(err, r.restriction.liftErr) {
		t.Errorf("got %v, want %v", err, r.restriction.liftErr)
	}
	r.restriction.liftErr = nil
}

// A target is removed once no initiator was logged in for a while. It stays as long as the kernel does not tell.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Idle = time.Minute
		r.start(t, export)
		time.Sleep(time.Minute - time.Second)
		r.kernel.login(export, initiator)
		time.Sleep(time.Hour)
		if got := len(r.kernel.objects("")); got == 0 || !r.restriction.active {
			t.Fatal("a target in use was removed")
		}
		r.kernel.login(export)
		time.Sleep(time.Minute - 2*time.Second)
		if !r.restriction.active {
			t.Fatal("the target was removed too early")
		}
		time.Sleep(4 * time.Second)
		r.gone(t)
		r.start(t, export) // again
		r.busy = errors.New("not flushed")
		time.Sleep(2 * time.Minute)
		r.gone(t)
		if err := r.Stop(t.Context()); !errors.Is(err, r.busy) {
			t.Errorf("got %v after the removal, want %v", err, r.busy)
		}
		r.busy = nil
		r.start(t, export)
		sessions := "read iscsi/" + export.Name + "/tpgt_1/dynamic_sessions"
		r.kernel.fail[sessions] = errors.New("sessions not read")
		time.Sleep(time.Hour)
		if !r.restriction.active {
			t.Fatal("a target whose sessions cannot be read was removed")
		}
		delete(r.kernel.fail, sessions)
		time.Sleep(2 * time.Minute)
		r.gone(t)
	})
}

// By default, a target without a session is removed after five minutes.
func TestDefaultIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(t, export)
		time.Sleep(5*time.Minute - time.Second)
		if !r.restriction.active {
			t.Fatal("the target was removed too early")
		}
		time.Sleep(3 * time.Second)
		r.gone(t)
	})
}

// An unused target that the kernel does not remove is removed later.
func TestIdleRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Idle = time.Minute
		r.start(t, export)
		object := "iscsi/" + export.Name + "/tpgt_1/acls/other" // the group cannot be removed before it
		r.kernel.mark(object, true)
		time.Sleep(time.Minute + 2*time.Second)
		if !r.restriction.active {
			t.Error("the restriction was lifted from a target that exists")
		}
		r.kernel.mark(object, false)
		time.Sleep(time.Minute + 2*time.Second)
		r.gone(t)
	})
}

// Close removes a target in use at once.
func TestClose(t *testing.T) {
	r := newRig(t)
	r.start(t, export)
	r.kernel.login(export, initiator)
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	r.gone(t)
	if err := r.Close(t.Context()); err != nil {
		t.Errorf("second: got %v", err)
	}
}
