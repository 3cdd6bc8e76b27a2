# Schedulers side by side: the kernel's on a null_blk device, weft's on the member of a bare volume,
# which is such a device without a scheduler. What each sends is traced at the device: a script of
# requests goes out in the same order. Two fio jobs of weights 80 and 40 get the same shares of it,
# but where weft does otherwise on purpose.
# timed: the device is late by the guest's clock
. /lab/tap.sh
. /lab/turns.sh
tracing=/sys/kernel/tracing
mount -t configfs none /sys/kernel/config 2>/dev/null
mount -t tracefs none $tracing 2>/dev/null
check "the kernel has the schedulers" grep -q 'mq-deadline' /sys/block/loop0/queue/scheduler
atonce="python3 -S /tmp/lab/lib/atonce.py"

# null NUMBER DEPTH NANOSECONDS : a device that takes DEPTH requests at once, each for so long
null() {
	null_blk "$1" size=4096 queue_mode=2 irqmode=2 blocksize=512 poll_queues=0 submit_queues=1 \
		hw_queue_depth="$2" completion_nsec="$3"
	echo 0 >"/sys/block/nullb$1/queue/rotational"
}

# traced DEVICE COMMAND… : the command; sets `order` to what was issued to the device meanwhile,
# each request as its direction and first sector
traced() {
	local device=$1
	shift
	echo 0 >$tracing/tracing_on
	echo >$tracing/trace
	echo 1 >$tracing/events/block/block_rq_issue/enable
	echo 1 >$tracing/tracing_on
	"$@" >/tmp/sent || fail "$*"
	echo 0 >$tracing/tracing_on
	order=$(awk -v device="$(tr : , <"/sys/block/$device/dev")" '
		{ for (i = 1; i < NF; i++) if ($i == "block_rq_issue:" && $(i + 1) == device)
			for (j = i + 2; j < NF; j++) if ($j == "+") print substr($(i + 2), 1, 1) $(j - 1) "+" $(j + 1) }
		' $tracing/trace | xargs)
}

# kernel_knobs DEVICE SCHEDULER KNOB=VALUE…
kernel_knobs() {
	local queue=/sys/block/$1/queue pair
	echo none >"$queue/scheduler"
	echo "$2" >"$queue/scheduler" || fail "$1: scheduler $2"
	echo 1024 >"$queue/nr_requests"
	shift 2
	for pair in "$@"; do echo "${pair#*=}" >"$queue/iosched/${pair%%=*}" || fail "$pair"; done
}

# in_time NUMBER COMMAND… : the command, which sends /tmp/script to a device of depth 1, again with
# a slower device when that had ended its second request before the last of the script was there
in_time() {
	local number=$1 milliseconds
	shift
	for milliseconds in 100 300 900; do
		null "$number" 1 "${milliseconds}000000"
		"$@"
		grep -qx late /tmp/sent || return 0
		echo "# nullb$number: late at $milliseconds ms a request"
	done
	fail "$*: the script took longer than two requests of $milliseconds ms"
}

# same_order TEXT SCHEDULER REQUESTS KNOB=VALUE… : /tmp/script, which begins with a write to sector
# 0, sent to both. What weft reads before, looking for metadata, is left out
same_order() {
	local text=$1 scheduler=$2 requests=$3 by_kernel
	shift 3
	to_kernel() {
		kernel_knobs nullb0 "$scheduler" async_depth=1024 "$@"
		traced nullb0 $atonce /tmp/script /dev/nullb0
	}
	in_time 0 to_kernel "$@"
	by_kernel=$order
	at_least "$text: requests that the kernel sent" "$(echo "$by_kernel" | wc -w)" "$requests"
	cat >/tmp/serving <<W
$weft set bare scheduler=$scheduler nr_requests=1024 $*
$atonce /tmp/script "\$uri"
W
	to_weft() {
		echo none >/sys/block/nullb1/queue/scheduler
		traced nullb1 "$weft" serve --bare /dev/nullb1 --name bare --set queue_depth=1 \
			--exec "sh -e /tmp/serving"
	}
	in_time 1 to_weft
	order=W0+8${order#*W0+8}
	equal "$text: weft sends them in the kernel's order" "$order" "$by_kernel"
}

# shares FILE : percent of the bytes that the first of two fio jobs read
shares() {
	python3 -S - "$1" <<'P'
import json, sys
text = open(sys.argv[1]).read()
read = [job["read"]["io_bytes"] for job in json.loads(text[text.index("{"):])["jobs"]]
assert len(read) == 2 and sum(read) >= 1 << 20, f"too little was read: {read}"
print(round(100 * read[0] / sum(read)))
P
}

# job FILE OPTION… -- OPTION… -- OPTION… : two jobs, their common options first
job() {
	local file=$1 name=global each
	shift
	{
		echo "[global]"
		for each in direct=1 time_based runtime=5 ramp_time=1 size=1g randrepeat=1 "$@"; do
			case $each in
			--) case $name in global) name=a ;; *) name=b ;; esac; echo "[$name]" ;;
			*) echo "$each" ;;
			esac
		done
	} >"$file"
}

