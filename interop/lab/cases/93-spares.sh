# Spares, in turns: the kernel's md and weft fill an empty slot with one of two; when that one fails
# meanwhile they take the other; and each goes on where the other stopped.
. /lab/tap.sh
. /lab/turns.sh

# fresh NAME : a RAID 5 of three members and two spares, made by weft and written by the kernel
fresh() {
	name=$1
	make_disks 5 8M
	"$weft" create --level 5 --raid-devices 3 --spare-devices 2 --chunk 32K --assume-clean --name turns "${loops[@]}" >&2 ||
		fail "$name: weft create"
	assemble "$name"
	expect_zeros
	kernel_writes 1
}

# slots : slot of each disk in md0, as the kernel says
slots() {
	local disk
	for disk in "${disks[@]}"; do cat "/sys/block/md0/md/dev-${disk#/dev/}/slot" 2>/dev/null || echo gone; done | xargs
}

# slowly : md0 recovers 1 MB a second
slowly() {
	echo 1000 >/sys/block/md0/md/sync_speed_max
	echo 500 >/sys/block/md0/md/sync_speed_min
}

# recovers : until md0 has recovered a part
recovers() {
	local t
	for ((t = 0; t < 300; t++)); do
		[ "$(cat /sys/block/md0/md/sync_action)" = recover ] &&
			[ "$(awk '{print $1 + 0}' /sys/block/md0/md/sync_completed)" -ge 1000 ] && return 0
		sleep 0.1
	done
	fail "$name: the kernel does not recover"
}

# whole SLOTS : the kernel assembles the array from `loops`, has these slots, nothing to do, the
# content, no mismatch
whole() {
	local i state=($1)
	assemble "$name"
	wait_idle
	loops=()
	for i in "${!disks[@]}"; do case ${state[i]} in [0-9]) loops+=("${disks[i]}") ;; esac; done
	equal "$name: slots, state" "$(slots), $(cat /sys/block/md0/md/{degraded,array_state} | xargs)" "$1, 0 clean"
	check "$name: content" same_as /tmp/expected
	checked "$name"
	stop_md
}

cat >/tmp/spares.sh <<'W'
set -e
# is STATE DISK : waits until weft has this disk in that state
is() {
	t=0
	until $weft detail turns | grep -q " $1 .*$2\$"; do
		t=$((t + 1))
		[ $t -lt 60 ] || { $weft detail turns; return 1; }
		sleep 0.2
	done
}
W

# serves TEXT SCRIPT : the script runs while weft serves the array
serves() { with_weft "$name: $1" "weft=$weft; . /tmp/spares.sh; $2"; }
reads="$pattern verify \"\$uri\" /tmp/expected"

# weft takes the first spare; md takes the one that was added last, and promises no order.
fresh "the kernel's choice"
mdadm --fail /dev/md0 "${disks[1]}" >&2
wait_idle
equal "$name: a spare is filled" "$(slots)" "0 none 2 none 1"
stop_md

fresh "weft's choice"
stop_md
serves "a spare is filled" "$weft fail turns ${disks[1]}; $weft wait turns; $reads"
loops=("${disks[0]}" "${disks[@]:2}")
whole "0 gone 2 1 none"

fresh "the kernel's spare fails"
slowly
mdadm --fail /dev/md0 "${disks[1]}" >&2
recovers
mdadm --fail /dev/md0 "${disks[4]}" >&2
wait_idle
equal "$name: the other one is filled" "$(slots)" "0 none 2 1 none"
check "$name: content" same_as /tmp/expected
stop_md

fresh "weft's spare fails"
stop_md
serves "the other one is filled" "
	$weft set turns sync_speed_max=1000
	$weft fail turns ${disks[1]}
	is 'spare rebuilding' ${disks[3]}
	$weft fail turns ${disks[3]}
	is 'spare rebuilding' ${disks[4]}
	is faulty ${disks[3]}
	$weft set turns sync_speed_max=200000
	$weft wait turns
	$reads"
loops=("${disks[0]}" "${disks[2]}" "${disks[4]}")
whole "0 gone 2 gone 1"

fresh "weft goes on"
slowly
mdadm --fail /dev/md0 "${disks[1]}" >&2
recovers
stop_md
loops=("${disks[0]}" "${disks[@]:2}")
serves "where the kernel stopped" "$weft wait turns; is 'active sync' ${disks[4]}; $reads"
whole "0 gone 2 none 1"

fresh "the kernel goes on"
stop_md
serves "weft stops in the middle" "
	$weft set turns sync_speed_max=1000
	$weft fail turns ${disks[1]}
	is 'spare rebuilding' ${disks[3]}
	sleep 2"
loops=("${disks[0]}" "${disks[@]:2}")
check "$name: the spare has a part" sh -c "mdadm --examine ${disks[3]} | grep 'Recovery Offset'"
whole "0 gone 2 1 none"
plan 20
