# The disks of a NAS as Synology's hybrid RAID makes them, by the kernel, mdadm and LVM: four disks,
# on each a RAID 1 with the system and a RAID 1 with swap (metadata 0.90), a RAID 5 over all of them
# and a RAID 1 over what two larger ones have left, one LVM volume group over both, ext4 in it. The
# "power goes" with the file system mounted. weft brings the files back: with all disks, with one of
# the large ones gone, and with bad sectors on another one as well (a map of ddrescue).
. /lab/tap.sh
. /lab/disks.sh
mkdir -p /tmp/w /tmp/mnt /tmp/nas

loops=()
for number in 0 1 2 3; do
	parts=(2048-22527 22528-38911 38912-71679)
	if [ "$number" -lt 2 ]; then size=36M; else size=52M parts+=(71680-104447); fi
	disk "/tmp/w/sd$number.img" "$size" "${parts[@]}"
done
# shellcheck disable=SC2046
{
	mdadm --create /dev/md0 --run -l1 -n4 -e0.90 --assume-clean --bitmap none $(part 1 "${loops[@]}") >&2 || fail "system"
	mdadm --create /dev/md1 --run -l1 -n4 -e0.90 --assume-clean --bitmap none $(part 2 "${loops[@]}") >&2 || fail "swap"
	mdadm --create /dev/md2 --run -l5 -n4 -c64K -e1.2 --assume-clean --bitmap none --name 2 --homehost nas $(part 3 "${loops[@]}") >&2 || fail "data"
	mdadm --create /dev/md3 --run -l1 -n2 -e1.2 --assume-clean --bitmap none --name 3 --homehost nas $(part 4 "${loops[@]:2}") >&2 || fail "more data"
}
mkfs.ext4 -q -b 1024 -N 64 -J size=1 -L 1.42.6-25556 /dev/md0 >&2 && mount /dev/md0 /tmp/mnt || fail "the system's ext4"
mkdir -p /tmp/mnt/etc /tmp/mnt/dev && echo nas >/tmp/mnt/etc/hostname && mknod /tmp/mnt/dev/null c 1 3 || fail "the system"
umount /tmp/mnt
mkswap -q /dev/md1 >&2 || mkswap /dev/md1 >&2 || fail "mkswap"
lvm pvcreate -q -y /dev/md2 /dev/md3 >&2 && lvm vgcreate -q -y -s 1M vg1 /dev/md2 /dev/md3 >&2 || fail "LVM"
lvm lvcreate -q -y -Wn -l 100%FREE -n volume_1 vg1 >&2 || fail "lvcreate"
mkfs.ext4 -q -b 1024 -N 256 -J size=1 -O ^resize_inode -E lazy_itable_init=0 /dev/mapper/vg1-volume_1 >&2 &&
	mount_quiet /dev/mapper/vg1-volume_1 || fail "ext4"
mkdir -p /tmp/mnt/photos/2024 /tmp/mnt/music
# More than the first array holds, so that files lie on both.
for number in 1 2 3 4; do
	head -c 11000000 "/tmp/lab/pattern-a" | tail -c $((11000000 - number)) >"/tmp/mnt/photos/2024/$number.raw" || fail "write"
done
for number in 1 2 3 4 5; do head -c $((number * 777)) /tmp/lab/pattern-b >"/tmp/mnt/music/$number"; done
sync
head -c 200000 /tmp/lab/pattern-b >/tmp/mnt/photos/late.raw
sync /tmp/mnt/photos/late.raw
sums /tmp/mnt >/tmp/nas/sums
wait_clean md2 md3
cp --sparse=always /tmp/w/sd*.img /tmp/nas/
ok "the kernel, mdadm and LVM made it: $(wc -l </tmp/nas/sums) files, then the power goes"
umount /tmp/mnt
lvm vgchange -q -an vg1 >&2
mdadm --stop --scan >&2
losetup -D
rm -rf /tmp/w

cd /tmp/nas || exit 1
before=$(content sd[012].img)
"$weft" rescue sd*.img --list >/tmp/list 2>/tmp/list.err || { cat /tmp/list.err >&2; fail "--list"; }
cat /tmp/list /tmp/list.err >&2
check "the system is one line" grep -q '^left out, the system of a NAS: array-.* (ext4, 9.93 MiB), array-.* (swap, 7.93 MiB); --all' /tmp/list
check "the volume on two arrays is found" grep -q '^vg1/volume_1  *ext4 ' /tmp/list
copied "all disks" /tmp/nas/sums vg1-volume_1 sd*.img
copied "a large disk gone" /tmp/nas/sums vg1-volume_1 sd0.img sd1.img sd2.img
# Bad sectors on another disk where the missing one is not needed: in the half of a mirror that is
# whole.
not_rescued sd3.img $((52 << 20)) $((36 << 20)) $((1 << 20))
copied "a small disk gone, bad sectors on a large one" /tmp/nas/sums vg1-volume_1 sd0.img sd2.img sd3.img
"$weft" rescue sd0.img sd3.img --list >/tmp/list 2>/tmp/list.err
grep -q '^left out' /tmp/list && fail "control: what is left out although the data cannot be read"
check "too few disks: the array keeps its name" grep -q 'array nas:2 (.*): raid5, .* 2 of 4 members found: cannot be read' /tmp/list.err
equal "no byte of a disk was written" "$(content sd[012].img)" "$before"
plan 11
