# Runs under the systemd of the namespaces: prints lines `WORD VALUE` that `run` checks.
# shellcheck shell=bash
set -xu
show() { systemctl show -P "$2" "$1"; }
until_line() { # UNIT TEXT : until the line of the unit has the text
	for ((t = 0; t < 600; t++)); do
		[[ $(show "$1" StatusText) == *"$2"* ]] && return 0
		sleep 0.1
	done
	return 1
}
hang() { # UNIT : stops its main process by a signal, and waits until the unit has restarted
	local process other
	process=$(show "$1" MainPID)
	[ "$process" -gt 1 ] && kill -STOP "$process"
	# The number of restarts and the old line change before there is another process.
	for ((t = 0; t < 600; t++)); do
		other=$(show "$1" MainPID)
		[ "$other" != 0 ] && [ "$other" != "$process" ] && break
		sleep 0.1
	done
}
drop_in() { # UNIT LINE… : the administrator's drop-in
	mkdir -p "/etc/systemd/system/$1.d"
	{ echo '[Service]'; printf '%s\n' "${@:2}"; } >"/etc/systemd/system/$1.d/zz-admin.conf"
	systemctl daemon-reload
}

weft create -l5 -n3 -c64K --member-size=32M --name=vol /srv/disks/{a,b,c} >&2
weft create -l1 -n2 --member-size=32M --name=opt /opt/disks/{a,b} >&2
weft create -l1 -n2 --member-size=32M --name=home /home/me/disks/{a,b} >&2
cat >/etc/weft.toml <<'T'
check = "daily"
[volume.vol]
members = "/srv/disks/[a-d]"
listen = ["nbd+unix:///vol?socket=/run/weft/vol.nbd", "nbd://127.0.0.1:0/vol", "vhost-user:/run/weft/vol.disk"]
[volume.opt]
members = ["/opt/disks/a", "/opt/disks/b"]
write-back = "8M"
[volume.home]
members = ["/home/me/disks/a", "/home/me/disks/b"]
backend = "threads"
T

# Files below /srv are members without a drop-in, others are not.
systemctl start weft
echo "started $(show weft StatusText)"
systemctl stop weft

# With the drop-in of docs/systemd.md all three are. A call that is not in the list kills.
drop_in weft.service ReadWritePaths=/opt/disks BindPaths=/home/me/disks WatchdogSec=10 \
	SystemCallErrorNumber=kill
systemctl start weft
echo "mended $(show weft StatusText)"
main=$(show weft MainPID)
grep -E '^(Seccomp|NoNewPrivs|CapEff):' "/proc/$main/status" | tr -d ':' | tr '\t' ' '
for volume in vol opt home; do
	head -c 20M /dev/urandom >/tmp/written
	uri="nbd+unix:///$volume?socket=/run/weft/$volume.nbd"
	# What is not flushed is lost with a server that is killed, which is then refused its start.
	nbdcopy --flush /tmp/written "$uri" && nbdcopy "$uri" - | head -c 20M | cmp - /tmp/written &&
		echo "copied $volume"
done
weft fail vol /srv/disks/c >&2
until_line weft degraded
echo "degraded $(show weft StatusText)"
weft remove vol /srv/disks/c >&2
weft add vol /srv/disks/d --member-size 32M >&2
weft wait vol >&2
weft check vol >&2 && echo "checked vol"
weft set vol bitmap=internal >&2
systemctl reload weft && echo "reloaded $(show weft ActiveState)"
mkdir -p /etc/weft.d && echo '[' >/etc/weft.d/wrong.toml
systemctl reload weft || echo "refused $(show weft ActiveState)"
rm -r /etc/weft.d
sleep 12
echo "alive $(show weft NRestarts)"

# A server that hangs is killed by the daemon, the daemon by systemd.
server=$(weft status --json home | python3 -c 'import json, sys; print(json.load(sys.stdin)["servers"][0]["pid"])')
kill -STOP "$server"
until_line weft "not home" && until_line weft "serving 3 of 3"
echo "again $(journalctl -b -u weft -o cat | grep -c 'home: has not answered for 10 s: killed')"
hang weft
until_line weft "serving 3 of 3"
echo "watched $(show weft NRestarts) $(show weft StatusText)"
systemctl stop weft
echo "stopped $(show weft Result)"
echo "forbidden $(journalctl -b -u weft -o cat | grep -c SIGSYS)"

# One volume by its own unit.
drop_in weft@.service WatchdogSec=8 SystemCallErrorNumber=kill
systemctl start weft@vol
until_line weft@vol order
echo "one $(show weft@vol StatusText)"
sleep 10
echo "one-alive $(show weft@vol NRestarts) $(show weft@vol ActiveState)"
hang weft@vol
until_line weft@vol raid5
echo "one-watched $(show weft@vol NRestarts)"
systemctl stop weft@vol
echo "one-stopped $(show weft@vol Result)"

# Planted: a list that lacks a call which servers make.
drop_in weft.service ReadWritePaths=/opt/disks BindPaths=/home/me/disks SystemCallErrorNumber=kill \
	"SystemCallFilter=~epoll_wait epoll_pwait"
systemctl start weft
echo "planted $(journalctl -b -u weft -o cat | grep -c SIGSYS)"
systemctl stop weft
journalctl -b --no-pager -o short-monotonic -u weft -u weft@vol >/opt/out/journal
