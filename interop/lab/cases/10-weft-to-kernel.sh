# weft created these arrays on the host and wrote to them through NBD; the kernel must find the
# same bytes, healthy and with every tolerable set of members left out, and no mismatch.
. /lab/tap.sh
for set in /lab/weft/*/; do
	name=$(basename "$set")
	mkdir -p /tmp/w
	cp --sparse=always "$set"/m* /tmp/w/
	cp "$set/expected" /tmp/expected
	files=(/tmp/w/m*)
	tolerated=$(cat "$set/tolerated")
	attach "${files[@]}"
	for loop in "${loops[@]}"; do
		mdadm --examine "$loop" >/tmp/w/examine 2>&1 || fail "$name: mdadm --examine $loop"
		grep -q 'Checksum : .* - correct' /tmp/w/examine || { cat /tmp/w/examine >&2; fail "$name: checksum of $loop"; }
	done
	ok "$name: mdadm --examine finds ${#loops[@]} correct checksums"

	# Read-only assembly writes nothing, so the members serve for all combinations.
	check "$name: assembles" mdadm --assemble --readonly /dev/md0 "${loops[@]}"
	check "$name: content, healthy" same_as /tmp/expected
	stop_md
	n=${#loops[@]}
	for ((a = 0; a < n; a++)); do
		for ((b = a; b < n; b++)); do
			[ "$b" = "$a" ] || [ "$tolerated" = 2 ] || continue
			rest=()
			for ((i = 0; i < n; i++)); do [ "$i" = "$a" ] || [ "$i" = "$b" ] || rest+=("${loops[i]}"); done
			mdadm --assemble --readonly --run /dev/md0 "${rest[@]}" >&2 || fail "$name: assemble without $a $b"
			same_as /tmp/expected || fail "$name: content without members $a $b"
			stop_md
			ok "$name: content without members $a $b"
		done
	done

	check "$name: assembles read-write" mdadm --assemble /dev/md0 "${loops[@]}"
	wait_idle
	sync_action check
	at_least "$name: check reads every stripe of every member" "$stripes_read" "$(component_sectors)"
	equal "$name: check counts 0" "$mismatches" 0
	stop_md
	detach

	# Positive control: the check can fail. Data at 64 KiB into the second member.
	offset=$(mdadm --examine "${files[1]}" | awk '/Data Offset/ {print $4}')
	flip "${files[1]}" $((offset * 512 + 65536 + 77))
	attach "${files[@]}"
	mdadm --assemble /dev/md0 "${loops[@]}" >&2 || fail "$name: assemble after the flip"
	sync_action check
	equal "$name: a flipped bit is counted" "$mismatches" 8
	stop_md
	detach
	rm -rf /tmp/w
done
plan "$(cat /lab/weft.checks)"
