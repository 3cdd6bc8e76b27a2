# For the cases, in the guest: members on device-mapper devices, which become faulty while weft
# serves them, and what the kernel's md finds afterwards.
# shellcheck shell=bash
. /lab/tap.sh
. /lab/turns.sh
export DM_DISABLE_UDEV=1
SIZE=8M
SECTORS=$((8 << 11))

# What the scripts beside a serving weft use; `faulty` are the device-mapper devices.
cat >/tmp/faults.sh <<'W'
# become TARGET ARGUMENTS : what every faulty device is from now on; DEV is the device below it
become() {
	for each in $faulty; do
		below=$(cat "/tmp/below.$each")
		dmsetup suspend --nolockfs "$each"
		echo "$*" | sed "s|DEV|$below|g; s|;|\n|g" | dmsetup load "$each"
		dmsetup resume "$each"
	done
}

# shows MAP : what weft says of its members; waited for, since a failure is recorded first
shows() {
	t=0
	until $weft status turns >/tmp/status 2>&1 || [ $? = 4 ] && grep -qF "[$1]" /tmp/status; do
		t=$((t + 1))
		[ $t -lt 20 ] || { cat /tmp/status; return 1; }
		sleep 0.5
	done
}
W

# begin NAME LEVEL FEW : an array written by the kernel and stopped. FEW members, from the second,
# sit on device-mapper devices, for now linear; `loops` is what weft is given, `disks` what lies
# below
begin() {
	name=$1
	level=$2
	few=$3
	slots=$((level == 6 ? 5 : 4))
	make_disks "$slots" $SIZE
	if [ "$level" = 5 ]; then
		mdadm --create /dev/md0 --run --level 5 --raid-devices "$slots" --chunk 32 --metadata 1.2 --bitmap none \
			--assume-clean "${loops[@]}" >&2 || fail "$name: mdadm --create"
	else
		"$weft" create --level 6 --raid-devices "$slots" --chunk 32K --assume-clean --name turns "${loops[@]}" >&2 ||
			fail "$name: weft create"
		assemble "$name"
	fi
	expect_zeros
	kernel_writes 1
	stop_md
	map= faulty=
	for ((i = 0; i < slots; i++)); do
		if [ "$i" -ge 1 ] && [ "$i" -le "$few" ]; then
			dmsetup create "faulty$i" --table "0 $SECTORS linear ${disks[i]} 0" || fail "$name: dmsetup create"
			echo "${disks[i]}" >"/tmp/below.faulty$i"
			loops[i]=/dev/mapper/faulty$i
			faulty="$faulty faulty$i"
			map=${map}_
		else
			map=${map}U
		fi
	done
	whole=${map//_/U}
}

# serves TEXT SCRIPT [OPTION…] : the script runs while weft serves the array
serves() {
	local text=$1 script=$2
	shift 2
	with_weft "$name: $text" "weft=$weft; faulty='$faulty'; . /tmp/faults.sh
		$script" "$@"
}

writes() { echo "$pattern write \"\$uri\" /tmp/expected $1 ${2:-24}"; }
reads="$pattern verify \"\$uri\" /tmp/expected"

# bad_blocks DEVICE : entries of that member of md0, as md lists them
bad_blocks() { xargs <"/sys/block/md0/md/dev-${1#/dev/}/bad_blocks"; }

# without_dm : `loops` are the disks themselves
without_dm() {
	local each
	for each in $faulty; do dmsetup remove "$each" || fail "$name: dmsetup remove"; done
	loops=("${disks[@]}")
}

# left : of `disks`, those that did not fail
left() {
	local i
	loops=()
	for ((i = 0; i < slots; i++)); do [ "${map:i:1}" = _ ] || loops+=("${disks[i]}"); done
}

# by_kernel [OPTION] : the kernel assembles `loops`, without those that failed, and recovers new
# ones
by_kernel() {
	local i fresh=()
	mdadm --assemble "$@" /dev/md0 "${loops[@]}" >&2 || fail "$name: mdadm --assemble"
	equal "$name: the kernel takes those that are left" \
		"$(cat /sys/block/md0/md/{degraded,array_state} | xargs)" "$few clean"
	check "$name: content by the kernel" same_as /tmp/expected
	for ((i = 0; i < slots; i++)); do
		[ "${map:i:1}" = _ ] || continue
		truncate -s 0 "/tmp/w/m$i"
		truncate -s $SIZE "/tmp/w/m$i"
		losetup -c "${disks[i]}"
		fresh+=("${disks[i]}")
	done
	mdadm /dev/md0 --add "${fresh[@]}" >&2 || fail "$name: mdadm --add"
	sleep 1
	wait_idle
	loops=("${disks[@]}")
	equal "$name: recovered by the kernel" "$(cat /sys/block/md0/md/degraded)" 0
	checked "$name"
	check "$name: content after the recovery" same_as /tmp/expected
	stop_md
}

# falls TEXT TARGET… : the faulty members become that while weft serves them: they fail, every write
# is answered Ok, and the kernel leaves them out though their superblocks are there
falls() {
	local text=$1
	shift
	serves "$text: every write is Ok, and read back" "
		$pattern turn \"\$uri\" /tmp/expected 7 12
		become '$*'
		$(writes 8)
		$reads
		shows $map
		$(writes 9 8)"
	without_dm
	by_kernel
}
