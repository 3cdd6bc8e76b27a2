# Disks after mistakes and faults, made by the kernel and mdadm. A RAID 10 with XFS, which weft does
# not read: as a file of `weft mount` the kernel mounts it. A RAID 5 with ext4 on which `mdadm
# --create` was repeated with the disks in another order: `weft rescue --try` finds the right one. A
# disk with bad sectors (device-mapper) that GNU ddrescue copied, with its map.
. /lab/tap.sh
. /lab/disks.sh
export DM_DISABLE_UDEV=1
mkdir -p /tmp/mnt /tmp/img

# fill FOLDER : files and folders
fill() {
	mkdir -p "$1/photos/2024" "$1/letters"
	for number in 1 2 3 4 5 6; do
		head -c 2000000 /tmp/lab/pattern-a | tail -c $((2000000 - number)) >"$1/photos/2024/$number.raw" || fail "write"
	done
	for number in 1 2 3 4 5; do head -c $((number * 777)) /tmp/lab/pattern-b >"$1/letters/$number"; done
	sync
}
# members COUNT SIZE : new images, `loops` over them
members() {
	rm -rf /tmp/w
	mkdir -p /tmp/w
	for ((i = 0; i < $1; i++)); do truncate -s "$2" "/tmp/w/sd$i.img" || fail "truncate"; done
	attach /tmp/w/sd*.img
}

# (a) RAID 10, XFS
raid10() {
	local mount
	members 4 170M
	mdadm --create /dev/md0 --run -l10 -n4 -c64K --bitmap none --assume-clean --name tank "${loops[@]}" >&2 || fail "mdadm"
	mkfs.xfs -q -K /dev/md0 >&2 && mount -t xfs /dev/md0 /tmp/mnt || fail "XFS"
	fill /tmp/mnt
	sums /tmp/mnt >/tmp/sums
	umount /tmp/mnt
	head -c 4M /dev/md0 | sha256sum >/tmp/head
	stop_md
	detach
	cd /tmp/w || exit 1
	before=$(content sd*.img)
	check "RAID 10 with XFS: --list names it" bash -c "$weft rescue sd*.img --list | grep '^tank  *XFS'"
	mkdir /tmp/fuse
	"$weft" mount sd0.img sd3.img /tmp/fuse >/tmp/ready 2>/tmp/mount.err &
	mount=$!
	for ((t = 0; t < 300; t++)); do grep -q ^ready /tmp/ready && break; sleep 0.1; done
	grep -q ^ready /tmp/ready || { cat /tmp/mount.err >&2; fail "RAID 10: weft mount"; }
	equal "RAID 10, two of four disks: the volume begins with the same bytes" \
		"$(head -c 4M /tmp/fuse/tank.img | sha256sum)" "$(cat /tmp/head)"
	mount -t xfs -o loop,ro,norecovery /tmp/fuse/tank.img /tmp/mnt || fail "RAID 10: the kernel mounts the file"
	same_files "RAID 10, two of four disks: the kernel reads every file of its XFS through weft mount" /tmp/mnt /tmp/sums
	umount /tmp/mnt
	umount /tmp/fuse
	wait "$mount" || { cat /tmp/mount.err >&2; fail "RAID 10: weft mount ended with $?"; }
	equal "RAID 10: no byte of a disk was written" "$(content sd*.img)" "$before"
	cd /tmp || exit 1
}

