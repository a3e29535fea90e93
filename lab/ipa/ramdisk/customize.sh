#!/bin/sh
# Runs as a customize hook of mmdebstrap: turns the installed Debian in $1 into a ramdisk, $OUT/initramfs, with the
# kernel of the package $KERNEL_DEB. $OUT has the other files of this directory.
set -eu
root=$1

rm -rf "$root"/lib/modules/* "$root"/boot/*
dpkg-deb -x "$KERNEL_DEB" "$root"
chroot "$root" depmod "$(ls "$root/lib/modules")"
mv "$root"/boot/vmlinuz-* "$OUT/kernel"

install -D -m 644 "$OUT/control.py" "$root/usr/local/lib/control.py"
install -D -m 644 "$OUT/control.service" "$root/etc/systemd/system/control.service"
install -D -m 644 "$OUT/dhcp.network" "$root/etc/systemd/network/50-dhcp.network"
ln -sf /usr/lib/systemd/systemd "$root/init"
: >"$root/etc/machine-id"
# The agent is started for each scenario. Services that a ramdisk for deployments does not run cost time only.
chroot "$root" systemctl enable control.service systemd-networkd.service >&2
chroot "$root" systemctl disable ironic-python-agent.service >&2
chroot "$root" systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    fstrim.timer logrotate.timer man-db.timer tuned.service lldpad.service lldpad.socket libvirt-guests.service \
    smartmontools.service rsync.service sysstat.service >&2 || true

cd "$root"
find . -xdev \( -path ./boot -o -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./var/cache \
    -o -path ./var/lib/apt -o -path ./usr/share/doc -o -path ./usr/share/man -o -path ./usr/share/locale \
    -o -path ./usr/share/info -o -path './usr/lib/firmware' -o -path './usr/lib/modules/*/kernel/sound' \
    -o -path './usr/lib/modules/*/kernel/drivers/gpu' -o -path './usr/lib/modules/*/kernel/drivers/media' \
    -o -path './usr/lib/modules/*/kernel/drivers/net/wireless' -o -path './usr/lib/modules/*/kernel/drivers/staging' \
    -o -path './usr/lib/modules/*/kernel/drivers/iio' -o -path './usr/lib/*/guestfs' -o -path './usr/lib/*/ceph' \
    -o -path ./usr/share/perl -o -path ./usr/share/perl5 -o -path './usr/lib/*/perl' -o -path './usr/lib/*/libLLVM*' \
    -o -path ./usr/share/ieee-data -o -path ./usr/share/icons -o -path ./usr/share/fonts -o -path './usr/lib/*/dri' \
    -o -path './usr/lib/*/libgallium*' -o -path ./usr/share/qemu -o -path ./usr/share/seabios \
    -o -path './usr/bin/qemu-system-*' \) -prune -o -print0 >"$OUT/list"
printf '%s\0' ./proc ./sys ./dev ./run ./boot ./var/cache >>"$OUT/list"
cpio --null --create --format=newc --quiet <"$OUT/list" | zstd -q -T0 -3 >"$OUT/initramfs"
rm "$OUT/list"
