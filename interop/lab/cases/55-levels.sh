# Levels without parity, every metadata version: weft's superblocks are those of mdadm, each of the
# two finds what the other wrote, whole and without every set of members that the level can do
# without, and the kernel's check stays at 0. Linear is not here: Linux 6.8 to 6.13 have none.
. /lab/tap.sh
. /lab/turns.sh
check "weft runs on $(uname -r)" "$weft" --version

# make_members SIZE… : sets `disks` and `loops`, loop devices over new sparse files
make_members() {
	local size
	make_disks $# 1M
	losetup -d "${disks[@]}"
	i=0
	for size in "$@"; do truncate -s "$size" "/tmp/w/m$i" && i=$((i + 1)); done
	attach $(seq -f /tmp/w/m%.0f 0 $(($# - 1)))
	disks=("${loops[@]}")
}

# shape : what the superblocks say but for identity, time and the kernel's count of events
shape() {
	for loop in "${loops[@]}"; do
		mdadm --examine "$loop" | grep -vE 'UUID|Time|Checksum|Name :|Events|/dev/' | sed "s/^/${loop##*/}/"
	done
}

# left_out LEVEL LAYOUT : sets of members that the array can do without, one a line; none is a line
# too
left_out() {
	python3 -S - "$1" "$2" "${#loops[@]}" <<'P'
import itertools, sys
level, layout, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
# Members that hold a chunk together: every set is met by a neighbour's; a row of near copies wraps.
copies = count if level == "1" else int(layout[1:]) if level == "10" else 1
step = copies if layout[0] == "n" else 1
groups = [{(first + copy) % count for copy in range(copies)} for first in range(0, count * step, step)]
for size in range(count):
    for gone in itertools.combinations(range(count), size):
        if all(group - set(gone) for group in groups):
            print(" ".join(map(str, gone)))
P
}

# reads_without TEXT LEVEL LAYOUT : weft reads /tmp/expected without each such set
reads_without() {
	local gone i rest sets=0
	left_out "$2" "$3" >/tmp/left_out || fail "$1: sets of members to leave out"
	while read -r gone; do
		rest=()
		for ((i = 0; i < ${#loops[@]}; i++)); do
			case " $gone " in *" $i "*) ;; *) rest+=("${loops[i]}") ;; esac
		done
		[ -z "$gone" ] || [ "$4" -gt 1 ] || continue
		"$weft" cat "${rest[@]}" >/tmp/seen || fail "$1: weft cat without '$gone'"
		cmp /tmp/seen /tmp/expected || fail "$1: content without '$gone'"
		sets=$((sets + 1))
	done </tmp/left_out
	at_least "$1: weft reads it whole and without each set of members that it can do without" "$sets" "$4"
}

# made LEVEL LAYOUT METADATA SETS SIZE… : by weft, as mdadm makes it; SETS is the least number of
# sets of members without which it is read, 1 for none
made() {
	local level=$1 layout=$2 metadata=$3 sets=$4 name="raid$1 $2 $3, $(($# - 4)) members" options=()
	shift 4
	options=(--level "$level" --raid-devices $# --metadata "$metadata" --assume-clean --name turns)
	[ "$level" = 1 ] || options+=(--chunk 32)
	[ "$level" = 0 ] || options+=(--bitmap none)
	[ "$layout" = - ] || options+=(--layout "$layout")
	make_members "$@"
	mdadm --create /dev/md0 --run "${options[@]}" "${loops[@]}" >&2 || fail "$name: mdadm --create"
	stop_md
	shape >/tmp/shape.mdadm
	make_members "$@"
	"$weft" create "${options[@]}" "${loops[@]}" >&2 || fail "$name: weft create"
	shape >/tmp/shape.weft
	check "$name: the superblocks are mdadm's" diff /tmp/shape.mdadm /tmp/shape.weft
	at_least "$name: lines compared" "$(wc -l </tmp/shape.weft)" $((12 * $#))

	assemble "$name"
	equal "$name: nothing to resync" \
		"$(cat /sys/block/md0/md/{sync_action,degraded} 2>/dev/null | xargs)" "$([ "$level" = 0 ] || echo idle 0)"
	expect_zeros
	check "$name: content" same_as /tmp/expected
	kernel_writes 1
	[ "$level" = 0 ] || checked "$name"
	stop_md
	reads_without "$name" "$level" "$layout" "$sets"
}

for metadata in 1.0 1.1; do
	made 0 - $metadata 1 8M 8M 8M
	made 1 - $metadata 1 8M 9M
	made 10 n2 $metadata 1 8M 8M 8M 8M
done
for layout in original alternate; do made 0 $layout 1.2 1 6M 8M 10M 8M; done
made 1 - 1.2 7 8M 8M 8M
made 10 f2 1.2 4 8M 8M 8M
made 10 o2 1.2 7 8M 8M 8M 8M
made 10 n2 1.2 4 8M 8M 8M
plan 69