# (b) RAID 5, ext4, created once more in another order
wrong_order() {
	local order line offset
	members 4 24M
	mdadm --create /dev/md0 --run -l5 -n4 -c64K --bitmap none --assume-clean --name home "${loops[@]}" >&2 || fail "mdadm"
	mkfs.ext4 -q -J size=4 -E lazy_itable_init=0 /dev/md0 >&2 && mount /dev/md0 /tmp/mnt || fail "ext4"
	fill /tmp/mnt
	sums /tmp/mnt >/tmp/sums
	umount /tmp/mnt
	stop_md
	offset=$(mdadm --examine "${loops[0]}" | awk '/Data Offset/ {print $4 / 2}')
	mdadm --create /dev/md0 --run -l5 -n4 -c64K --bitmap none --assume-clean --name home \
		"${loops[2]}" "${loops[0]}" "${loops[3]}" "${loops[1]}" >&2 || fail "mdadm, once more"
	mount -o ro /dev/md0 /tmp/mnt 2>/dev/null && fail "control: the wrong order has the file system"
	stop_md
	detach
	cd /tmp/w || exit 1
	before=$(content sd*.img)
	for order in "sd0.img sd1.img sd2.img sd3.img" "sd3.img missing sd1.img sd0.img"; do
		# shellcheck disable=SC2086
		"$weft" rescue --try $order >/tmp/tried 2>/tmp/tried.err || { cat /tmp/tried.err >&2; fail "--try $order"; }
		cat /tmp/tried >&2
		line=$(sed -n '1s/^score [0-9]*: \(weft build .*\): an ext2.*/\1/p' /tmp/tried)
		equal "created again: --try $order has the right line first" "$line" \
			"weft build --level raid5 --chunk 64K --layout left-symmetric --data-offset ${offset}K sd0.img sd1.img $(
				case $order in *missing*) echo missing ;; *) echo sd2.img ;; esac) sd3.img"
		rm -rf /tmp/out
		# shellcheck disable=SC2086
		"$weft" ${line#weft } --to /tmp/out >&2 2>/tmp/built.err || { cat /tmp/built.err >&2; fail "$line --to"; }
		same_files "created again: every file is right by that line ($order)" /tmp/out/*/ /tmp/sums
	done
	equal "created again: no byte of a disk was written" "$(content sd*.img)" "$before"
	cd /tmp || exit 1
}

# (c) RAID 5, ext4, a disk with bad sectors that ddrescue copied
bad_sectors() {
	local sectors=$((24 << 11)) bad len=96
	members 4 24M
	mdadm --create /dev/md0 --run -l5 -n4 -c64K --bitmap none --assume-clean --name home "${loops[@]}" >&2 || fail "mdadm"
	mkfs.ext4 -q -J size=4 -E lazy_itable_init=0 /dev/md0 >&2 && mount /dev/md0 /tmp/mnt || fail "ext4"
	fill /tmp/mnt
	sums /tmp/mnt >/tmp/sums
	rm -rf /tmp/tree
	cp -r /tmp/mnt /tmp/tree
	# The strips of a member that lie some way into a file.
	bad=$(($(mdadm --examine "${loops[1]}" | awk '/Data Offset/ {print $4}') + ($(place /tmp/mnt/photos/2024/3.raw) + 1500) / 3 / 128 * 128))
	umount /tmp/mnt
	stop_md
	dmsetup create bad <<T || fail "dmsetup"
0 $bad linear ${loops[1]} 0
$bad $len error
$((bad + len)) $((sectors - bad - len)) linear ${loops[1]} $((bad + len))
T
	rm -rf /tmp/img/*
	cd /tmp/img || exit 1
	ddrescue -q /dev/mapper/bad sd1.img sd1.map >&2
	check "bad sectors: ddrescue names them" bash -c "ddrescuelog -l- -b512 sd1.map | sort -n | tr '\n' ' ' | grep -qx '$(seq -s' ' "$bad" $((bad + len - 1))) '"
	"$weft" image /dev/mapper/bad weft.img >/tmp/image 2>/tmp/image.err
	equal "bad sectors: weft image exits 1" $? 1
	check "bad sectors: weft image has the same bytes" cmp sd1.img weft.img
	equal "bad sectors: weft image's map names the same ones" "$(ddrescuelog -l- weft.img.map | sort -n | sha256sum)" \
		"$(ddrescuelog -l- sd1.map | sort -n | sha256sum)"
	dmsetup remove bad
	detach
	cp --sparse=always /tmp/w/sd[023].img .
	before=$(content sd*.img)
	copied "bad sectors: image and map of ddrescue" /tmp/sums home sd0.img sd1.img sd2.img sd3.img
	mv sd1.map away
	rm -rf /tmp/out
	"$weft" rescue sd0.img sd1.img sd2.img sd3.img --to /tmp/out >&2 2>/dev/null
	(same_files "" /tmp/out/home /tmp/sums) >/tmp/control && fail "control: without its map, the image is as good"
	ok "bad sectors: control: without its map, zeros count as data"
	mv away sd1.map
	rm -rf /tmp/out
	"$weft" rescue sd0.img sd1.img sd3.img --to /tmp/out >&2 2>/tmp/copied.err
	equal "bad sectors, another disk missing: exit" $? 1
	check "bad sectors, another disk missing: what is lost is named, all else is right" \
		python3 /tmp/lab/lib/judged.py /tmp/tree /tmp/out/home /tmp/out/weft-rescue-1.jsonl
	equal "bad sectors: no byte of an image was written" "$(content sd*.img)" "$before"
	cd /tmp || exit 1
}

raid10
wrong_order
bad_sectors
plan 19
