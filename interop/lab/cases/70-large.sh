# Arrays of 3 and 17 TiB, and members of 17 TiB, on sparse files: the kernel and weft write at the
# start, around sector 2^32 of the array and of a member, around 16 TiB, and at the end; each reads
# what the other wrote, also with a member left out.
. /lab/tap.sh
. /lab/turns.sh
places="python3 -S /tmp/lab/lib/places.py"

# large LEVEL MEMBERS SIZE METADATA
large() {
	local level=$1 members=$2 size=$3 metadata=$4 name="raid$1 of $2 x $3, $4" total data at rest
	make_disks "$members" "$size"
	mdadm --create /dev/md0 --run --level "$level" --raid-devices "$members" --chunk 64 --metadata "$metadata" \
		--bitmap none --assume-clean "${loops[@]}" >&2 || fail "$name: create"
	total=$(blockdev --getsize64 /dev/md0)
	data=$((level == 6 ? members - 2 : members - 1))
	local length=$((512 << 10)) offsets=() # from 256 KiB before each boundary
	for at in $((256 << 10)) $((2 << 40)) $(((2 << 40) * data)) $((16 << 40)) $(((16 << 40) * data)) $((total - (256 << 10))); do
		[ "$at" -gt $((total - (256 << 10))) ] || offsets+=($((at - (256 << 10))))
	done
	at_least "$name: places" "${#offsets[@]}" 3
	check "$name, $total bytes: the kernel writes" $places write 1 $length /dev/md0 "${offsets[@]}"
	stop_md
	rest=("${loops[@]:0:1}" "${loops[@]:2}")
	check "$name: weft reads it, a member short" "$weft" serve --read-only "${rest[@]}" --name turns \
		--exec "$places compare 1 $length \"\$uri\" ${offsets[*]}"
	with_weft "$name: weft writes" "$places write 2 $length \"\$uri\" ${offsets[*]}"
	assemble "$name"
	equal "$name: nothing to resync" "$(cat /sys/block/md0/md/{sync_action,degraded,array_state} | xargs)" "idle 0 clean"
	check "$name: the kernel reads it" $places compare 2 $length /dev/md0 "${offsets[@]}"
	stop_md
	mdadm --assemble --readonly --run /dev/md0 "${rest[@]}" >&2 || fail "$name: assemble without a member"
	check "$name: the kernel reads it, a member short" $places compare 2 $length /dev/md0 "${offsets[@]}"
	stop_md
}

large 5 3 1536G 1.0
large 6 4 8704G 1.2
large 5 3 17T 1.0
large 4 3 17T 1.2
plan 28
