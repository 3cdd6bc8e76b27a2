# Every level and metadata version: the kernel and weft, with its defaults, take turns on the same
# block devices. Whole, degraded, rebuilt by weft, and killed; each finds what the other wrote, the
# kernel never has to resync after a clean stop, and its check stays at 0.
. /lab/tap.sh
. /lab/turns.sh
check "weft runs on $(uname -r)" "$weft" --version

# cycle LEVEL MEMBERS METADATA CREATOR
cycle() {
	local level=$1 members=$2 metadata=$3 creator=$4 name="raid$1 $3" i
	make_disks $((members + 1)) 16M
	local fresh=${disks[members]} out=${disks[1]}
	loops=("${disks[@]:0:members}")
	if [ "$creator" = kernel ]; then
		mdadm --create /dev/md0 --run --level "$level" --raid-devices "$members" --chunk 32 --metadata "$metadata" \
			--bitmap none --assume-clean "${loops[@]}" >&2 || fail "$name: mdadm --create"
		expect_zeros
	else
		check "$name: weft create" "$weft" create --level "$level" --raid-devices "$members" --chunk 32K \
			--metadata "$metadata" --assume-clean --name turns "${loops[@]}"
		mdadm --assemble /dev/md0 "${loops[@]}" >&2 || fail "$name: mdadm --assemble"
		expect_zeros
	fi
	kernel_writes 1
	stop_md

	# weft reads all, overwrites parts, and stops.
	with_weft "$name: weft finds what the kernel wrote, and writes" "$pattern turn \"\$uri\" /tmp/expected 7 60"
	in_sync "$name, written by weft"
	kernel_writes 2
	stop_md

	# weft reads, loses a member, writes without it, and rebuilds a fresh one.
	with_weft "$name: a member fails, weft reads and writes without it, and rebuilds a new one" "
		$weft fail turns $out && $weft remove turns $out &&
		$pattern turn \"\$uri\" /tmp/expected 8 40 &&
		$weft add turns $fresh && $weft wait turns"
	loops[1]=$fresh
	in_sync "$name, rebuilt by weft"
	stop_md
}

for metadata in 0.90 1.0 1.1 1.2; do
	cycle 4 4 $metadata kernel
	cycle 5 4 $metadata kernel
	cycle 6 5 $metadata kernel
done
for metadata in 1.0 1.1 1.2; do cycle 5 3 $metadata weft; done

# Killed in the middle of writing: dirty, so that the kernel resyncs all of it.
for metadata in 0.90 1.1; do
	make_disks 4 16M
	loops=("${disks[@]}")
	mdadm --create /dev/md0 --run --level 5 --raid-devices 4 --chunk 32 --metadata $metadata --bitmap none \
		--assume-clean "${loops[@]}" >&2 || fail "killed, $metadata: create"
	expect_zeros
	stop_md
	kill_weft_mid_write "killed, $metadata"
	resynced "killed, $metadata"
	stop_md
done
plan 40
