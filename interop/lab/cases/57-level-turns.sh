# Levels without parity, the kernel and weft take turns on the same block devices: each finds what
# the other wrote. Members of mirrors fail, come new and are rebuilt by either; the kernel's check
# stays at 0 and it has nothing to resync after a clean stop; after a kill it resyncs all, and finds
# what was acknowledged.
. /lab/tap.sh
. /lab/turns.sh
check "weft runs on $(uname -r)" "$weft" --version

# create NAME LEVEL LAYOUT METADATA : by the kernel, on `loops`
create() {
	local options=(--level "$2" --raid-devices "${#loops[@]}" --metadata "$4" --assume-clean)
	[ "$2" = 1 ] || options+=(--chunk 32)
	[ "$2" = 0 ] || options+=(--bitmap none)
	[ "$3" = - ] || options+=(--layout "$3")
	mdadm --create /dev/md0 --run "${options[@]}" "${loops[@]}" >&2 || fail "$1: mdadm --create"
	expect_zeros
}

# agree TEXT LEVEL : what the kernel finds after a clean stop of weft
agree() {
	if [ "$2" = 0 ]; then
		assemble "$1"
		check "$1: content" same_as /tmp/expected
	else
		in_sync "$1"
	fi
}

# cycle LEVEL LAYOUT METADATA MEMBERS
cycle() {
	local level=$1 layout=$2 metadata=$3 members=$4 name="raid$1 $2 $3, $4 members"
	make_disks $((members + 1)) 8M
	local fresh=${disks[members]} out=${disks[1]}
	loops=("${disks[@]:0:members}")
	create "$name" "$level" "$layout" "$metadata"
	kernel_writes 1
	stop_md
	with_weft "$name: weft finds what the kernel wrote, and writes" "$pattern turn \"\$uri\" /tmp/expected 7 30"
	agree "$name, written by weft" "$level"
	kernel_writes 2
	stop_md
	[ "$level" != 0 ] || return

	# A member fails; weft reads and writes without it, and so does the kernel, which rebuilds another.
	with_weft "$name: a member fails, weft reads and writes without it" "
		$weft fail turns $out && $weft remove turns $out && $pattern turn \"\$uri\" /tmp/expected 8 20"
	unset 'loops[1]'
	loops=("${loops[@]}")
	assemble "$name, without a member"
	equal "$name: degraded, nothing else" "$(cat /sys/block/md0/md/{sync_action,degraded,array_state} | xargs)" "idle 1 clean"
	check "$name: content without the member" same_as /tmp/expected
	kernel_writes 3
	mdadm /dev/md0 --add "$fresh" >&2 || fail "$name: --add"
	sleep 1
	wait_idle
	stop_md
	loops=("${disks[0]}" "$fresh" "${disks[@]:2:members-2}")
	with_weft "$name: weft finds what the kernel wrote and rebuilt" "$pattern turn \"\$uri\" /tmp/expected 9 20"
	in_sync "$name, rebuilt by the kernel"
	stop_md
}

# killed LEVEL LAYOUT METADATA SIZE MEMBERS : dirty, so that the kernel resyncs all of it
killed() {
	local name="killed, raid$1 $2 $3, $5 members"
	make_disks "$5" "$4"
	create "$name" "$1" "$2" "$3"
	stop_md
	kill_weft_mid_write "$name"
	dmesg -C
	assemble "$name"
	wait_idle
	check "$name: the kernel resyncs" eval "dmesg | grep -q 'md: md0: resync done'"
	check "$name: content below" cmp -n $((8 << 20)) /dev/md0 /tmp/expected
	check "$name: content above" cmp -i $((17 << 20)) /dev/md0 /tmp/expected
	checked "$name"
	stop_md

	# Control: the check can fail.
	flip /tmp/w/m1 $(($(stat -c %s /tmp/w/m1) / 2))
	assemble "$name, a flipped bit"
	echo check >/sys/block/md0/md/sync_action || fail "$name: check was refused"
	wait_idle
	at_least "$name: control: a flipped bit is counted" "$(cat /sys/block/md0/md/mismatch_cnt)" 1
	stop_md
}

cycle 0 - 1.2 3
cycle 1 - 0.90 2
cycle 10 n2 1.1 4
cycle 10 f2 1.2 3
cycle 10 o2 1.0 4
killed 1 - 1.2 20M 2
killed 10 n2 1.2 16M 3
plan 67
