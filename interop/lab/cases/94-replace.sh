# Members that are replaced while they work, by the kernel's md and by weft: each goes on where the
# other stopped; without the member that was to be replaced weft fills the rest of its replacement,
# and the kernel takes it.
. /lab/tap.sh
. /lab/turns.sh

# fresh NAME LEVEL : an array of the kernel's of four members and a spare
fresh() {
	local chunk=(--chunk 32)
	name=$1
	make_disks 5 8M
	[ "$2" != 1 ] || chunk=()
	mdadm --create /dev/md0 --run --level "$2" --raid-devices 4 --spare-devices 1 "${chunk[@]}" --metadata 1.2 \
		--bitmap none --assume-clean "${loops[@]}" >&2 || fail "$name: mdadm --create"
	expect_zeros
	kernel_writes 1
	put 700 800
}

# half_replaced : stops the array while a part of the spare is filled to replace the second member
half_replaced() {
	local t
	echo 1000 >/sys/block/md0/md/sync_speed_max
	echo 500 >/sys/block/md0/md/sync_speed_min
	mdadm /dev/md0 --replace "${disks[1]}" --with "${disks[4]}" >&2 || fail "$name: mdadm --replace"
	for ((t = 0; t < 300; t++)); do
		[ "$(awk '{print $1 + 0}' /sys/block/md0/md/sync_completed)" -ge 2000 ] && break
		sleep 0.1
	done
	stop_md
	mdadm --examine "${disks[4]}" >/tmp/said
	equal "$name: a part is filled" "$(grep -c 'Replacement device 1' /tmp/said) $(grep -c 'Feature Map : 0x1[2a]$' /tmp/said)" "1 1"
}

# taken TEXT DISK… : the kernel assembles the array from `loops`, and has all of these disks, the
# content, no mismatch
taken() {
	local text=$1
	shift
	assemble "$name"
	wait_idle
	loops=("$@")
	equal "$name: $text" "$(cat /sys/block/md0/md/{degraded,array_state} | xargs)" "0 clean"
	check "$name: content" same_as /tmp/expected
	checked "$name"
	stop_md
}

reads="$pattern verify \"\$uri\" /tmp/expected"
writes="$pattern write \"\$uri\" /tmp/expected 5 24"

for level in 1 5 6 10; do
	fresh "RAID $level, weft goes on" $level
	half_replaced
	check "$name: weft reads it" sh -c "$weft cat ${loops[*]} | cmp - /tmp/expected"
	check "$name: and tells of it" sh -c \
		"$weft assemble ${loops[*]} | tee /dev/stderr | grep -q '${disks[4]}.* replacement .*filled up to .* of '"
	with_weft "$name: weft fills the rest" "$writes; $weft wait turns; $reads
		$weft detail turns | grep 'active sync .*${disks[4]}\$'; $weft detail turns | grep 'faulty .*${disks[1]}\$'"
	loops=("${disks[0]}" "${disks[@]:2}")
	taken "the kernel takes it" "${loops[@]}"

	fresh "RAID $level, the kernel goes on" $level
	stop_md
	with_weft "$name: weft stops in the middle" "$weft set turns sync_speed_max=1000; $weft replace turns ${disks[1]}
		sleep 2; $writes; $weft status turns | grep '(R)'; $weft detail turns | grep 'replacement .*${disks[4]}\$'"
	mdadm --examine "${disks[4]}" >/tmp/said
	equal "$name: a part is filled" \
		"$(grep -c 'Replacement device 1' /tmp/said) $(grep -c 'Feature Map : 0x1[2a]$' /tmp/said) $(grep -c 'Recovery Offset : [1-9]' /tmp/said)" "1 1 1"
	assemble "$name"
	wait_idle
	equal "$name: the kernel fills the rest" "$(cat "/sys/block/md0/md/dev-${disks[4]#/dev/}/slot" /sys/block/md0/md/degraded | xargs)" "1 0"
	check "$name: content, by the kernel" same_as /tmp/expected
	stop_md
	loops=("${disks[0]}" "${disks[@]:2}")
	taken "it has the slot" "${loops[@]}"
done

fresh "weft replaces" 5
stop_md
with_weft "$name: a member, with a spare" "$weft replace turns ${disks[2]} --with ${disks[4]}; $writes; $weft wait turns; $reads
	$weft remove turns ${disks[2]}"
equal "$name: no bit is left" "$(mdadm --examine "${disks[4]}" | grep -E 'Feature Map|Device Role' | xargs)" \
	"Feature Map : 0x0 Device Role : Active device 2"
loops=("${disks[@]:0:2}" "${disks[@]:3}")
taken "the kernel takes it" "${loops[@]}"

fresh "weft dies" 5
stop_md
with_weft "$name: weft begins" "$weft set turns sync_speed_max=1000; $weft replace turns ${disks[1]}; sleep 2"
kill_weft_mid_write "$name" --set sync_speed_max=1000
assemble "$name"
wait_idle
equal "$name: the kernel fills the rest" "$(cat "/sys/block/md0/md/dev-${disks[4]#/dev/}/slot" /sys/block/md0/md/degraded | xargs)" "1 0"
check "$name: content below" cmp -n $((8 << 20)) /dev/md0 /tmp/expected
check "$name: content above" cmp -i $((17 << 20)) /dev/md0 /tmp/expected
loops=("${disks[0]}" "${disks[@]:2}")
checked "$name"
stop_md

for level in 5 6; do
	fresh "RAID $level, the old member gone" $level
	half_replaced
	loops=("${disks[0]}" "${disks[@]:2}")
	"$weft" serve "${loops[@]}" --exec true 2>/tmp/refused && fail "$name: without consent"
	check "$name: weft wants consent" grep -q 'newly degraded: the array knows a member at slot 1' /tmp/refused
	with_weft "$name: weft fills the rest" "$reads; $writes; $weft wait turns; $reads" --run
	check "$name: no bit is left" sh -c "mdadm --examine ${disks[4]} | grep 'Active device 1'"
	taken "the kernel takes it" "${loops[@]}"
done

fresh "replaced" 5
mdadm /dev/md0 --replace "${disks[1]}" --with "${disks[4]}" >&2
sleep 1
wait_idle
stop_md
equal "$name: no bit is left" "$(mdadm --examine "${disks[4]}" | grep -E 'Feature Map|Device Role' | xargs)" \
	"Feature Map : 0x0 Device Role : Active device 1"
check "$name: weft reads it" sh -c "$weft cat ${loops[*]} | cmp - /tmp/expected"
loops=("${disks[0]}" "${disks[@]:2}")
with_weft "$name: weft writes to it" "$writes; $reads"
taken "the kernel takes it" "${loops[@]}"
plan 87
