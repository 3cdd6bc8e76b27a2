# Members that lie or rot: writes that device-mapper acknowledges and drops, sectors that rot below
# dm-integrity, and a kill while members are slow. weft's check and the kernel's count the same.
. /lab/faults.sh

# Writes that are acknowledged and dropped. No error says so while it lasts, and reads may be old.
# What is left to see: members with old superblocks, or, if they are written again later, a check.
for level in 5 6; do
	begin "RAID $level, drop_writes to the end" "$level" 1
	serves "a member drops its writes, superblocks too" "
		become '0 $SECTORS flakey DEV 0 0 60 1 drop_writes'
		$(writes 8)
		sleep 1
		$(writes 9 8)"
	without_dm
	"$weft" serve --name turns "${loops[@]}" --exec true >&2
	equal "$name: weft does not take it, and wants consent to go on without (exit 3)" $? 3
	check "$name: content by weft" bash -c "'$weft' cat ${loops[*]} | cmp - /tmp/expected"
	by_kernel --run

	begin "RAID $level, drop_writes for a while" "$level" 1
	# Dirty all the while, so that each superblock says clean at the end, and what it missed is not
	# seen by them.
	serves "a member drops writes, and then no more; weft's check counts it" "
		$weft set turns safe_mode_delay=60
		$pattern turn \"\$uri\" /tmp/expected 7 12
		become '0 $SECTORS flakey DEV 0 0 60 1 drop_writes'
		$(writes 8)
		become '0 $SECTORS linear DEV 0'
		$weft check turns >/tmp/checked && status=0 || status=\$?
		[ \$status = 5 ]
		shows $whole
		$weft status --json turns >/tmp/status.json"
	counted=$(sed -n 's/.*"mismatch_cnt": *\([0-9]*\).*/\1/p' /tmp/status.json | head -1)
	at_least "$name: mismatches" "$counted" 8
	without_dm
	assemble "$name"
	sync_action check
	equal "$name: the kernel's check counts the same" "$mismatches" "$counted"
	stop_md
	left
	mdadm --assemble --readonly --run /dev/md0 "${loops[@]}" >&2 || fail "$name: assemble without it"
	check "$name: content without it" same_as /tmp/expected
	stop_md
done

# rot DEVICE FILE COUNT : flips a bit of COUNT sectors of the device in the file below it, where
# dm-integrity keeps them; prints their numbers
rot() {
	python3 -S - "$@" <<'P'
import os, sys
device, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
data = open(device, "rb").read()
with open(path, "r+b") as f:
    below = bytearray(f.read())
    start = 3 << 19  # data of the array, past its metadata
    sectors = [at for at in range(start, len(data), 512) if any(data[at : at + 512])]
    found = 0
    for at in sectors[:: max(1, len(sectors) // (2 * count))]:
        place = below.find(data[at : at + 512])
        if place < 0 or below.find(data[at : at + 512], place + 1) >= 0:
            continue
        f.seek(place + 100)
        f.write(bytes([data[at + 100] ^ 16]))
        print(at // 512)
        found += 1
        if found == count:
            break
assert found == count, f"{found} sectors that are there once"
P
}

# unreadable DEVICE SECTOR… : how many of the sectors cannot be read
unreadable() {
	local device=$1 bad=0
	shift
	for sector in "$@"; do
		dd if="$device" of=/dev/null bs=512 skip="$sector" count=1 iflag=direct 2>/dev/null || bad=$((bad + 1))
	done
	echo $bad
}

# Sectors that rot below dm-integrity: reads of them fail until they are written again.
for level in 5 6; do
	name="RAID $level, rot below dm-integrity"
	slots=$((level == 6 ? 5 : 4))
	make_disks "$slots" $SIZE
	options="0 - D 1 internal_hash:crc32c"
	dmsetup create faulty1 --table "0 8 integrity ${disks[1]} $options" && dmsetup remove faulty1 ||
		fail "$name: formatting"
	provided=$(od -An -tu8 -j16 -N8 /tmp/w/m1 | xargs)
	dmsetup create faulty1 --table "0 $provided integrity ${disks[1]} $options" || fail "$name: dmsetup create"
	dd if=/dev/zero of=/dev/mapper/faulty1 bs=64k count=$((provided / 128)) oflag=direct status=none
	dd if=/dev/zero of=/dev/mapper/faulty1 bs=512 seek=$((provided / 128 * 128)) oflag=direct status=none 2>/dev/null
	loops[1]=/dev/$(dmsetup info -c --noheadings -o blkdevname faulty1)
	check "$name: weft create" "$weft" create --level "$level" --raid-devices "$slots" --chunk 32K --assume-clean \
		--name turns "${loops[@]}"
	rm -f /tmp/expected
	with_weft "$name: weft writes" "$(writes 7 60)"
	sectors=$(rot /dev/mapper/faulty1 /tmp/w/m1 24) || fail "$name: rot"
	# shellcheck disable=SC2086
	equal "$name: planted, of 24 sectors cannot be read" "$(unreadable /dev/mapper/faulty1 $sectors)" 24
	with_weft "$name: all is read, every block is corrected, no member fails" "
		$reads
		$weft check turns
		$weft status --json turns >/tmp/status.json"
	corrected=$(grep -o '"corrected": *[0-9]*' /tmp/status.json | awk '{ total += $NF } END { print total }')
	at_least "$name: sectors corrected" "${corrected:-0}" 24
	# shellcheck disable=SC2086
	equal "$name: and can be read now" "$(unreadable /dev/mapper/faulty1 $sectors)" 0
	in_sync "$name"
	stop_md
	dmsetup remove faulty1
done

# One of three copies rots. md's repair would write the first one over the others.
name="RAID 1 of three, the first copy rots"
make_disks 3 $SIZE
mdadm --create /dev/md0 --run --level 1 --raid-devices 3 --metadata 1.2 --bitmap none --assume-clean "${loops[@]}" >&2 ||
	fail "$name: mdadm --create"
expect_zeros
kernel_writes 1
put 700 300
stop_md
offset=$(mdadm --examine "${disks[0]}" | awk '/Data Offset/ {print $4}')
dd if=/tmp/lab/pattern-a of="${disks[0]}" bs=512 seek=$((offset + 6000)) count=3 oflag=direct conv=notrunc status=none
assemble "$name"
sync_action check
# Both of the others differ from the first copy.
equal "$name: the kernel counts the others" "$mismatches" 256
stop_md
with_weft "$name: weft names the copy, wants consent, and takes the majority" "
	$weft check turns >/tmp/checked && exit 1
	grep -q '${disks[0]}: its copy alone is wrong in 1 range, by the others' /tmp/checked
	$weft repair turns && exit 1
	$weft repair --trust majority turns
	$reads"
in_sync "$name"
stop_md

# Killed while members are slow (reliability.md F15): what was acknowledged is there.
begin "RAID 5, killed while members are slow" 5 2
. /tmp/faults.sh
become "0 $SECTORS delay DEV 0 5 DEV 0 80"
kill_weft_mid_write "$name"
without_dm
resynced "$name"
stop_md

plan 55
