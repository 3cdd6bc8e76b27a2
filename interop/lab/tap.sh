# For the cases, in the guest: TAP lines, loop devices, arrays.
# shellcheck shell=bash
set -u
export MDADM_NO_UDEV=1
count=0
ok() { count=$((count + 1)); echo "ok $count - $*"; }
fail() { count=$((count + 1)); echo "not ok $count - $*"; cat /proc/mdstat >&2; dmesg | tail -5 >&2; exit 1; }
check() { local text=$1; shift; "$@" >&2 || fail "$text ($*)"; ok "$text"; }
equal() { [ "$2" = "$3" ] || fail "$1: found '$2', expected '$3'"; ok "$1"; }
at_least() { [ "$3" -ge 1 ] && [ "$2" -ge "$3" ] || fail "$1: found '$2', expected at least $3"; ok "$1 ($2 ≥ $3)"; }
plan() { echo "1..$count"; [ "$count" -ge "$1" ] || { echo "not ok - only $count checks, expected $1"; exit 1; }; exit 0; }

# attach FILE… : sets `loops`
attach() {
	loops=()
	for file in "$@"; do
		loops+=("$(losetup --show -f "$file")") || fail "losetup $file"
	done
}
detach() { losetup -d "${loops[@]}"; }

stop_md() {
	local t
	for ((t = 0; t < 50; t++)); do
		mdadm --stop /dev/md0 >/dev/null 2>&1
		[ -e /sys/block/md0/md/array_state ] || return 0
		[ "$(cat /sys/block/md0/md/array_state)" = clear ] && return 0
		sleep 0.1
	done
	fail "md0 does not stop"
}

# sync_action ACTION : runs it to its end; sets `stripes_read` (least sectors read of a member) and
# `mismatches`
sync_action() {
	local before=() loop sectors index=0
	for loop in "${loops[@]}"; do before+=("$(awk '{print $3}' "/sys/block/${loop#/dev/}/stat")"); done
	echo "$1" >/sys/block/md0/md/sync_action || fail "$1 was refused"
	wait_idle
	mismatches=$(cat /sys/block/md0/md/mismatch_cnt)
	stripes_read=
	for loop in "${loops[@]}"; do
		sectors=$(($(awk '{print $3}' "/sys/block/${loop#/dev/}/stat") - before[index]))
		index=$((index + 1))
		[ -n "$stripes_read" ] && [ "$stripes_read" -le "$sectors" ] || stripes_read=$sectors
	done
}

wait_idle() {
	local t
	for ((t = 0; t < 1200; t++)); do
		[ "$(cat /sys/block/md0/md/sync_action)" = idle ] && return 0
		sleep 0.1
	done
	fail "sync does not end"
}

component_sectors() { echo $((2 * $(cat /sys/block/md0/md/component_size))); }

# flip FILE BYTE : inverts one bit of one byte
flip() {
	local old
	old=$(od -An -tu1 -j "$2" -N1 "$1")
	printf "\\x$(printf %02x $((old ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# compare FILE : /dev/md0 begins with, and is exactly as long as, FILE
same_as() {
	[ "$(blockdev --getsize64 /dev/md0)" = "$(stat -c %s "$1")" ] || fail "size of md0 $(blockdev --getsize64 /dev/md0)"
	cmp /dev/md0 "$1"
}
