# The disks of a NAS as Synology's hybrid RAID makes them, by the kernel, mdadm and LVM: four disks,
# on each a RAID 1 with the system and a RAID 1 with swap (metadata 0.90), a RAID 5 over all of them
# and a RAID 1 over what two larger ones have left, one LVM volume group over both, ext4 in it. The
# "power goes" with the file system mounted. weft brings the files back: with all disks, with one of
# the large ones gone, and with bad sectors on another one as well (a map of ddrescue).
. /lab/tap.sh
export PATH=/usr/bin:$PATH
mkdir -p /tmp/w /tmp/mnt /tmp/nas
weft=/tmp/lab/weft.bin
lvm() { command lvm "$@" --config 'activation{udev_sync=0 udev_rules=0} devices{use_devicesfile=0 obtain_device_list_from_udev=0 scan="/dev"} backup{backup=0 archive=0}' 2>/dev/null; }

loops=()
for disk in 0 1 2 3; do
	parts=(2048-22527 22528-38911 38912-71679)
	if [ "$disk" -lt 2 ]; then mib=36; else mib=52 parts+=(71680-104447); fi
	truncate -s "${mib}M" "/tmp/w/sd$disk.img"
	python3 /tmp/lab/lib/gpt.py "/tmp/w/sd$disk.img" "${parts[@]}" || fail "gpt.py"
	loops[disk]=$(losetup --show -P -f "/tmp/w/sd$disk.img") || fail losetup
done
# part NUMBER LOOP… : the partitions of these disks
part() { local number=$1; shift; printf "%sp$number " "$@"; }
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
	mount /dev/mapper/vg1-volume_1 /tmp/mnt || fail "ext4"
mkdir -p /tmp/mnt/photos/2024 /tmp/mnt/music
# More than the first array holds, so that files lie on both.
for number in 1 2 3 4; do
	head -c 11000000 "/tmp/lab/pattern-a" | tail -c $((11000000 - number)) >"/tmp/mnt/photos/2024/$number.raw" || fail "write"
done
for number in 1 2 3 4 5; do head -c $((number * 777)) /tmp/lab/pattern-b >"/tmp/mnt/music/$number"; done
sync
head -c 200000 /tmp/lab/pattern-b >/tmp/mnt/photos/late.raw
sync /tmp/mnt/photos/late.raw
(cd /tmp/mnt && find . -type f -print0 | sort -z | xargs -0 sha256sum) >/tmp/nas/sums
for ((t = 0; t < 300; t++)); do [ "$(cat /sys/block/md2/md/array_state /sys/block/md3/md/array_state | sort -u)" = clean ] && break; sleep 0.1; done
sleep 0.3
cp --sparse=always /tmp/w/sd*.img /tmp/nas/
ok "the kernel, mdadm and LVM made it: $(wc -l </tmp/nas/sums) files, then the power goes"
umount /tmp/mnt
lvm vgchange -q -an vg1 >&2
mdadm --stop --scan >&2
losetup -D
rm -rf /tmp/w

cd /tmp/nas || exit 1
before=$(cat sd[012].img | sha256sum)
# copied WHAT DISK… : copies the files out of the disks, and compares every one
copied() {
	local what=$1
	shift
	rm -rf /tmp/out
	"$weft" rescue "$@" --to /tmp/out >/tmp/copied 2>/tmp/copied.err || { cat /tmp/copied /tmp/copied.err >&2; fail "$what"; }
	equal "$what: one file system is copied" "$(cd /tmp/out && ls -d */)" vg1-volume_1/
	(cd /tmp/out/vg1-volume_1 && sha256sum --quiet -c /tmp/nas/sums) >&2 || fail "$what: files"
	ok "$what: every file is right"
}
"$weft" rescue sd*.img --list >/tmp/list 2>/tmp/list.err || { cat /tmp/list.err >&2; fail "--list"; }
cat /tmp/list >&2
check "the system is one line" grep -q '^left out, the system of a NAS: array-.* (ext4, 9.93 MiB), array-.* (swap, 7.93 MiB); --all' /tmp/list
check "the volume on two arrays is found" grep -q '^vg1/volume_1  *ext4 ' /tmp/list
copied "all disks" sd*.img
copied "a large disk gone" sd0.img sd1.img sd2.img
# Bad sectors on another disk where the missing one is not needed: in the half of a mirror that is whole.
printf '# Mapfile. Created by GNU ddrescue version 1.27\n0x0 + 1\n0x0 0x2400000 +\n0x2400000 0x100000 -\n0x2500000 0x%x +\n' \
	$(((52 << 20) - 0x2500000)) >sd3.img.map
dd if=/dev/zero of=sd3.img bs=1M seek=36 count=1 conv=notrunc 2>/dev/null
copied "a small disk gone, bad sectors on a large one" sd0.img sd2.img sd3.img
"$weft" rescue sd0.img sd3.img --list >/tmp/list 2>/tmp/list.err
grep -q '^left out' /tmp/list && fail "control: what is left out although the data cannot be read"
check "too few disks: the array keeps its name" grep -q 'array nas:2 (.*): raid5, .* 2 of 4 members found: cannot be read' /tmp/list.err
equal "no byte of a disk was written" "$(cat sd[012].img | sha256sum)" "$before"
plan 11