# within TEXT LEAST MOST COMMAND… : the command, which sets `seen`, once more on a device that is
# slower by three and by nine when the machine was too busy to keep the first one full
within() {
	local text=$1 least=$2 most=$3 slower found=
	shift 3
	for slower in 1 3 9; do
		"$@" "$slower"
		found+=" $seen"
		[ "$seen" -ge "$least" ] && [ "$seen" -le "$most" ] && { ok "$text: $seen %"; return; }
	done
	fail "$text:$found %, expected $least to $most"
}

# by_both TEXT DEVICE-NUMBER DEPTH MILLISECONDS LEAST MOST FAIRNESS LEAST MOST OPTION… : the share
# in percent of the job of weight 80, of the kernel's bfq and then of weft's with that fairness
by_both() {
	local text=$1 number=$2 depth=$3 milliseconds=$4 least=$5 most=$6 fairness=$7 weft_least=$8 weft_most=$9 seen
	shift 9
	jobs=("$@")
	shares_of_kernel() {
		null "$number" "$depth" "$((milliseconds * $1))000000"
		kernel_knobs "nullb$number" bfq low_latency=0
		job /tmp/job "${jobs[@]}" ioengine=libaio "filename=/dev/nullb$number" -- prio=0 -- prio=4 offset=2g
		fio --output-format=json --output=/tmp/fio.json /tmp/job >&2 || fail "$text: fio on the kernel's bfq"
		seen=$(shares /tmp/fio.json) || fail "$text: what fio says of the kernel's"
	}
	within "$text, by the kernel" "$least" "$most" shares_of_kernel
	shares_of_weft() {
		null "$number" "$depth" "$((milliseconds * $1))000000"
		echo none >"/sys/block/nullb$number/queue/scheduler"
		local uri='nbd+unix:///%s?socket=/tmp/shared.sock'
		# shellcheck disable=SC2059
		job /tmp/job "${jobs[@]}" ioengine=nbd -- "uri=$(printf "$uri" heavy)" \
			-- "uri=$(printf "$uri" light)" offset=2g
		"$weft" serve --bare "/dev/nullb$number" --name bare \
			--listen 'nbd+unix:///bare?socket=/tmp/shared.sock' \
			--client heavy=weight:80 --client light=weight:40 --set "queue_depth=$depth" \
			--set scheduler=bfq --set low_latency=0 --set "fairness=$fairness" \
			--exec 'fio --output-format=json --output=/tmp/fio.json /tmp/job' >&2 ||
			fail "$text: two jobs through weft"
		seen=$(shares /tmp/fio.json) || fail "$text: what fio says of weft's"
	}
	within "$text, by weft ($fairness)" "$weft_least" "$weft_most" shares_of_weft
}

# lines DIRECTION FIRST COUNT : requests of 4 KiB, 8 KiB apart
lines() { for ((i = 0; i < $3; i++)); do echo "$1 $(($2 + 16 * i)) 8"; done; }
{ printf 'W 0 8\nW 32 8\nwait 8\n'; lines R 1000 20; lines W 5000 20; } >/tmp/script
null 0 1 1000
for target in /dev/nullb0 fast; do
	if [ "$target" = fast ]; then
		"$weft" serve --bare /dev/nullb0 --name bare --exec "$atonce /tmp/script \"\$uri\"" >/tmp/sent
	else
		$atonce /tmp/script "$target" >/tmp/sent
	fi || fail "the script on a fast device"
	equal "$target: a device that does not wait for the script is seen" "$(cat /tmp/sent)" late
done
same_order "mq-deadline, reads and writes" mq-deadline 42
same_order "mq-deadline, batches of 4" mq-deadline 42 fifo_batch=4
same_order "mq-deadline, reads starve no write" mq-deadline 42 fifo_batch=4 writes_starved=0
# More outstanding than the member takes: weights hold in both.
by_both "in sequence, 16 of 120 KiB, depth 1" 2 1 2 55 78 slots 55 78 rw=read bs=120k iodepth=16
# As many as it takes: what the kernel gives depends on what its injection has learned (50 to 98 %
# were seen); by requests weights hold.
by_both "random, 16 of 4 KiB, depth 32" 3 32 50 45 100 requests 58 76 rw=randread bs=4k iodepth=16
plan 13
