# A running array gets a bitmap from weft, and loses it, as by `mdadm --grow --bitmap=`: the kernel
# takes the array after each, and mdadm reads from it what mdadm and the kernel make of the same
# array.
. /lab/tap.sh
. /lab/turns.sh

# about MEMBER : what mdadm says of its bitmap, without counters and bits
about() {
	mdadm --examine-bitmap "$1" | sed -n 's/^ *\(Version\|State\|Chunksize\|Daemon\|Write Mode\|Sync Size\) : //p' | xargs
	mdadm --examine "$1" | sed -n 's/^ *Internal Bitmap : //p'
}

# each COMMAND… : what it says of each member, once if they agree
each() { for it in "${loops[@]}"; do "$@" "$it"; done | sort -u | xargs; }

dirty() { mdadm --examine-bitmap "$1" | sed -n 's/.*Bitmap : \([0-9]*\) bits (chunks), \([0-9]*\) dirty.*/\2 of \1/p'; }

# has_bitmap : how many lines of mdstat tell of one
has_bitmap() { grep -c 'bitmap: ' /proc/mdstat; }

# change LEVEL MEMBERS METADATA
change() {
	local level=$1 members=$2 metadata=$3 name="raid$1 $3" options=(--assume-clean) of_weft of_kernel
	make_disks "$members" 16M
	[ "$level" = 1 ] || options+=(--chunk 32)
	mdadm --create /dev/md0 --run --level "$level" --raid-devices "$members" --metadata "$metadata" --bitmap none \
		"${options[@]}" "${loops[@]}" >&2 || fail "$name: create"
	expect_zeros
	kernel_writes 1
	stop_md

	with_weft "$name: weft adds a bitmap under writes" "$pattern write \"\$uri\" /tmp/expected 3 30 &
		$weft set turns bitmap=internal; wait; $weft get turns bitmap | grep -qx bitmap=internal
		$pattern write \"\$uri\" /tmp/expected 4 10"
	of_weft=$(each about)
	equal "$name: no bit is left set on any member" "$(each dirty | cut -d' ' -f1)" 0
	in_sync "$name, with weft's bitmap"
	equal "$name: the kernel uses it" "$(has_bitmap)" 1
	put 300 5

	# What mdadm and the kernel make of the same array.
	mdadm --grow /dev/md0 --bitmap none >&2 || fail "$name: mdadm --grow --bitmap=none"
	stop_md
	assemble "$name"
	mdadm --grow /dev/md0 --bitmap internal >&2 || fail "$name: mdadm --grow --bitmap=internal"
	stop_md
	of_kernel=$(each about)
	equal "$name: place, chunk, period, size and state as mdadm's" "$of_weft" "$of_kernel"

	with_weft "$name: weft removes mdadm's bitmap under writes" "$pattern write \"\$uri\" /tmp/expected 5 30 &
		$weft set turns bitmap=none; wait; $pattern write \"\$uri\" /tmp/expected 6 10"
	equal "$name: no member names one" "$(mdadm --examine "${loops[@]}" | grep -c 'Internal Bitmap')" 0
	assemble "$name, without a bitmap"
	equal "$name: nothing to resync without it" "$(cat /sys/block/md0/md/{sync_action,degraded} | xargs)" "idle 0"
	check "$name: content without it" same_as /tmp/expected
	equal "$name: the kernel has none" "$(has_bitmap)" 0
	stop_md
}

change 5 4 1.2
change 1 2 1.0
change 10 4 1.1
change 6 4 0.90
plan 52
