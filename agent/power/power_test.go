package power

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOnDevices(t *testing.T) {
	const table = `rootfs / rootfs rw 0 0
proc /proc proc rw 0 0
devtmpfs /dev devtmpfs rw 0 0
/dev/sda1 /mnt/a ext4 rw 0 0
efivarfs /sys/firmware/efi/efivars efivarfs rw 0 0
/dev/sda2 /mnt/a/with\040space vfat rw 0 0
broken
`
	want := []string{"/mnt/a/with space", "/mnt/a"}
	if diff := cmp.Diff(want, onDevices(table)); diff != "" {
		t.Errorf("mount points to unmount (-want +got):\n%s", diff)
	}
}

func TestRefused(t *testing.T) {
	if err := (Refused{}).Reboot(context.Background()); err == nil {
		t.Error("Reboot of a process without --destructive: got no error")
	}
	if err := (Refused{}).PowerOff(context.Background()); err == nil {
		t.Error("PowerOff of a process without --destructive: got no error")
	}
}
