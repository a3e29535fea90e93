#!/bin/sh
# Runs as a customize hook of mmdebstrap: adds ironic-python-agent with a test's hardware manager to the unpacked Debian
# in $1, and writes the kernel and the initramfs to the directory $OUT, which has the other files.
set -eu
root=$1

# The package depends on virtualisation tools that the agent does not need here.
cd "$OUT"
APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get download -qq -o APT::Sandbox::User=root ironic-python-agent >&2
dpkg-deb -x ironic-python-agent_*.deb "$root"
dpkg-deb -f ironic-python-agent_*.deb Version >version
rm ironic-python-agent_*.deb

install -m 755 init "$root/init"
install -m 755 udhcpc "$root/etc/udhcpc"
modules=$root/usr/lib/python3/dist-packages
install -m 644 steps.py "$modules/lab_steps.py"
mkdir "$modules/lab_steps-1.egg-info"
printf 'Metadata-Version: 1.0\nName: lab-steps\nVersion: 1\n' >"$modules/lab_steps-1.egg-info/PKG-INFO"
printf '[ironic_python_agent.hardware_managers]\nlab_steps = lab_steps:StepManager\n' \
    >"$modules/lab_steps-1.egg-info/entry_points.txt"
for action in poweroff reboot; do
    printf '#!/bin/sh\nsync\nexec busybox %s -f\n' $action >"$root/usr/sbin/$action"
    chmod 755 "$root/usr/sbin/$action"
done
mkdir -p "$root/var/lib/ironic-python-agent" "$root/var/log/ironic-python-agent"
rm -f "$root/etc/ironic-python-agent/ironic-python-agent.conf"

cp "$root"/boot/vmlinuz-* kernel
cd "$root"
find . -xdev \( -path ./boot -o -path ./var/cache -o -path ./var/lib/apt -o -path ./var/lib/dpkg/info -o -path ./proc \
    -o -path ./sys -o -path ./dev -o -path ./usr/share/doc -o -path ./usr/share/man -o -path ./usr/share/locale \) \
    -prune -o -print0 >"$OUT/list"
printf './proc\0./sys\0./dev\0' >>"$OUT/list"
cpio --null --create --format=newc --quiet <"$OUT/list" | zstd -q -T0 -6 >"$OUT/initramfs"
rm "$OUT/list"
