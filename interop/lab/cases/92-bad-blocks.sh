# The bad-block log of members, which the kernel's md and weft keep in turns: an entry of the
# kernel's is honoured by weft and cleared once it is written anew; what weft cannot recover beside
# a member with unreadable sectors is an entry, and the kernel honours and clears it.
. /lab/faults.sh

# middle : sector of each member, from its start, in the middle of its data
middle() {
	local offset size
	offset=$(mdadm --examine "${disks[0]}" | awk '/Data Offset/ {print $4}')
	size=$(mdadm --examine "${disks[0]}" | awk '/Used Dev Size|Avail Dev Size/ {print $5; exit}')
	echo $((offset + size / 128 * 64))
}

# filled : content around the middle of the members, at which nothing else is written
filled() {
	assemble "$name"
	put 2300 1000
	wait_idle
}

for level in 5 6; do
	begin "RAID $level, the kernel's log" "$level" 0
	filled
	at=$(middle)
	echo "$at 16" >"/sys/block/md0/md/dev-${disks[1]#/dev/}/bad_blocks" || fail "$name: bad_blocks"
	put 5 1
	equal "$name: the kernel has an entry" "$(bad_blocks "${disks[1]}")" "$at 16"
	stop_md
	check "$name: and writes it" sh -c "mdadm --examine-badblocks ${disks[1]} | grep -q '$at for 16 sectors'"
	check "$name: weft examine lists it" sh -c "$weft examine ${disks[1]} | grep -q '$at for 16 sectors'"
	# What the member holds there is of no use.
	dd if=/tmp/lab/pattern-a of=/tmp/w/m1 bs=512 seek="$at" skip=77 count=16 conv=notrunc 2>/dev/null
	serves "weft serves it for writing, and clears what it writes anew" "
		$weft status turns >/tmp/status
		grep -q 'bad blocks: 16 sectors of .* in 1 ranges, from sector $at on' /tmp/status
		$reads
		$(writes 8)
		$weft check turns
		$weft status turns >/tmp/status
		grep -q 'bad blocks' /tmp/status && exit 1
		$reads"
	in_sync "$name"
	equal "$name: no entry is left" "$(bad_blocks "${disks[1]}")" ""
	stop_md
done

for level in 5 6; do
	few=$((level == 6 ? 2 : 1))
	begin "RAID $level, weft's log" "$level" "$few"
	without_dm
	filled
	stop_md
	at=$(middle)
	loops=("${disks[0]}")
	for each in $faulty; do
		below=$(cat "/tmp/below.$each")
		dmsetup create "$each" --table "0 $SECTORS linear $below 0" || fail "$name: dmsetup create"
		loops+=("/dev/mapper/$each")
	done
	loops+=("${disks[@]:few+1}")
	serves "beside $few that cannot be read in the middle, a new member is complete but for that" "
		$weft set turns stripe_size=4096
		become '0 $at linear DEV 0;$at 8 error;$((at + 8)) $((SECTORS - at - 8)) linear DEV $((at + 8))'
		$weft fail turns ${disks[0]}
		$weft remove turns ${disks[0]}
		$weft add turns --force ${disks[0]}
		$weft wait turns
		shows $whole
		$weft status turns >/tmp/status
		grep 'bad blocks: [0-9]* sectors of ${disks[0]} ' /tmp/status >/tmp/said
		$reads 2>/tmp/refused && exit 1
		grep -q 'NBD error 5' /tmp/refused
		$(writes 3 4)"
	without_dm
	loops=("${disks[@]}")
	assemble "$name"
	equal "$name: the kernel takes all members" "$(cat /sys/block/md0/md/{degraded,array_state} | xargs)" "0 clean"
	equal "$name: and weft's entry" "$(bad_blocks "${disks[0]}")" "$at 8"
	check "$name: which weft had told" grep -q "bad blocks: 8 sectors .* from sector $at on" /tmp/said
	check "$name: the kernel computes it, now that the others can be read" same_as /tmp/expected
	checked "$name"
	equal "$name: and clears it" "$(bad_blocks "${disks[0]}")" ""
	stop_md
done
plan 32
