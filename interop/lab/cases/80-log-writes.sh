# Every write of weft to its members, logged by the kernel (dm-log-writes) while a verifying writer
# flushes and uses FUA. Points that a power cut may leave are replayed from the logs: a sample here,
# each assembled, resynced and checked by the kernel's md; many more by weft, on the host (`test`).
. /lab/tap.sh
. /lab/turns.sh
export DM_DISABLE_UDEV=1
logged="python3 -S /tmp/lab/lib/logged.py"
logs=/tmp/w/logs
members=()
make_disks 4 4M
mkdir "$logs"
stat -c %s /tmp/w/m0 >"$logs/size"
for i in 0 1 2 3; do
	truncate -s 96M "$logs/log$i"
	log=$(losetup --show -f "$logs/log$i") || fail "losetup"
	dmsetup create "logged$i" --table "0 8192 log-writes ${disks[i]} $log" || fail "dmsetup create"
	members+=("/dev/mapper/logged$i")
done
names=(logged0 logged1 logged2 logged3)
check "weft creates an array on logged devices" "$weft" create --level 5 --raid-devices 4 --chunk 16K \
	--assume-clean --name logged "${members[@]}"
for session in 1 2; do
	check "session $session: a verifying writer" "$weft" serve "${members[@]}" --name logged \
		--exec "$logged write \"\$uri\" /tmp/w/trace 14 ${names[*]}"
	check "session $session: marked after the stop" $logged mark /tmp/w/trace "${names[@]}"
done
for name in "${names[@]}"; do dmsetup remove "$name" || fail "dmsetup remove"; done
mkdir -p /lab/logged
cp --sparse=always "$logs"/* /tmp/w/trace /lab/logged/ || fail "the logs to the host"

# The same devices, as each point leaves them.
check "the kernel's md takes every point of a sample" $logged md "$logs" /tmp/w/trace 600 32 "${disks[@]}"
tail -1 /tmp/80-log-writes.err | sed 's/^/# /'
plan 6
