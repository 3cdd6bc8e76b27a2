# The kernel makes arrays and writes to them; the members go back to the host, where weft must read
# them. Clean, degraded after a failure in mid-life, and left dirty.
. /lab/tap.sh

# make NAME LEVEL MEMBERS CHUNK LAYOUT METADATA STATE
make() {
	local name=$1 level=$2 members=$3 chunk=$4 layout=$5 metadata=$6 state=$7 i
	local out=/lab/kernel/$name
	mkdir -p /tmp/w "$out"
	for ((i = 0; i < members; i++)); do truncate -s 5M "/tmp/w/m$i"; done
	attach /tmp/w/m*
	local layout_option=(--layout "$layout")
	[ "$level" = 4 ] && layout_option=()
	mdadm --create /dev/md0 --run --level "$level" --raid-devices "$members" --chunk "$chunk" "${layout_option[@]}" \
		--metadata "$metadata" --bitmap none --assume-clean --name "$name" "${loops[@]}" >&2 || fail "$name: create"
	local size
	size=$(blockdev --getsize64 /dev/md0)
	head -c "$size" /tmp/lab/pattern-a >"/tmp/expected"
	dd if=/tmp/expected of=/dev/md0 bs=1M oflag=direct 2>/dev/null || fail "$name: write"
	# Then small and odd pieces of another pattern, as reconstruct and read-modify-writes.
	for at in 1 7 16 17 40 333 900 1500; do
		dd if=/tmp/lab/pattern-b of=/dev/md0 bs=4k seek=$at skip=$at count=3 oflag=direct 2>/dev/null
		dd if=/tmp/lab/pattern-b of=/tmp/expected bs=4k seek=$at skip=$at count=3 conv=notrunc 2>/dev/null
	done
	case $state in
	degraded)
		mdadm /dev/md0 --fail "${loops[1]}" >&2 || fail "$name: fail"
		dd if=/tmp/lab/pattern-b of=/dev/md0 bs=64k seek=5 skip=5 count=20 oflag=direct 2>/dev/null
		dd if=/tmp/lab/pattern-b of=/tmp/expected bs=64k seek=5 skip=5 count=20 conv=notrunc 2>/dev/null
		echo 1 >"$out/stale"
		;;
	dirty)
		echo 600 >/sys/block/md0/md/safe_mode_delay
		dd if=/tmp/lab/pattern-b of=/dev/md0 bs=64k seek=3 skip=3 count=2 oflag=direct 2>/dev/null
		dd if=/tmp/lab/pattern-b of=/tmp/expected bs=64k seek=3 skip=3 count=2 conv=notrunc 2>/dev/null
		sync
		cp --sparse=always /tmp/w/m* "$out/"
		;;
	esac
	echo "$level $members $state $metadata" >"$out/facts"
	stop_md
	detach
	[ "$state" = dirty ] || cp --sparse=always /tmp/w/m* "$out/"
	cp /tmp/expected "$out/"
	rm -rf /tmp/w
	ok "$name: made and written"
}

make k5ls 5 4 64K left-symmetric 1.2 clean
make k5la 5 3 16K left-asymmetric 1.0 clean
make k5rs 5 5 4K right-symmetric 1.1 clean
make k5ra 5 3 64K right-asymmetric 1.2 clean
make k4 4 4 64K - 1.2 clean
make k6ls 6 5 64K left-symmetric 1.2 clean
make k6rs 6 4 32K right-symmetric 1.2 clean
make k5degraded 5 4 64K left-symmetric 1.2 degraded
make k6degraded 6 5 64K left-symmetric 1.2 degraded
make k5dirty 5 4 64K left-symmetric 1.2 dirty
make k6dirty 6 5 64K left-asymmetric 1.2 dirty
plan 11
