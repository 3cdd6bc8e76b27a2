#!/usr/bin/env bash
# Runs in the guest, as root: every case of /lab/cases in one boot. Prints TAP; the exit status is 0
# only when every case printed as many `ok` lines as it planned and no `not ok`.
cd /lab || exit 1
# /lab is not cached: each page of a program or a pattern would come from the host each time.
mkdir /tmp/lab && cp -r /lab/weft.bin /lab/lib /lab/pattern-[ab] /tmp/lab/ || exit 1
echo "# $(uname -r), $(mdadm --version 2>&1)"
total=0 failed=0
for case in /lab/cases/*.sh; do
	name=$(basename "$case" .sh)
	begin=$SECONDS
	timeout -k 5 1800 bash "$case" >"/tmp/$name.tap" 2>"/tmp/$name.err" </dev/null
	status=$?
	cat "/tmp/$name.tap"
	plan=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "/tmp/$name.tap" | tail -1)
	good=$(grep -c '^ok ' "/tmp/$name.tap")
	if [ "$status" != 0 ] || [ "$good" != "${plan:-none}" ] || grep -q '^not ok' "/tmp/$name.tap"; then
		failed=$((failed + 1))
		echo "not ok - case $name: exit $status, $good ok of ${plan:-no plan}"
		tail -30 "/tmp/$name.err" | sed 's/^/#   /'
	fi
	total=$((total + good))
	echo "# case $name: $good ok in $((SECONDS - begin)) s"
	mdadm --stop --scan >/dev/null 2>&1
	dmsetup remove_all >/dev/null 2>&1 # what a case that failed left
	losetup -D
	rm -rf /tmp/w
done
echo "# $total ok, $failed cases failed, $SECONDS s"
[ "$failed" = 0 ] && [ "$total" -gt 0 ]
