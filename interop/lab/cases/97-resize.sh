# Arrays that get a larger size, or another number of mirrors, by the kernel's md and by weft: each
# takes what the other left, also in the middle.
. /lab/tap.sh
. /lab/turns.sh

# fresh NAME LEVEL COUNT METADATA [BITMAP] : an array of the kernel's that uses 8 MiB of each disk.
# What the disks hold behind that is noise.
fresh() {
	name=$1
	make_disks "$3" 32M
	for disk in "${disks[@]}"; do
		dd if=/dev/urandom of="$disk" bs=1M seek=13 count=17 status=none || fail "$name: noise"
	done
	mdadm --create /dev/md0 --run --level "$2" --raid-devices "$3" --metadata "$4" --size 8M \
		--bitmap "${5:-none}" --assume-clean $([ "$2" = 1 ] || echo --chunk 32) "${disks[@]}" >&2 ||
		fail "$name: mdadm --create"
	loops=("${disks[@]}")
	expect_zeros
	kernel_writes 1
	[ "${6:-}" = serves ] || stop_md
}


# taken SLOTS BYTES : the kernel has the array of this many members and bytes, all in sync, with the
# content that was there before
taken() {
	assemble "$name"
	wait_idle
	equal "$name: the kernel takes it" \
		"$(cat /sys/block/md0/md/{raid_disks,degraded,array_state} | xargs) $(blockdev --getsize64 /dev/md0)" \
		"$1 0 clean $2"
	check "$name: content" same_as /tmp/expected
	checked "$name"
	stop_md
}

# data_disks LEVEL COUNT : how many members' sizes the array has
data_disks() {
	case $1 in 1) echo 1 ;; 10) echo $(($2 / 2)) ;; 6) echo $(($2 - 2)) ;; *) echo $(($2 - 1)) ;; esac
}

reads="$pattern verify \"\$uri\" /tmp/expected"
writes="$pattern write \"\$uri\" /tmp/expected 5 24"
# What clients that connect anew see of what was added is expected from then on.
cat >/tmp/extend.py <<'P'
import os, sys
sys.path.insert(0, "/tmp/lab/lib")
import nbd
client = nbd.Client(sys.argv[1])
with open("/tmp/expected", "r+b") as expected:
    at = expected.seek(0, os.SEEK_END)
    assert at < client.size == int(sys.argv[2]), (at, client.size)
    while at < client.size:
        expected.write(client.read(at, min(1 << 20, client.size - at)))
        at = expected.tell()
P
sees() { echo "python3 -S /tmp/extend.py \"\$uri\" $1"; }

for of in '1 2 1.2' '1 3 1.0' '5 4 1.2' '6 4 1.2' '4 3 1.2' '10 4 1.2' '5 3 0.90'; do
	read -r level slots metadata <<<"$of"
	fresh "RAID $level, metadata $metadata, weft grows it" "$level" "$slots" "$metadata"
	bytes=$(($(data_disks "$level" "$slots") << 24))
	with_weft "$name: under writes" "$writes; $weft grow turns --size 16M; $(sees $bytes); $writes
		$weft wait turns; $reads; $weft detail turns | grep 'Used Dev Size : 16384'"
	taken "$slots" $bytes
	equal "$name: members record it" \
		"$(mdadm --examine "${loops[@]}" | grep -c 'Used Dev Size : \(32768\|16384\) ')" "$slots"
	with_weft "$name: weft reads and writes it" "$reads; $writes; $reads"
done

fresh "to the end of the members" 5 3 1.2
with_weft "$name: weft grows it" "$weft grow turns --size max; $weft wait turns"
assemble "$name"
equal "$name: to the kernel's size" "$(cat /sys/block/md0/md/component_size)" \
	"$(mdadm --grow /dev/md0 --size max >&2 && wait_idle && cat /sys/block/md0/md/component_size)"
checked "$name"
stop_md

for level in 1 5 10; do
	fresh "RAID $level with a bitmap" "$level" 4 1.2 internal
	bytes=$(($(data_disks "$level" 4) << 24))
	with_weft "$name: weft grows it" "$writes; $weft grow turns --size 16M; $(sees $bytes)
		$writes; $weft wait turns; $reads"
	taken 4 $bytes
	equal "$name: the bitmap covers it" \
		"$(mdadm --examine-bitmap "${loops[0]}" | awk '/Sync Size/ { print $4 }')" \
		"$(($([ $level = 10 ] && echo $bytes || echo $((16 << 20))) >> 10))"
done

fresh "weft dies while it resyncs" 5 4 1.2 internal
with_weft "$name: weft begins" "$weft grow turns --size 16M; $(sees $((3 << 24))); $writes" \
	--set sync_speed_max=500
kill_weft_mid_write "$name" --set sync_speed_max=500
resynced "$name"
equal "$name: the kernel has the new size" "$(blockdev --getsize64 /dev/md0)" $((3 << 24))
stop_md

fresh "the kernel grows it, weft resyncs it" 5 4 1.2 none serves
echo 500 >/sys/block/md0/md/sync_speed_max
echo 100 >/sys/block/md0/md/sync_speed_min
mdadm --grow /dev/md0 --size 16M >&2 || fail "$name: mdadm --grow"
dd if=/dev/md0 of=/tmp/expected bs=1M skip=24 seek=24 status=none
sleep 1
stop_md
with_weft "$name: weft resyncs it" "$reads; $writes; $weft wait turns; $reads"
taken 4 $((3 << 24))

fresh "more mirrors" 1 2 1.2 internal
make_spare() { truncate -s 32M /tmp/w/m9; attach /tmp/w/m9; spare=${loops[0]}; loops=("${disks[@]}"); }
make_spare
with_weft "$name: weft adds one" "$weft add turns $spare; $weft grow turns --raid-devices 3; $writes
	$weft wait turns; $reads; $weft detail turns | grep 'Raid Devices : 3'"
loops=("${disks[@]}" "$spare")
taken 3 $((8 << 20))

name="fewer mirrors"
with_weft "$name: weft takes the first one away" "! $weft grow turns -n 2; $weft fail turns ${loops[0]}
	$weft remove turns ${loops[0]}; $weft grow turns -n 2; $writes; $reads
	$weft detail turns | grep 'Raid Devices : 2'"
loops=("${loops[@]:1}")
taken 2 $((8 << 20))
with_weft "$name: weft reads and writes it" "$reads; $writes; $reads"

name="the kernel's fewer and more mirrors"
assemble "$name"
mdadm --grow /dev/md0 --raid-devices 3 --add "${disks[0]}" >&2 || fail "$name: mdadm --grow"
wait_idle
stop_md
loops=("${loops[@]}" "${disks[0]}")
with_weft "$name: weft reads and writes it" "$reads; $writes; $reads; $weft detail turns | grep 'Raid Devices : 3'"
taken 3 $((8 << 20))
plan 84
