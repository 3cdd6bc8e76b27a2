# Members that fail on real devices while weft serves them: device-mapper's flakey, error and delay
# targets, and loop devices that shrink. Clients see no error within the level; afterwards the
# kernel's md assembles what is left, finds the content, recovers new members, and counts no
# mismatch. Controls at the end: an error beyond the level, and a flipped bit.
. /lab/faults.sh

for shape in "5 1" "6 2"; do
	read -r level few <<<"$shape"
	raid="RAID $level"
	all="0 $SECTORS"

	begin "$raid, error_writes" "$level" "$few"
	falls "$few failing every write" "$all flakey DEV 0 0 60 1 error_writes"

	begin "$raid, error_reads" "$level" "$few"
	falls "$few failing every read" "$all flakey DEV 0 0 60 1 error_reads"

	begin "$raid, dm-error" "$level" "$few"
	falls "$few failing everything" "$all error"

	# One sector range that neither reads nor takes the correction: no member fails for it. The kernel
	# honours the bad blocks, and clears them once the range can be written.
	begin "$raid, a range of dm-error" "$level" "$few"
	serves "$few with 64 KiB in the middle that err: every write is Ok, and read back" "
		$pattern turn \"\$uri\" /tmp/expected 7 12
		become '0 8192 linear DEV 0;8192 128 error;8320 $((SECTORS - 8320)) linear DEV 8320'
		$(writes 8)
		$reads
		shows $whole
		$(writes 9 8)
		$weft status turns >/tmp/status"
	without_dm
	assemble "$name"
	equal "$name: the kernel takes all members" "$(cat /sys/block/md0/md/{degraded,array_state} | xargs)" "0 clean"
	said=$(sed -n 's/.*bad blocks: \([0-9]*\) sectors of .*faulty1 .*/\1/p' /tmp/status)
	equal "$name: with the bad blocks that weft had told" \
		"$(bad_blocks "${disks[1]}" | xargs -n 2 | awk '{n += $2} END {print n}')" "$said"
	check "$name: content by the kernel" same_as /tmp/expected
	checked "$name"
	equal "$name: and clears them" "$(bad_blocks "${disks[1]}")" ""
	stop_md

	# A member that is there one second and away the next; it comes back, and is not believed.
	begin "$raid, up and down" "$level" "$few"
	serves "up and down: every write is Ok; back, they are rebuilt by weft" "
		become '$all flakey DEV 0 1 1'
		t=0
		until $weft status turns 2>/dev/null | grep -qF '[$map]' || [ \$t -gt 30 ]; do
			$(writes "\$((20 + t))" 6)
			t=\$((t + 1))
		done
		shows $map
		become '$all linear DEV 0'
		$reads
		$(writes 9 8)
		shows $map
		for each in $faulty; do $weft remove turns /dev/mapper/\$each; $weft add turns --force /dev/mapper/\$each; done
		$weft wait turns
		shows $whole
		$(writes 10 8)
		$reads"
	without_dm
	in_sync "$name, rebuilt by weft"
	stop_md

	# A slow member: no member fails, nothing is lost.
	begin "$raid, dm-delay" "$level" "$few"
	become="$all delay DEV 0 15 DEV 0 60"
	serves "slow members: every write is Ok" "
		become '$become'
		$(writes 8)
		$reads
		shows $whole"
	without_dm
	in_sync "$name"
	stop_md

	# A loop device that shrinks, as a disk that is pulled or cut: gone as a whole.
	for to in 0 4M; do
		begin "$raid, shrunk to $to" "$level" "$few"
		without_dm
		faulty=
		cut=
		for ((i = 1; i <= few; i++)); do cut="$cut truncate -s $to /tmp/w/m$i; losetup -c ${disks[i]};"; done
		serves "$few that shrink: every write is Ok" "
			$pattern turn \"\$uri\" /tmp/expected 7 12
			$cut
			$(writes 8)
			$reads
			shows $map"
		left
		by_kernel
	done
done

# Controls: an error beyond the level reaches the client; a flipped bit is seen by the comparison
# and counted.
begin "control, two of RAID 5 fail" 5 2
serves "a client sees the error" "
	$reads
	become '0 $SECTORS error'
	$(writes 8) 2>/tmp/refused && exit 1
	grep -q 'NBD error 5' /tmp/refused"
without_dm
begin "control, a flipped bit" 5 1
without_dm
offset=$(mdadm --examine "${disks[2]}" | awk '/Data Offset/ {print $4}')
flip /tmp/w/m2 $((offset * 512 + 77)) # a byte of the first full stripe, data of slot 2
assemble "$name"
same_as /tmp/expected >&2 && fail "$name: the comparison does not see it"
ok "$name: the comparison sees it"
sync_action check
equal "$name: the check counts it" "$mismatches" 8
stop_md
plan 95
