#!/usr/bin/env bash
# boot.sh WEFT UNITS GUEST OUT: starts this machine's systemd, in namespaces of its own, with the
# units of the packages and a weft, and runs GUEST there. It sees this machine's files through an
# overlay, and writes only below OUT. Run as root of new namespaces.
set -eu
weft=$1 units=$2 guest=$3 out=$4
mount --make-rprivate /
root=$out/root
mkdir -p "$root" "$out/changes"
mount -t tmpfs changes "$out/changes"
mkdir "$out/changes/"{upper,work}
mount -t overlay -o "lowerdir=/,upperdir=$out/changes/upper,workdir=$out/changes/work" root "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs run "$root/run"
mount -t tmpfs tmp "$root/tmp"
mkdir -p "$root/opt/out" "$root/srv/disks" "$root/opt/disks" "$root/home/me/disks"
mount --bind "$out" "$root/opt/out"
touch "$out/console"
mount --bind "$out/console" "$root/dev/console"
cp "$weft" "$root/usr/local/bin/weft"
system=$root/etc/systemd/system
rm -rf "$system"
mkdir -p "$system"
cp -r "$units"/. "$system"
cp "$guest" "$root/opt/guest.sh"
cat >"$system/default.target" <<'U'
[Unit]
Wants=guest.service
U
cat >"$system/guest.service" <<'U'
[Service]
Type=oneshot
Environment=XDG_RUNTIME_DIR=/run
ExecStart=bash /opt/guest.sh
StandardOutput=file:/opt/out/said
StandardError=file:/opt/out/traced
ExecStopPost=systemctl exit --force
U
export container=weft
exec chroot "$root" /lib/systemd/systemd --log-target=console --show-status=no
