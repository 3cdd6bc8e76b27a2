# Arrays that get a member, or another chunk or layout, by the kernel's md and by weft: each goes on
# where the other stopped, was killed or lost a member.
. /lab/faults.sh

# fresh NAME LEVEL [BITMAP] : an array of the kernel's of four members; the fifth disk is for later
fresh() {
	name=$1
	make_disks 5 16M
	mdadm --create /dev/md0 --run --level "$2" --raid-devices 4 --chunk 32 --metadata 1.2 \
		--bitmap "${3:-none}" --assume-clean "${disks[@]:0:4}" >&2 || fail "$name: mdadm --create"
	loops=("${disks[@]:0:4}")
	expect_zeros
	kernel_writes 1
	put 700 800
}

# half_grown : stops the array while a part of it has five members
half_grown() {
	local t
	echo 1000 >/sys/block/md0/md/sync_speed_max
	echo 500 >/sys/block/md0/md/sync_speed_min
	mdadm --add /dev/md0 "${disks[4]}" >&2 || fail "$name: mdadm --add"
	mdadm --grow /dev/md0 --raid-devices 5 >&2 || fail "$name: mdadm --grow"
	for ((t = 0; t < 300; t++)); do
		[ "$(awk '{print $1 + 0}' /sys/block/md0/md/sync_completed)" -ge 2000 ] && break
		sleep 0.1
	done
	stop_md
	loops=("${disks[@]}")
	in_the_middle
}

# in_the_middle : every member says that a part of the array is reshaped
in_the_middle() {
	mdadm --examine "${loops[@]}" >/tmp/said
	equal "$name: a part is reshaped" "$(grep -c "Reshape pos'n : [1-9]" /tmp/said) $(grep -c 'Delta Devices : 1 (4->5)' /tmp/said)" "${#loops[@]} ${#loops[@]}"
}

# checked_anew : every stripe is checked, also those that the kernel's reshape left in its stripe
# cache, which its check would not read
checked_anew() {
	stop_md
	assemble "$name"
	wait_idle
	checked "$name"
}

# grown TEXT [DEGRADED] : the kernel has the array with five members, the content, and no mismatch
grown() {
	assemble "$name"
	wait_idle
	equal "$name: $1" "$(cat /sys/block/md0/md/{raid_disks,degraded,array_state} | xargs)" "5 ${2:-0} clean"
	larger
	check "$name: content" same_as /tmp/expected
	[ "${2:-0}" != 0 ] || checked_anew
	stop_md
	equal "$name: nothing of the reshape is left" "$(mdadm --examine "${loops[@]}" | grep -c 'Reshape\|Delta\|New Offset')" 0
}

# larger : what is expected becomes as large as the device; what was added is zero
larger() {
	local size
	size=$(blockdev --getsize64 /dev/md0)
	at_least "$name: the array is larger" "$size" "$(stat -c %s /tmp/expected)"
	truncate -s "$size" /tmp/expected
}

# enlarge LEVEL : a script that makes what is expected as large as the array then is
enlarge() {
	local data=$((4 - ($1 == 6 ? 2 : 1)))
	echo "truncate -s \$((\$(stat -c %s /tmp/expected) / $data * ($data + 1))) /tmp/expected"
}

slow=(--set sync_speed_max=1000)
reads="$pattern verify \"\$uri\" /tmp/expected"
writes="$pattern write \"\$uri\" /tmp/expected 5 24"

for level in 4 5 6; do
	fresh "RAID $level, weft goes on" $level
	half_grown
	check "$name: weft reads it" sh -c "$weft cat ${loops[*]} | cmp - /tmp/expected"
	check "$name: and tells of it" sh -c "$weft assemble ${loops[*]} 2>&1 | grep -q 'a reshape from 4 to 5 members'"
	with_weft "$name: weft finishes it" "$writes; $weft set turns sync_speed_max=100000; $weft wait turns; $(enlarge $level)
		$reads; $weft detail turns | grep 'Raid Devices : 5'; $writes" "${slow[@]}"
	grown "the kernel takes it"

	fresh "RAID $level, the kernel goes on" $level
	stop_md
	with_weft "$name: weft stops in the middle" "$weft add turns ${disks[4]}
		$weft grow turns --raid-devices 5; $writes; sleep 2; $weft status turns | grep 'reshape ='; $reads" "${slow[@]}"
	loops=("${disks[@]}")
	in_the_middle
	grown "the kernel finishes it"
	with_weft "$name: weft reads and writes it" "$reads; $writes; $reads"
done

fresh "with a bitmap" 5 internal
half_grown
with_weft "$name: weft finishes it" "$writes; $weft set turns sync_speed_max=100000; $weft wait turns; $(enlarge 5); $reads" \
	"${slow[@]}"
grown "the kernel takes it"

