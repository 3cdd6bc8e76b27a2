# btrfs in a RAID 5 of partitions, by the kernel, as NAS makers use it: compressed files, a
# subvolume, a snapshot, and a file that was only fsynced (it is in the log tree alone) when the
# "power goes". weft brings the files back, with all disks and with one gone.
. /lab/tap.sh
. /lab/disks.sh
mkdir -p /tmp/w /tmp/mnt /tmp/btr
loops=()
for number in 0 1 2; do disk "/tmp/w/sd$number.img" 70M 2048-4095 4096-139263; done
read -ra parts <<<"$(part 2 "${loops[@]}")"
check "mdadm --create" mdadm --create /dev/md0 --run -l5 -n3 -c64K -e1.2 --assume-clean --bitmap none --name 2 --homehost nas "${parts[@]}"
check "mkfs.btrfs" mkfs.btrfs -q -L family /dev/md0
mount -t btrfs -o compress-force=zstd,commit=300 /dev/md0 /tmp/mnt || fail "mount"
btrfs subvolume create /tmp/mnt/photos >&2 || fail "subvolume"
mkdir -p /tmp/mnt/photos/2024 /tmp/mnt/music
head -c 9000000 /tmp/lab/pattern-a >/tmp/mnt/photos/2024/a.raw
for number in 1 2 3; do yes "line $number" | head -c 700000 >"/tmp/mnt/music/$number.txt"; done
for number in 1 2 3 4 5; do head -c $((number * 777)) /tmp/lab/pattern-b >"/tmp/mnt/music/$number"; done
sync
btrfs subvolume snapshot -r /tmp/mnt/photos /tmp/mnt/monday >&2 || fail "snapshot"
sync
generation() { btrfs inspect-internal dump-super /dev/md0 | awk "\$1 == \"$1\" {print \$2}"; }
head -c 200000 /tmp/lab/pattern-b >/tmp/mnt/photos/2024/late.raw
sync /tmp/mnt/photos/2024/late.raw
[ "$(generation log_root)" != 0 ] || fail "the last file is not in the log tree alone"
ok "the last file is in the log tree alone"
sums /tmp/mnt monday >/tmp/btr/sums
wait_clean md0
cp --sparse=always /tmp/w/sd*.img /tmp/btr/
ok "the kernel made it: $(wc -l </tmp/btr/sums) files, then the power goes"
umount /tmp/mnt
stop_md
losetup -D
rm -rf /tmp/w

cd /tmp/btr || exit 1
before=$(content sd*.img)
copied "all disks" /tmp/btr/sums 2 sd*.img
copied "a disk gone" /tmp/btr/sums 2 sd0.img sd2.img
"$weft" rescue sd*.img --list >/tmp/list 2>/tmp/list.err
check "the snapshot is a place of its own" grep -q '^2:monday' /tmp/list
equal "no byte of a disk was written" "$(content sd*.img)" "$before"
flip sd1.img $((40 << 20))
[ "$(content sd*.img)" = "$before" ] && fail "control: a byte that was written is not noticed"
ok "control: a byte that was written is noticed"
plan 11
