#!/bin/sh
# Builds a userland for a manager root: Debian's lspci, which is dynamically linked, with a manager that uses it, and
# Python with a hardware manager plug-in of ironic-python-agent. Needs root, mmdebstrap and Python.
#
#   docs/examples/userland/build.sh userland
#   ironroot image --manager-root userland
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=${1:?usage: build.sh DIRECTORY}

# The variant "extract" unpacks packages without installing them: no dpkg database, no scripts, a small root.
mmdebstrap --quiet --variant=extract --include=base-files,pciutils,python3-minimal,libpython3-stdlib "${SUITE:-bookworm}" "$root"
rm -rf "$root/usr/share/doc" "$root/usr/share/man" "$root/usr/share/locale" "$root/var/lib/dpkg" "$root/var/cache"

mkdir -p "$root/usr/lib/ironroot/managers" "$root/usr/lib/python3/dist-packages"
install -m 755 "$here/pcidevices" "$root/usr/lib/ironroot/managers/pcidevices"
# Of a plug-in of your own: pip install --no-deps --target "$root/usr/lib/python3/dist-packages" ./plugin
cp -r "$here/../plugin/." "$root/usr/lib/python3/dist-packages/"

# The scripts of the packages would have compiled Python's library. Without that each start takes longer.
chroot "$root" /usr/bin/python3 -m compileall -q /usr/lib/python3* || true
