# The rescue recipe of docs/rescue.md, to files: the kernel makes a RAID 1, a RAID 5 with ext4 and a
# RAID 6 with LVM and ext4 in it, on the second partitions of image files, and "loses power" with
# the file system mounted and its journal full. weft serves the RAID 5 and the RAID 6, one and two
# members short, with an overlay; the kernel's NBD client mounts what weft serves. The images go to
# the host for the way without root.
. /lab/tap.sh
. /lab/disks.sh
export XDG_RUNTIME_DIR=/tmp/run PYTHONDONTWRITEBYTECODE=1
mkdir -p /tmp/run /tmp/mnt

# make NAME LEVEL MEMBERS INSIDE
make() {
	local name=$1 level=$2 members=$3 inside=$4 i out=/lab/rescue/$1 device=/dev/md0 parts=() chunk=(--chunk 64K)
	[ "$level" = 1 ] && chunk=()
	mkdir -p /tmp/w "$out"
	loops=()
	for ((i = 0; i < members; i++)); do disk "/tmp/w/disk$i.img" 11M 2048-4095 4096-20479; done
	read -ra parts <<<"$(part 2 "${loops[@]}")"
	for i in "${parts[@]}"; do [ "$(blockdev --getsize64 "$i")" = $((8 << 20)) ] || fail "$i is not partition 2"; done
	ok "$name: the kernel finds partition 2 where gpt.py put it"
	check "$name: mdadm --create on partitions" mdadm --create /dev/md0 --run --level "$level" --raid-devices "$members" \
		"${chunk[@]}" --metadata 1.2 --bitmap none --assume-clean --name "$name" "${parts[@]}"
	if [ "$inside" = lvm ]; then
		lvm pvcreate -q -y /dev/md0 >&2 && lvm vgcreate -q -y "vg$name" /dev/md0 >&2 || fail "$name: LVM"
		lvm lvcreate -q -y -Wn -l 100%FREE -n data "vg$name" >&2 || fail "$name: lvcreate"
		device=/dev/mapper/vg$name-data
		# For the host, which need not have LVM of its own: where the first extent begins, and how long it
		# is.
		echo "$(($(lvm pvs --noheadings --nosuffix --units b -o pe_start /dev/md0)))" \
			"$(blockdev --getsize64 "$device")" >"$out/extent"
		ok "$name: a logical volume in it"
	fi
	# Small, and with nothing left to be written in the background.
	mkfs.ext4 -q -b 1024 -N 64 -J size=1 -O ^resize_inode -E lazy_itable_init=0 "$device" >&2 &&
		mount_quiet "$device" || fail "$name: ext4"
	mkdir -p /tmp/mnt/photos/2024 /tmp/mnt/letters
	head -c 1200000 /tmp/lab/pattern-a >/tmp/mnt/photos/2024/a.raw
	tail -c 345678 /tmp/lab/pattern-b >/tmp/mnt/photos/b.raw
	for i in 1 2 3 4 5; do head -c $((i * 777)) /tmp/lab/pattern-b >"/tmp/mnt/letters/$i"; done
	sync
	# These are in the journal alone, as far as names and sizes go.
	head -c 200000 /tmp/lab/pattern-b >/tmp/mnt/photos/2024/late.raw
	sync /tmp/mnt/photos/2024/late.raw
	sums /tmp/mnt >"$out/sums"
	wait_clean md0
	mkdir -p "/tmp/r/$name"
	cp --sparse=always /tmp/w/disk*.img "/tmp/r/$name/"
	cp --sparse=always "/tmp/r/$name"/* "$out/"
	umount /tmp/mnt
	[ "$inside" = lvm ] && lvm vgchange -q -an "vg$name" >&2
	stop_md
	detach
	rm -rf /tmp/w
	ok "$name: $(wc -l <"$out/sums") files, then the power goes"
}

# mounted NAME INSIDE OPTIONS WEFT-ARGUMENT… : serves, attaches, mounts, compares every file
mounted() {
	local name=$1 inside=$2 options=$3 device=/dev/nbd0 t uri="nbd+unix:///$1?socket=/tmp/run/$1.nbd" server client
	shift 3
	"$weft" serve --name "$name" --listen "$uri" "$@" >/tmp/ready 2>/tmp/serve.log &
	server=$!
	for ((t = 0; t < 300; t++)); do grep -q ^ready /tmp/ready && break; sleep 0.1; done
	grep -q ^ready /tmp/ready || { cat /tmp/serve.log >&2; fail "$name: weft serve $*"; }
	python3 /tmp/lab/lib/nbdattach.py "$uri" /dev/nbd0 &
	client=$!
	for ((t = 0; t < 100; t++)); do [ "$(cat /sys/block/nbd0/size)" != 0 ] && [ -e /sys/block/nbd0/pid ] && break; sleep 0.1; done
	if [ "$inside" = lvm ]; then
		lvm vgchange -q -ay "vg$name" >&2 || fail "$name: vgchange"
		device=/dev/mapper/vg$name-data
	fi
	mount -t ext4 -o "$options" "$device" /tmp/mnt || fail "$name: mount -o $options"
	same_files "$name: mounted over NBD (-o $options), every file is right" /tmp/mnt "/lab/rescue/$name/sums"
	umount /tmp/mnt
	[ "$inside" = lvm ] && lvm vgchange -q -an "vg$name" >&2
	python3 /tmp/lab/lib/nbdattach.py - /dev/nbd0
	wait "$client"
	"$weft" stop "$name" >&2
	wait "$server" || { cat /tmp/serve.log >&2; fail "$name: weft serve ended with $?"; }
	ok "$name: weft serve ends well"
}

# by_text : two logical volumes on a RAID 5 of four, found by LVM's text alone, as docs/rescue.md
# says
by_text() {
	local i loops=() from size
	mkdir -p /tmp/w
	for i in 0 1 2 3; do
		truncate -s 8M "/tmp/w/m$i"
		loops[i]=$(losetup --show -f "/tmp/w/m$i") || fail losetup
	done
	mdadm --create /dev/md0 --run --level 5 --raid-devices 4 --chunk 64K --metadata 1.2 --bitmap none --assume-clean \
		"${loops[@]}" >&2 || fail "LVM by its text: mdadm --create"
	lvm pvcreate -q -y /dev/md0 >&2 && lvm vgcreate -q -y -s 1M vg4 /dev/md0 >&2 || fail "LVM by its text: LVM"
	lvm lvcreate -q -y -Wn -l 3 -n first vg4 >&2 && lvm lvcreate -q -y -Wn -l 5 -n second vg4 >&2 ||
		fail "LVM by its text: lvcreate"
	equal "LVM on a RAID 5 of four, chunk 64K: pe_start in sectors, as docs/rescue.md says" \
		"$(lvm pvs --noheadings --nosuffix --units s -o pe_start /dev/md0 | xargs)" 2304
	head -c 5M /tmp/lab/pattern-b >/tmp/w/second
	dd if=/tmp/w/second of=/dev/mapper/vg4-second bs=1M oflag=direct 2>/dev/null || fail "LVM by its text: write"
	lvm vgchange -q -an vg4 >&2
	stop_md
	read -r from size <<<"$("$weft" cat --length 2M "${loops[@]}" | strings | python3 /tmp/lab/lib/lvmplace.py second)"
	equal "LVM by its text: the second volume's length" "$size" $((5 << 20))
	"$weft" cat --offset "$from" --length "$size" "${loops[@]}" | cmp - /tmp/w/second >&2 ||
		fail "LVM by its text: content at $from"
	ok "LVM by its text: the second volume is found at $((from / 512)) sectors"
	"$weft" cat --offset $((from + 512)) --length $((size - 512)) "${loops[@]}" | cmp -s - /tmp/w/second &&
		fail "LVM by its text: a sector beside it is taken for it as well"
	ok "LVM by its text: control: a sector beside it is not it"
	detach
	rm -rf /tmp/w
}

by_text
make r1 1 2 ext4
make r5 5 3 ext4
make r6 6 4 lvm
before=$(content /tmp/r/*/disk*.img)
cd /tmp/r/r5 || exit 1
check "r5: weft rescue finds it, a disk short" "$weft" rescue disk0.img disk2.img
"$weft" serve 'disk0.img#2' 'disk2.img#2' --exec true >&2
equal "r5: without --run or --overlay it is not written (exit 3)" $? 3
mounted r5 ext4 rw --overlay /tmp/changes 'disk0.img#2' 'disk2.img#2'
cd /tmp/r/r6 || exit 1
mounted r6 lvm rw --overlay /tmp/changes 'disk1.img#2' 'disk2.img#2'
# A folder without space: the report comes all the same, and the same command goes on.
cd /tmp/r/r1 || exit 1
mkdir -p /tmp/small
mount -t tmpfs -o size=1M none /tmp/small || fail "tmpfs"
"$weft" rescue disk1.img --to /tmp/small >/tmp/small.out 2>/tmp/small.err
equal "r1: a folder without space (exit 1)" $? 1
check "r1: the report of it is printed" grep -q 'copied to /tmp/small/r1' /tmp/small.out
check "r1: it says how to go on" grep -q 'no space left in the folder; free some and run the same command again' /tmp/small.err
mount -o remount,size=16M /tmp/small || fail "remount"
check "r1: the same command goes on there" "$weft" rescue disk1.img --to /tmp/small
same_files "r1: every file is right after that" /tmp/small/r1 /lab/rescue/r1/sums
# Controls of the comparison: a file with another byte, and one too many.
echo x >>/tmp/small/r1/letters/1
(same_files "" /tmp/small/r1 /lab/rescue/r1/sums) >/tmp/control && fail "control: a changed file is taken for right"
(same_files "" /tmp/small /lab/rescue/r1/sums) >/tmp/control && fail "control: other names are taken for right"
ok "control: a changed file and other names are found"
cd /lab || exit 1
umount /tmp/small
equal "no byte of an image was written" "$(content /tmp/r/*/disk*.img)" "$before"
plan 27
