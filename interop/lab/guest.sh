#!/usr/bin/env bash
# Runs in the guest, as root: every case of /lab/cases in one boot. Prints TAP; the exit status is 0
# only when every case printed as many `ok` lines as it planned and no `not ok`.
cd /lab || exit 1
# /lab is not cached: each page of a program or a pattern would come from the host each time.
mkdir /tmp/lab && cp -r /lab/weft.bin /lab/lib /lab/pattern-[ab] /tmp/lab/ || exit 1
echo "# $(uname -r), $(mdadm --version 2>&1)"
total=0 failed=0 again=0
# run NAME CASE : sets `good`, the number of checks that passed; fails unless all that are planned
# did
run() {
	local name=$1 status plan
	timeout -k 5 1800 bash "$2" >"/tmp/$name.tap" 2>"/tmp/$name.err" </dev/null
	status=$?
	cat "/tmp/$name.tap"
	plan=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "/tmp/$name.tap" | tail -1)
	good=$(grep -c '^ok ' "/tmp/$name.tap")
	mdadm --stop --scan >/dev/null 2>&1
	dmsetup remove_all >/dev/null 2>&1 # what a case that failed left
	losetup -D
	rm -rf /tmp/w
	[ "$status" = 0 ] && [ "$good" = "${plan:-none}" ] && ! grep -q '^not ok' "/tmp/$name.tap" && return 0
	echo "# case $name: exit $status, $good ok of ${plan:-no plan}"
	tail -30 "/tmp/$name.err" | sed 's/^/#   /'
	return 1
}
for case in /lab/cases/*.sh; do
	name=$(basename "$case" .sh)
	begin=$SECONDS attempts=1
	# The clock goes on when the host runs something else than the guest, which no case can know.
	grep -q '^# timed:' "$case" && attempts=3
	until run "$name" "$case"; do
		attempts=$((attempts - 1))
		[ "$attempts" -gt 0 ] || { failed=$((failed + 1)); echo "not ok - case $name"; break; }
		again=$((again + 1))
		echo "# case $name: once more, because it measures times"
	done
	total=$((total + good))
	echo "# case $name: $good ok in $((SECONDS - begin)) s"
done
echo "# $total ok, $failed cases failed, $again repeated, $SECONDS s"
[ "$failed" = 0 ] && [ "$total" -gt 0 ]
