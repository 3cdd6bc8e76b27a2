# Arrays with an internal bitmap, which weft leaves as it is: the kernel must see that it is behind, take
# every bit for set, and never believe an old one. After a clean stop, after a kill, and for a member
# that was away while weft wrote.
. /lab/tap.sh
. /lab/turns.sh

# bits : dirty chunks by the bitmap of the first member, once the kernel has written it
bits() { mdadm --examine-bitmap "${loops[0]}" | sed -n 's/.*Bitmap : \([0-9]*\) bits (chunks), \([0-9]*\) dirty.*/\2 of \1/p'; }

# settled TEXT : the kernel clears the bits, as it does while nothing is written
settled() {
	local t
	for ((t = 0; t < 200; t++)); do
		case $(bits) in '0 of '*) break ;; esac
		sleep 0.1
	done
	equal "$1: the bitmap is current, with no bit set" "$(bits)" "0 of $chunks"
}

# behind TEXT : starts the array; the kernel must say that the bitmap is out of date
behind() {
	dmesg -C
	assemble "$1"
	dmesg >/tmp/dmesg
	check "$1: the kernel sees that the bitmap is behind" grep -q 'bitmap file is out of date' /tmp/dmesg
}

# with_bitmap LEVEL MEMBERS METADATA
with_bitmap() {
	local level=$1 members=$2 metadata=$3 name="raid$1 $3" away
	make_disks $((members + 1)) 16M
	loops=("${disks[@]:0:members}")
	local fresh=${disks[members]}
	mdadm --create /dev/md0 --run --level "$level" --raid-devices "$members" --chunk 32 --metadata "$metadata" \
		--bitmap internal --bitmap-chunk 64K --delay 1 --assume-clean "${loops[@]}" >&2 || fail "$name: create"
	chunks=$((($(component_sectors) + 127) / 128))
	expect_zeros
	kernel_writes 1
	settled "$name, made by the kernel"
	stop_md

	# Clean: nothing is lost, nothing is resynced, and the bitmap is in use again.
	with_weft "$name: weft reads and writes" "$pattern turn \"\$uri\" /tmp/expected 7 40"
	behind "$name, after a clean stop"
	equal "$name: nothing to resync" "$(cat /sys/block/md0/md/{sync_action,degraded} | xargs)" "idle 0"
	check "$name: content" same_as /tmp/expected
	checked "$name"
	kernel_writes 2
	settled "$name, after weft"

	# Control: bits are believed when nobody else wrote; `--re-add` is taken, and recovers a part.
	away=${loops[1]}
	mdadm /dev/md0 --fail "$away" >&2 && mdadm /dev/md0 --remove "$away" >&2 || fail "$name: fail and remove"
	put 50 1
	check "$name: control: --re-add is taken while the bitmap is current" mdadm /dev/md0 --re-add "$away"
	sleep 1
	wait_idle
	equal "$name: control: the member is back" "$(cat /sys/block/md0/md/degraded)" 0

	# A member goes; the kernel notes what it misses as a few bits, and weft writes elsewhere.
	mdadm /dev/md0 --fail "$away" >&2 && mdadm /dev/md0 --remove "$away" >&2 || fail "$name: fail and remove"
	put 5 2
	stop_md
	equal "$name: the kernel noted a few chunks for the member that is away" "$(($(bits | cut -d' ' -f1) < 8))" 1
	local here=("${loops[@]}")
	unset 'here[1]'
	loops=("${here[@]}")
	with_weft "$name: weft reads and writes without it" "$pattern turn \"\$uri\" /tmp/expected 8 40"
	behind "$name, a member away"
	check "$name: content without it" same_as /tmp/expected
	# The bits know nothing of what weft wrote.
	mdadm /dev/md0 --re-add "$away" >&2 && fail "$name: --re-add of the member that was away was taken"
	ok "$name: --re-add of the member that was away is refused"
	mdadm /dev/md0 --add "$away" >&2 || fail "$name: --add after the refused --re-add"
	sleep 1
	wait_idle
	loops=("${disks[@]:0:members}")
	equal "$name: the member is back" "$(cat /sys/block/md0/md/degraded)" 0
	check "$name: content" same_as /tmp/expected
	checked "$name, the member that was away"
	# What lies on that member itself: read without another.
	mdadm /dev/md0 --fail "${loops[0]}" >&2 || fail "$name: fail another"
	check "$name: content by the member that was away" same_as /tmp/expected
	stop_md

	# weft takes a new member into an array with a bitmap: the kernel must find a bitmap on it too.
	# (At slot 0 it is the one whose bitmap the kernel reads.)
	loops=("${disks[@]:1:members-1}")
	head -c 2M /dev/urandom | dd of="$fresh" bs=1M oflag=direct 2>/dev/null
	with_weft "$name: weft rebuilds a new member" "$weft add turns --force $fresh; $weft wait turns" --run
	loops=("$fresh" "${loops[@]}")
	check "$name: mdadm reads its bitmap" mdadm --examine-bitmap "$fresh"
	behind "$name, with a member that weft added"
	equal "$name: it is in" "$(cat /sys/block/md0/md/degraded)" 0
	check "$name: content" same_as /tmp/expected
	checked "$name, the member that weft added"
	settled "$name, after the new member"
	stop_md

	# Killed: everything is resynced, not only what the bits say.
	kill_weft_mid_write "$name, killed"
	resynced "$name, killed"
	check "$name: the kernel saw that the bitmap is behind" grep -q 'bitmap file is out of date' /tmp/dmesg
	stop_md
}

with_bitmap 5 4 1.2
with_bitmap 6 5 0.90
plan 62
