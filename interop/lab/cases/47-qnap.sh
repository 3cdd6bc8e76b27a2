# The disks of a NAS as QNAP makes them, by the kernel, mdadm and LVM: four disks with four
# partitions each, superblocks 1.0 at their ends; the system (md9) and settings (md13) are RAID 1
# with 24 slots and a bitmap, of which four are taken, swap is a RAID 1, and the data a RAID 5 with
# LVM and ext4. The "power goes" with the file system mounted. weft brings the files back: with all
# disks, with one gone, with bad sectors on another one as well, and with all partition tables gone.
. /lab/tap.sh
. /lab/disks.sh
mkdir -p /tmp/w /tmp/mnt /tmp/nas
SIZE=62M DATA_START=$((38912 * 512))

loops=()
for number in 0 1 2 3; do
	disk "/tmp/w/sd$number.img" "$SIZE" 2048-22527 22528-38911 38912-104447 104448-124927
done
# array MD NAME PARTITION OPTION… : on this partition of every disk
array() {
	local md=$1 name=$2 number=$3 spare_slots=()
	shift 3
	case $* in *-n24*) for ((t = 4; t < 24; t++)); do spare_slots+=(missing); done ;; esac
	# shellcheck disable=SC2046
	mdadm --create "/dev/$md" --run -e1.0 --assume-clean --name "$name" "$@" \
		$(part "$number" "${loops[@]}") "${spare_slots[@]}" >&2 || fail "mdadm --create $md"
}
array md9 9 1 -l1 -n24 --bitmap internal
array md126 256 2 -l1 -n4 --bitmap none
array md1 1 3 -l5 -n4 -c64K --bitmap internal
array md13 13 4 -l1 -n24 --bitmap internal
for md in md9 md13; do
	mkfs.ext4 -q -b 1024 -N 64 -J size=1 "/dev/$md" >&2 && mount "/dev/$md" /tmp/mnt || fail "ext4 on $md"
	mkdir -p /tmp/mnt/etc && echo nas >/tmp/mnt/etc/hostname || fail "$md"
	umount /tmp/mnt
done
mkswap /dev/md126 >&2 || fail "mkswap"
lvm pvcreate -q -y /dev/md1 >&2 && lvm vgcreate -q -y -s 1M vg288 /dev/md1 >&2 || fail "LVM"
lvm lvcreate -q -y -Wn -l 2 -n lv544 vg288 >&2 && lvm lvcreate -q -y -Wn -l 100%FREE -n lv1 vg288 >&2 ||
	fail "lvcreate"
mkfs.ext4 -q -b 4096 -N 256 -J size=4 -E lazy_itable_init=0 /dev/mapper/vg288-lv1 >&2 &&
	mount_quiet /dev/mapper/vg288-lv1 || fail "ext4"
mkdir -p /tmp/mnt/Public/2024 /tmp/mnt/Multimedia
for number in 1 2 3 4; do
	head -c 3000000 /tmp/lab/pattern-a | tail -c $((3000000 - number)) >"/tmp/mnt/Public/2024/$number.raw" || fail "write"
done
for number in 1 2 3 4 5; do head -c $((number * 777)) /tmp/lab/pattern-b >"/tmp/mnt/Multimedia/$number"; done
sync
head -c 200000 /tmp/lab/pattern-b >/tmp/mnt/Public/late.raw
sync /tmp/mnt/Public/late.raw
# Sector of the array, some way into a file.
lost=$(($(lvm pvs --noheadings --nosuffix --units s -o pe_start /dev/md1) + (2 << 11) + $(place /tmp/mnt/Public/2024/3.raw) + 2000))
sums /tmp/mnt >/tmp/nas/sums
cp -r /tmp/mnt /tmp/nas/tree
wait_clean md1 md9 md13 md126
cp --sparse=always /tmp/w/sd*.img /tmp/nas/
ok "the kernel, mdadm and LVM made it: $(wc -l </tmp/nas/sums) files, then the power goes"
umount /tmp/mnt
lvm vgchange -q -an vg288 >&2
mdadm --stop --scan >&2
losetup -D
rm -rf /tmp/w

cd /tmp/nas || exit 1
before=$(content sd*.img)
"$weft" rescue sd*.img --list >/tmp/list 2>/tmp/list.err || { cat /tmp/list.err >&2; fail "--list"; }
cat /tmp/list /tmp/list.err >&2
check "the system, swap and settings are one line" grep -q \
	'^left out, the system of a NAS: 9 (ext4, .*), 256 (swap, .*), 13 (ext4, .*); --all' /tmp/list
check "the volume is found" grep -q '^vg288/lv1  *ext4 ' /tmp/list
copied "all disks" /tmp/nas/sums vg288-lv1 sd*.img
copied "a disk gone" /tmp/nas/sums vg288-lv1 sd0.img sd1.img sd3.img
equal "no byte of a disk was written" "$(content sd*.img)" "$before"

# Copies of which the tables are gone, the first and the last 34 sectors of each disk.
mkdir bare
for number in 0 1 2 3; do
	cp --sparse=always "sd$number.img" bare/
	size=$(stat -c %s "bare/sd$number.img")
	for at in 0 $((size / 512 - 34)); do
		dd if=/dev/zero of="bare/sd$number.img" seek="$at" count=34 conv=notrunc 2>/dev/null || fail "dd"
	done
done

# A disk gone, and bad sectors on another one: what both had is lost, and named; all else is right.
not_rescued sd2.img $((62 << 20)) $((DATA_START + (lost / 3 / 128 << 16))) $((96 << 10))
before=$(content sd*.img)
rm -rf /tmp/out
"$weft" rescue sd1.img sd2.img sd3.img --to /tmp/out >/tmp/copied 2>/tmp/copied.err
equal "a disk gone, bad sectors on another one: exit" $? 1
check "what is lost is named, byte for byte, and all else is right" \
	python3 /tmp/lab/lib/judged.py tree /tmp/out/vg288-lv1 /tmp/out/weft-rescue-1.jsonl
printf x | dd of=/tmp/out/vg288-lv1/Multimedia/1 conv=notrunc 2>/dev/null
python3 /tmp/lab/lib/judged.py tree /tmp/out/vg288-lv1 /tmp/out/weft-rescue-1.jsonl >&2 && fail "control: a wrong byte is taken for right"
ok "control: a wrong byte is found"
copied "bad sectors, all disks" /tmp/nas/sums vg288-lv1 sd*.img
equal "bad sectors: no byte of a disk was written" "$(content sd*.img)" "$before"

# Without tables the search of every sector finds the same.
without=$(content bare/*.img)
"$weft" rescue bare/*.img >/tmp/list 2>/tmp/list.err
cat /tmp/list /tmp/list.err >&2
grep -qE '^array ([^ ]*:)?1 \(' /tmp/list && fail "control: the data's superblock, 11 MiB from the end, is found without a search"
grep -qE '^array ([^ ]*:)?13 \(' /tmp/list || fail "without tables: the array at the end of the disks is not found"
check "without tables: the search is offered" grep -q -e 'weft rescue --deep bare/sd0.img' /tmp/list.err
copied "without tables, all disks" /tmp/nas/sums vg288-lv1 --deep bare/*.img
copied "without tables, a disk gone" /tmp/nas/sums vg288-lv1 --deep bare/sd[123].img
equal "without tables: no byte of a disk was written" "$(content bare/*.img)" "$without"
plan 20
