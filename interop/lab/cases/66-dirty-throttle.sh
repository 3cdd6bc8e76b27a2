# Dirty pages side by side: the kernel's under its own throttling, and weft's under mainline-6.12.
# Both have a limit of 8 MiB in front of the same device (null_blk, 3 MB/s), and two writers that
# never stop. The kernel holds what is dirty within 10 percent of the set point, 1,792 pages. The
# device is slow, because writers that it outruns are never throttled: on a busy host the emulated
# ones write 3 to 5 MB/s through NBD. Times are an emulator's.
# timed: writers are paused by the guest's clock
. /lab/tap.sh
. /lab/turns.sh
tracing=/sys/kernel/tracing
mount -t configfs none /sys/kernel/config 2>/dev/null
mount -t tracefs none $tracing 2>/dev/null
dirtied="python3 -S /tmp/lab/lib/dirtied.py"
limit=2048 setpoint=1792

# slow NUMBER : a device in memory that moves 3 MB/s
slow() {
	null_blk "$1" size=96 queue_mode=2 irqmode=1 blocksize=512 poll_queues=0 submit_queues=1 hw_queue_depth=64 \
		memory_backed=1 mbps=3
	# A request that is longer than 20 ms of the device is never served.
	echo 48 >"/sys/block/nullb$1/queue/max_sectors_kb"
	echo 0 >"/sys/block/nullb$1/queue/wbt_lat_usec" 2>/dev/null
}

# held TEXT FILE : what dirtied.py printed; sets `mean`, `most` and what else it printed
held() {
	read -r mean least most samples written slowest fastest longest <"$2" || fail "$1: $(cat "$2")"
	echo "# $1: $mean pages in the mean, $least to $most, $samples samples; $written written, writers $slowest to" \
		"$fastest, at most $longest ms for a write"
}

# near MEAN PERCENT : so close to the set point
near() { [ $(($1 * 100)) -ge $((setpoint * (100 - $2))) ] && [ $(($1 * 100)) -le $((setpoint * (100 + $2))) ]; }

# by_kernel PAGES SECONDS : the writers, under a limit of so many pages
by_kernel() {
	echo $(($1 * 4096)) >/proc/sys/vm/dirty_bytes
	$dirtied /tmp/mounted 2 "$2" $(($2 / 3)) /tmp/kernel.csv >/tmp/kernel || fail "two writers of the kernel"
	held "the kernel, $1 pages" /tmp/kernel
}

umount /tmp/mounted 2>/dev/null # of an attempt before
slow 5
mkfs.ext4 -q -F -N 64 -J size=4 -E lazy_itable_init=0,lazy_journal_init=0 /dev/nullb5 >&2 || fail "mkfs.ext4"
mkdir -p /tmp/mounted
mount -t ext4 /dev/nullb5 /tmp/mounted || fail "mount"
# Other cases turn tracing off, and leave events of theirs on.
echo 0 >$tracing/events/enable
echo >$tracing/trace
echo 1 >$tracing/events/writeback/balance_dirty_pages/enable
echo 1 >$tracing/tracing_on
by_kernel $limit 36
echo 0 >$tracing/events/writeback/balance_dirty_pages/enable
cp /tmp/kernel.csv /lab/dirty-kernel.csv
sed -n 's/.* pause=\([0-9]*\) .*/\1/p' $tracing/trace | awk '$1 > 0' | sort -n >/tmp/pauses
echo "# the kernel: $(wc -l </tmp/pauses) pauses, the longest of $(tail -1 /tmp/pauses) ms"
check "the kernel holds the set point" near "$mean" 10
at_least "the kernel: pauses of its writers" "$(wc -l </tmp/pauses)" 100
at_least "the kernel: pages written" "$written" 1000
by_kernel $((limit / 2)) 18
check "control: half of the limit is found to be elsewhere" eval '! near "$mean" 15'
umount /tmp/mounted
echo 20 >/proc/sys/vm/dirty_ratio

"$weft" serve --bare /dev/nullb5 --name dirty --write-back $((limit * 4))K --set dirty_throttle=mainline-6.12 \
	--exec "$dirtied \"\$uri\" 2 36 12 /tmp/weft.csv >/tmp/weft" >&2 || fail "two writers of weft"
cp /tmp/weft.csv /lab/dirty-weft.csv
held "weft" /tmp/weft
check "weft stays near the set point" near "$mean" 15
check "weft never passes the limit" [ "$most" -le "$limit" ]
at_least "weft: pages written" "$written" 1000
plan 7