fresh "weft dies" 5
stop_md
with_weft "$name: weft begins" "$weft add turns ${disks[4]}; $weft grow turns -n 5; sleep 1" \
	"${slow[@]}"
loops=("${disks[@]}")
kill_weft_mid_write "$name" "${slow[@]}"
in_the_middle
assemble "$name"
wait_idle
larger
check "$name: content below" cmp -n $((8 << 20)) /dev/md0 /tmp/expected
check "$name: content above" cmp -i $((17 << 20)) /dev/md0 /tmp/expected
checked_anew
stop_md

# half_changed OPTION… : stops the array while a part of it has another chunk or layout
half_changed() {
	local t
	echo 1000 >/sys/block/md0/md/sync_speed_max
	echo 500 >/sys/block/md0/md/sync_speed_min
	mdadm --grow /dev/md0 "$@" >&2 || fail "$name: mdadm --grow $*"
	for ((t = 0; t < 300; t++)); do
		[ "$(awk '{print $1 + 0}' /sys/block/md0/md/sync_completed)" -ge 2000 ] && break
		sleep 0.1
	done
	stop_md
	equal "$name: a part is reshaped" "$(mdadm --examine "${loops[@]}" | grep -c "Reshape pos'n : [1-9]")" 4
}

# changed TEXT CHUNK LAYOUT : the kernel has the array with this chunk and layout, and the content
changed() {
	assemble "$name"
	wait_idle
	equal "$name: $1" "$(cat /sys/block/md0/md/{chunk_size,layout,degraded,array_state} | xargs)" "$2 $3 0 clean"
	check "$name: content" same_as /tmp/expected
	checked_anew
	stop_md
	equal "$name: nothing of the reshape is left" "$(mdadm --examine "${loops[@]}" | grep -c 'Reshape\|New ')" 0
}

fresh "another chunk, weft goes on" 5
half_changed --chunk 64
check "$name: weft reads it" sh -c "$weft cat ${loops[*]} | cmp - /tmp/expected"
check "$name: and tells of it" sh -c "$weft assemble ${loops[*]} 2>&1 | grep -q 'a reshape to chunk 64'"
with_weft "$name: weft finishes it" "$writes; $weft detail turns | grep 'New Chunksize : 64K'
	$weft set turns sync_speed_max=100000; $weft wait turns; $reads; $weft detail turns | grep 'Chunk Size : 64K'; $writes" \
	"${slow[@]}"
changed "the kernel takes it" 65536 2

fresh "a smaller chunk and another layout, the kernel goes on" 6 internal
stop_md
with_weft "$name: weft stops in the middle" "$weft grow turns --chunk 16K --layout right-asymmetric
	$writes; sleep 2; $weft status turns | grep 'reshape ='; $reads" "${slow[@]}"
changed "the kernel finishes it" 16384 1
with_weft "$name: weft reads and writes it" "$reads; $writes; $reads"

fresh "weft dies while it changes the layout" 5
stop_md
with_weft "$name: weft begins" "$weft grow turns --layout parity-first; sleep 1" "${slow[@]}"
kill_weft_mid_write "$name" "${slow[@]}"
assemble "$name"
wait_idle
equal "$name: the kernel finishes it" "$(cat /sys/block/md0/md/layout)" 4
check "$name: content below" cmp -n $((8 << 20)) /dev/md0 /tmp/expected
check "$name: content above" cmp -i $((17 << 20)) /dev/md0 /tmp/expected
checked_anew
stop_md

fresh "a member lost" 6
half_grown
loops=("${disks[@]:0:1}" "${disks[@]:2}")
with_weft "$name: weft finishes it without" "$reads; $writes; $weft set turns sync_speed_max=100000
	$weft wait turns || true; $(enlarge 6); $reads" --run "${slow[@]}"
grown "the kernel takes it" 1

# Two members cannot read the same 4 KiB: what is there would be lost, so weft stops before it.
fresh "a stripe that cannot be read" 5
stop_md
faulty="faulty1 faulty2"
for i in 1 2; do
	dmsetup create "faulty$i" --table "0 32768 linear ${disks[i]} 0" || fail "$name: dmsetup create"
	echo "${disks[i]}" >"/tmp/below.faulty$i"
	loops[i]=/dev/mapper/faulty$i
done
serves "weft stops before it, and goes on when it can be read" "$weft add turns ${disks[4]}
	become '0 24576 linear DEV 0;24576 8 error;24584 8184 linear DEV 24584'
	$weft grow turns --raid-devices 5
	if $weft wait turns 2>/tmp/said; then exit 1; fi
	grep 'turns: the reshape stopped at byte [1-9][0-9]* of [1-9]' /tmp/said
	$weft detail turns | grep 'Delta Devices : 1'
	become '0 32768 linear DEV 0'
	$weft grow turns --raid-devices 5
	$weft wait turns; $(enlarge 5); $reads"
without_dm
grown "the kernel takes it"
plan 97
