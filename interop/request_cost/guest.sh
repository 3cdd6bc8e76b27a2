#!/usr/bin/env bash
# In the guest, as root: instructions for a request, to /lab/costs, as rows `path level load depth
# instructions` with tabs between them. With /lab/floors, which names a load and a depth: that load
# alone, on RAID 5, and samples of it, to /lab/PATH-LOAD-DEPTH-DISTANCE.data.
. /lab/tap.sh
export PATH=/usr/bin:$PATH XDG_RUNTIME_DIR=/run
cd /tmp || exit 1
cp /lab/weft.bin weft
mount -t configfs none /sys/kernel/config 2>/dev/null

# drive NAME : a RAM disk that completes a request at once
drive() {
	local folder=/sys/kernel/config/nullb/$1
	mkdir "$folder" && echo 128 >"$folder/size" && echo 1 >"$folder/memory_backed" && echo 4096 >"$folder/blocksize" &&
		echo 0 >"$folder/irqmode" && echo 1 >"$folder/power" && echo none >"/sys/block/$1/queue/scheduler" ||
		fail "null_blk $1"
}
for name in nullb0 nullb1 nullb2 nullb3 nullb4; do drive $name; done

# load TARGET LOAD DEPTH COUNT [OPTION…] : fio
load() {
	local target=$1 how=$2 depth=$3 count=$4 engine=(--ioengine=libaio --direct=1 --filename="$1")
	shift 4
	case $target in nbd*) engine=(--ioengine=nbd --uri="$target") ;; esac
	fio --name=load "${engine[@]}" --size=96m --rw="$how" --bs=4k --iodepth="$depth" --io_size=$((count * 4))k \
		--randseed=7 --norandommap --gtod_reduce=1 "$@" >fio.out 2>&1 || { cat fio.out >&2; fail "fio on $target"; }
}
# busy : nanoseconds in which the machine was not idle
busy() {
	awk '/^now at/ { now = $3 } $1 == ".idle_sleeptime" { idle = $3 } END { printf "%.0f\n", now - idle }' /proc/timer_list
}
# is_loaded : a process of fio has run for longer than its start takes
is_loaded() { cat $(pgrep -x fio | sed 's|.*|/proc/&/schedstat|') | awk '$1 > 4e8 { found = 1 } END { exit !found }'; }
# A cost from 5,000 requests varies by 10 % within a boot, one from 10,000 by 4 %.
few=1000 more=11000
# cost PATH LEVEL TARGET LOAD DEPTH : a row, from the difference between a long run and a short one
cost() {
	local a b c
	load "$3" "$4" "$5" $few # what is done once is done before
	a=$(busy)
	load "$3" "$4" "$5" $few
	b=$(busy)
	load "$3" "$4" "$5" $more
	c=$(busy)
	printf '%s\t%s\t%s\t%s\t%d\n' "$1" "$2" "$4" "$5" $(((c - 2 * b + a) / (more - few))) | tee -a /lab/costs
}
# costs PATH LEVEL TARGET : of random writes and reads, one and 32 at a time
costs() {
	local how depth
	if [ -e /lab/floors ]; then
		read -r how depth </lab/floors
		[ "$2" = 5 ] || return 0
		cost "$1" "$2" "$3" "$how" "$depth"
		load "$3" "$how" "$depth" 1000000 --time_based --runtime=600 >/dev/null 2>&1 &
		until_ready is_loaded
		# Requests may repeat exactly: samples at one distance would see the same parts of them.
		for distance in 31013 50021 73009; do
			chrt -f 10 perf record -q -g -e cpu-clock -c $distance -a -o samples -- sleep 0.4
			cp samples "/lab/$1-$how-$depth-$distance.data"
		done
		pkill -INT -x fio
		wait $!
		return
	fi
	for how in randwrite randread; do
		for depth in 1 32; do cost "$1" "$2" "$3" $how $depth; done
	done
}
# until_ready COMMAND… : waits
until_ready() {
	local t
	for ((t = 0; t < 300; t++)); do
		"$@" >/dev/null 2>&1 && return 0
		sleep 0.1
	done
	fail "never: $*"
}

if [ -e /lab/floors ]; then # every sample counts, and has a name
	echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
	cp /proc/kallsyms /lab/kallsyms
fi
costs drive - /dev/nullb4
for level in 5 1; do
	members=(/dev/nullb0 /dev/nullb1) chunk=()
	[ "$level" = 1 ] || { members+=(/dev/nullb2 /dev/nullb3); chunk=(-c 64); }
	mdadm --create /dev/md0 -R -l "$level" -n ${#members[@]} --assume-clean "${chunk[@]}" --bitmap=none "${members[@]}" >&2 ||
		fail "mdadm --create"
	costs md "$level" /dev/md0
	until_ready mdadm --stop /dev/md0
	./weft serve --name vol --listen ublk: --listen 'nbd+unix:///vol?socket=/run/vol.sock' "${members[@]}" >ready 2>log &
	until_ready grep -q '^ready .*ublk' ready
	costs ublk "$level" /dev/ublkb0
	costs nbd "$level" 'nbd+unix:///vol?socket=/run/vol.sock'
	if [ "$level" = 5 ] && [ ! -e /lab/floors ]; then
		check "stripe_size=64K" ./weft set vol stripe_size=64K
		cost ublk-64K 5 /dev/ublkb0 randwrite 32
	fi
	check "weft stop" ./weft stop vol
	wait
	mdadm --zero-superblock "${members[@]}"
done
