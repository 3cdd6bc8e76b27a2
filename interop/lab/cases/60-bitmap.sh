# Arrays with an internal bitmap, which weft keeps: the kernel finds it current after a clean stop
# and after a kill, resyncs no more than set bits, and takes members back that were away while weft
# wrote; and the other way round. What is copied is counted on both sides.
. /lab/tap.sh
. /lab/turns.sh

# bits MEMBER : dirty chunks by the bitmap of a member
bits() { mdadm --examine-bitmap "$1" | sed -n 's/.*Bitmap : [0-9]* bits (chunks), \([0-9]*\) dirty.*/\1/p'; }

# settled TEXT : the kernel clears the bits, as it does while nothing is written
settled() {
	local t
	for ((t = 0; t < 200; t++)); do
		[ "$(bits "${loops[0]}")" != 0 ] || break
		sleep 0.1
	done
	equal "$1: no bit is set" "$(bits "${loops[0]}")" 0
}

# current TEXT : starts the array; the kernel must believe the bitmap
current() {
	dmesg -C
	assemble "$1"
	dmesg >/tmp/dmesg
	equal "$1: the kernel believes the bitmap" "$(grep -c 'bitmap file is out of date' /tmp/dmesg)" 0
}

# written MEMBER : sectors written to it since the boot
written() { awk '{ print $7 }' "/sys/block/${1#/dev/}/stat"; }

# between TEXT FOUND LEAST MOST
between() {
	if [ "$2" -ge "$3" ] && [ "$2" -le "$4" ]; then ok "$1: $2"; else fail "$1: found $2, expected $3 to $4"; fi
}

# away TEXT : member 1 leaves the kernel's array
away() {
	away=${loops[1]}
	mdadm /dev/md0 --fail "$away" >&2 && mdadm /dev/md0 --remove "$away" >&2 || fail "$1: fail and remove"
}

# checked_cold TEXT : the same after a stop, for the stripe cache keeps what was just resynced
checked_cold() {
	stop_md
	assemble "$1"
	wait_idle
	checked "$1"
}

# with_bitmap LEVEL MEMBERS METADATA
with_bitmap() {
	local level=$1 members=$2 metadata=$3 name="raid$1 $3" away before copied
	make_disks $((members + 1)) 16M
	loops=("${disks[@]:0:members}")
	local fresh=${disks[members]}
	mdadm --create /dev/md0 --run --level "$level" --raid-devices "$members" --chunk 32 --metadata "$metadata" \
		--bitmap internal --bitmap-chunk 64K --delay 1 --assume-clean "${loops[@]}" >&2 || fail "$name: create"
	local all
	all=$(component_sectors)
	expect_zeros
	kernel_writes 1
	settled "$name, made by the kernel"
	stop_md

	# Clean: nothing is lost, nothing is resynced.
	with_weft "$name: weft reads and writes" "$pattern turn \"\$uri\" /tmp/expected 7 40"
	equal "$name: weft leaves no bit set" "$(for it in "${loops[@]}"; do bits "$it"; done | sort -u)" 0
	current "$name, after a clean stop"
	equal "$name: nothing to resync" "$(cat /sys/block/md0/md/{sync_action,degraded} | xargs)" "idle 0"
	check "$name: content" same_as /tmp/expected
	checked "$name"

	# A member goes; the kernel writes, weft writes elsewhere, the kernel takes the member back.
	away "$name"
	put 5 2
	stop_md
	local here=("${loops[@]}")
	unset 'here[1]'
	loops=("${here[@]}")
	with_weft "$name: weft writes without it" "$pattern write \"\$uri\" /tmp/expected 8 6"
	between "$name: bits that the kernel and weft set" "$(bits "${loops[0]}")" 3 200
	current "$name, a member away"
	before=$(written "$away")
	check "$name: the kernel takes --re-add" mdadm /dev/md0 --re-add "$away"
	sleep 1
	wait_idle
	copied=$(($(written "$away") - before))
	between "$name: sectors that the kernel copies" "$copied" 256 $((all - 1))
	loops=("${disks[@]:0:members}")
	equal "$name: the member is back" "$(cat /sys/block/md0/md/degraded)" 0
	checked_cold "$name, the member that was away"
	# What lies on that member itself: read without another.
	mdadm /dev/md0 --fail "${loops[0]}" >&2 || fail "$name: fail another"
	check "$name: content by the member that was away" same_as /tmp/expected
	mdadm /dev/md0 --remove "${loops[0]}" >&2 && mdadm /dev/md0 --re-add "${loops[0]}" >&2 || fail "$name: re-add"
	sleep 1
	wait_idle
	settled "$name, whole again"

	# A member goes; the kernel writes, and weft takes the member back.
	away "$name"
	put 700 8
	stop_md
	loops=("${here[@]}")
	before=$(written "$away")
	with_weft "$name: weft takes the member back" "$weft re-add turns $away; $weft wait turns
		$pattern write \"\$uri\" /tmp/expected 11 3"
	copied=$(($(written "$away") - before))
	between "$name: sectors that weft writes to it" "$copied" 8 $((all - 1))
	loops=("${disks[@]:0:members}")
	current "$name, a member that weft took back"
	equal "$name: it is in" "$(cat /sys/block/md0/md/degraded)" 0
	check "$name: content" same_as /tmp/expected
	checked "$name, a member that weft took back"
	away "$name"
	stop_md

	# A new member: the kernel must find a bitmap on it too. The old one is too old by then.
	loops=("${here[@]}")
	with_weft "$name: weft rebuilds a new member" "$weft add turns $fresh; $weft wait turns
		$pattern write \"\$uri\" /tmp/expected 12 3"
	loops=("${loops[0]}" "$fresh" "${loops[@]:1}")
	check "$name: mdadm reads its bitmap" mdadm --examine-bitmap "$fresh"
	current "$name, with a member that weft added"
	check "$name: content" same_as /tmp/expected
	checked "$name, the member that weft added"
	mdadm /dev/md0 --fail "$fresh" >&2 && mdadm /dev/md0 --remove "$fresh" >&2 || fail "$name: fail and remove"
	mdadm /dev/md0 --re-add "$away" >&2 && fail "$name: --re-add of the member of before was taken"
	ok "$name: --re-add of the member of before is refused"
	mdadm /dev/md0 --re-add "$fresh" >&2 || fail "$name: --re-add of the new member"
	sleep 1
	wait_idle
	settled "$name, after the new member"
	stop_md

	# Killed: set bits are resynced, and nothing else.
	kill_weft_mid_write "$name, killed"
	between "$name, killed: bits" "$(bits "${loops[0]}")" 8 200
	current "$name, killed"
	wait_idle
	check "$name: content below" cmp -n $((8 << 20)) /dev/md0 /tmp/expected
	check "$name: content above" cmp -i $((17 << 20)) /dev/md0 /tmp/expected
	checked_cold "$name, killed"
	stop_md
}

with_bitmap 5 4 1.2
with_bitmap 6 5 0.90
with_bitmap 10 4 1.1
plan 105
