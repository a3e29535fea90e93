#!/bin/sh
# Runs as a customize hook of mmdebstrap: turns the unpacked Debian in $1 into a machine that starts in seconds, and
# leaves the parts of the image in $OUT: root.ext4, the loaders for the ESP, and GRUB's pieces for
# BIOS.
set -eu
root=$1

# Kernel messages and the report go to the first serial port; nothing else starts.
cat > "$root/etc/inittab" <<'END'
id:2:initdefault:
si::sysinit:/usr/local/sbin/instance-start
l0:0:wait:/etc/init.d/rc 0
l6:6:wait:/etc/init.d/rc 6
re:2:once:/usr/local/sbin/instance-report
pf::powerwait:/sbin/shutdown -h now
END
cat > "$root/usr/local/sbin/instance-start" <<'END'
#!/bin/sh
# Mounts the file systems and sets the host name. Debian's scripts in rcS.d take more than half of the boot time under
# emulation.
mount -a
hostname -F /etc/hostname
END
cat > "$root/usr/local/sbin/instance-report" <<'END'
#!/bin/sh
# Tells on the serial console that this system runs and which config drive it found.
exec > /dev/ttyS0 2>&1
echo "INSTANCE-UP $(hostname)"
if drive=$(blkid -L config-2) && mount -o ro "$drive" /mnt; then
    uuid=$(sed -n 's/.*"uuid": *"\([^"]*\)".*/\1/p' /mnt/openstack/latest/meta_data.json)
    echo "CONFIG-DRIVE $uuid $drive"
    umount /mnt
else
    echo "CONFIG-DRIVE missing"
fi
echo "INSTANCE-READY"
END
chmod 755 "$root"/usr/local/sbin/instance-*
echo instance > "$root/etc/hostname"
echo 'UUID=@UUID@ / ext4 rw,noatime 0 0' > "$root/etc/fstab"

# Only what finds a root disk goes into the initramfs.
sed -i -e 's/^MODULES=.*/MODULES=list/' -e 's/^COMPRESS=.*/COMPRESS=gzip/' "$root/etc/initramfs-tools/initramfs.conf"
printf '%s\n' ext4 virtio_pci virtio_blk virtio_scsi sd_mod ahci nvme megaraid_sas > "$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u -k all >&2

download() {
    (cd "$OUT" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get download -qq -o APT::Sandbox::User=root "$1" >&2 && dpkg-deb -x "$1"_*.deb "$OUT/unpacked" && rm "$1"_*.deb)
}
for package in shim-signed grub-efi-amd64-signed grub-common grub-pc-bin libdevmapper1.02.1; do
    download $package
done
cp "$OUT/unpacked/usr/lib/shim/shimx64.efi.signed" "$OUT/shimx64.efi"
cp "$OUT/unpacked/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed" "$OUT/grubx64.efi"

# The same menu for both firmwares. GRUB for BIOS gets it built in.
cat > "$OUT/grub.cfg" <<'END'
search --no-floppy --fs-uuid --set=root @UUID@
linux /vmlinuz root=UUID=@UUID@ rw quiet console=ttyS0,115200n8 tsc=reliable no_timer_check mitigations=off
initrd /initrd.img
boot
END
cp -r "$OUT/unpacked/usr/lib/grub/i386-pc" "$OUT/unpacked/usr/bin/grub-mkimage" "$OUT/grub.cfg" "$root/tmp/"
find "$OUT/unpacked" -name 'libdevmapper.so*' -exec cp {} "$root/tmp/" \;
chroot "$root" env LD_LIBRARY_PATH=/tmp /tmp/grub-mkimage -d /tmp/i386-pc -O i386-pc -p /boot/grub -c /tmp/grub.cfg -o /tmp/core.img \
    biosdisk part_gpt ext2 search search_fs_uuid linux normal boot echo test
mv "$root/tmp/core.img" "$OUT/core.img"
cp "$OUT/unpacked/usr/lib/grub/i386-pc/boot.img" "$OUT/boot.img"
rm -rf "$root"/tmp/*

# A copy without the kernel's file systems that are mounted in $root during this hook, and without device
# nodes, which a user namespace may not make and the kernel makes anyway.
tree=$OUT/tree
mkdir "$tree"
tar -C "$root" --one-file-system --exclude='./dev/*' -cf - . | tar -C "$tree" -xpf -
rm -rf "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/* "$tree"/var/log/* "$tree"/tmp/* "$tree"/run/* \
    "$tree"/usr/share/doc/* "$tree"/usr/share/man/* "$tree"/usr/share/locale/* "$tree"/usr/share/info/*
# The lengths of the files in blocks of ext4. What du counts depends on the build machine's file system: with -x it found
# nothing on an overlay in memory.
used=$(find "$tree" -printf '%s\n' | awk '{ kib += 4 * int(($1 + 4095) / 4096) } END { print kib }')
size=$((used * 112 / 100 / 1024 + 24))
mke2fs -q -t ext4 -L cloudroot -U "@UUID@" -m 0 -O ^metadata_csum_seed -E hash_seed=@UUID@ -d "$tree" "$OUT/root.ext4" "${size}M"
rm -rf "$tree" "$OUT/unpacked" # in a user namespace nobody else can
