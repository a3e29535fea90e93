//go:build linux

package ironic

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"ironroot/internal/test/testenv/sshtest"
	"ironroot/lab/osimage"
)

// rescue rescues an active node, logs in to it with the password that Ironic got, mounts the root file system of the
// instance, and ends the rescue: the instance starts again.
func rescue(t *testing.T, ctx context.Context, n *Node, ramdisk string) {
	t.Helper()
	const password = "a password of a rescue"
	url, err := n.ironic.publishByContent(ramdisk)
	step(t, "publish", err)
	kernel, err := n.ironic.publishByContent(n.Kernel)
	step(t, "publish", err)
	step(t, "rescue_kernel", n.Set(ctx, "/driver_info/rescue_kernel", kernel))
	step(t, "rescue_ramdisk", n.Set(ctx, "/driver_info/rescue_ramdisk", url))

	mark := n.Mark()
	step(t, "rescue", n.Rescue(ctx, password))
	if _, err := n.Follow(ctx, mark, regexp.MustCompile(`rescue: waiting for logins`)); err != nil {
		t.Fatal(err)
	}
	console := n.Since(mark)
	if client, err := login(ctx, n, "wrong", console); err == nil {
		_ = client.Close()
		t.Error("log in with another password: got success")
	}
	client, err := login(ctx, n, password, console)
	step(t, "login", err)
	defer client.Close()
	if got := sshtest.Run(t, client, "id", nil); !strings.HasPrefix(got, "uid=0(root)") {
		t.Errorf("id: got %q, want root", got)
	}
	if got := sshtest.Run(t, client, "sudo mount /dev/vda3 /mnt && cat /mnt/etc/hostname && sudo umount /mnt",
		nil); strings.TrimSpace(got) != "instance" {
		t.Errorf("host name in the root file system of the instance: got %q, want instance", got)
	}
	if text := n.Since(mark); strings.Contains(text, password) {
		t.Error("the console shows the password")
	}

	mark = n.Mark()
	step(t, "unrescue", n.Unrescue(ctx))
	if _, err := n.Follow(ctx, mark, osimage.Up); err != nil {
		t.Fatalf("the instance does not come up after the rescue: %v", err)
	}
	var node struct {
		Instance map[string]any `json:"instance_info"`
	}
	step(t, "node", n.ironic.call(ctx, http.MethodGet, "/v1/nodes/"+n.UUID, nil, &node))
	for key := range node.Instance {
		if strings.Contains(key, "rescue_password") {
			t.Errorf("the node still has %s", key)
		}
	}
}

// login logs in by SSH as the user of a rescue.
func login(ctx context.Context, n *Node, password, console string) (*ssh.Client, error) {
	address, err := n.Address()
	if err != nil {
		return nil, err
	}
	conn, err := n.ironic.ns.DialContext(ctx, "tcp", address.String()+":22")
	if err != nil {
		return nil, err
	}
	return sshtest.Login(conn, "rescue", ssh.Password(password), console)
}
