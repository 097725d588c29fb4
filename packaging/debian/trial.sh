#!/bin/sh
# Run by `cargo xtask dist --check` inside a Debian of its own: $1 is the version of /postrider.deb, $2 that
# of /next.deb; /calls has the system calls that the unit allows. With `--clients` there is /clients too, and the
# first webhook is sent by each of them. Every step is asserted; the first that fails ends the trial.
set -eu
began=$(date +%s)

installed=$1
next=$2
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev
for device in null zero random urandom; do
    case $device in null) n=3 ;; zero) n=5 ;; random) n=8 ;; urandom) n=9 ;; esac
    mknod -m 0666 /dev/$device c 1 "$n"
done

fail() {
    echo "trial: $*" >&2
    [ -f /tmp/server.log ] && cat /tmp/server.log >&2
    exit 1
}

# The unit's own command line, as its user and without capabilities. By `setpriv`, because no service
# manager runs here. `strace` refuses what the unit's SystemCallFilter refuses, and writes down what is
# refused, sockets and memory mappings. With -D it is no parent of the server, so signals reach that.
unit=/lib/systemd/system/postrider.service
watched='^[?](socket|socketpair|mmap|mprotect|pkey_mprotect)$'
start() {
    line=$(sed -n 's/^ExecStart=//p' $unit)
    user=$(sed -n 's/^User=//p' $unit)
    unwatched=$(tr , '\n' </calls | grep -vE "$watched" | paste -sd ,)
    rm -f /tmp/calls.log
    # shellcheck disable=SC2086 # the words of the unit's line
    setpriv --reuid "$user" --regid "$user" --init-groups --no-new-privs --bounding-set=-all \
        strace -D -f -q --seccomp-bpf -o /tmp/calls.log -e "trace=!$unwatched" \
        -e "inject=!$(cat /calls):error=EPERM" $line >/dev/null 2>/tmp/server.log &
    server=$!
    tries=0
    # The admin key is written when all else is up.
    until [ -s /var/lib/postrider/admin.key ] &&
        postrider doctor --quick --config /etc/postrider/postrider.toml >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "the server is not ready"
        kill -0 $server 2>/dev/null || fail "the server has ended"
        sleep 0.2
    done
}

stop() {
    kill -TERM $server
    wait $server || fail "the server ended badly"
    tries=0
    until grep -q "^$server +++ exited" /tmp/calls.log; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "strace has not ended"
        sleep 0.1
    done
    check_calls
}

# What the unit would have refused.
check_calls() {
    grep -q ' mmap(' /tmp/calls.log || fail "strace saw no system call"
    ! grep INJECTED /tmp/calls.log || fail "the unit refuses these system calls"
    families=$(sed -n 's/^RestrictAddressFamilies=//p' $unit | tr ' ' '|')
    ! grep -E ' socket(pair)?\(' /tmp/calls.log | grep -vE "\(($families)," ||
        fail "the unit refuses these sockets"
    ! grep -E ' mmap\(.*PROT_WRITE\|PROT_EXEC| (pkey_)?mprotect\(.*PROT_EXEC' /tmp/calls.log ||
        fail "the unit refuses memory that is writable and executable"
}

ask() {
    runuser -u postrider -- postrider "$@" --data-dir /var/lib/postrider
}

echo "== install $installed"
dpkg --install /postrider.deb
[ "$(dpkg-query -W -f '${Status} ${Version}' postrider)" = "install ok installed $installed" ] ||
    fail "dpkg knows another state"
getent passwd postrider >/dev/null || fail "there is no user"
case $(getent passwd postrider) in *nologin | *false) ;; *) fail "the user can log in" ;; esac
[ "$(stat -c '%U %a' /var/lib/postrider)" = "postrider 700" ] || fail "the data directory is open"
[ "$(stat -c '%U %a' /var/backups/postrider)" = "postrider 700" ] || fail "the backups are open"
[ "$(stat -c '%U:%G %a' /etc/postrider/postrider.toml)" = "root:postrider 640" ] ||
    fail "the configuration is open"
[ -L /etc/systemd/system/multi-user.target.wants/postrider.service ] || fail "the unit is not enabled"
dpkg --verify postrider || fail "files differ from the package"
postrider --version

echo "== start the unit's command, subscribe, send"
start
[ "$(stat -c '%U %a' /var/lib/postrider/admin.key)" = "postrider 600" ] || fail "the key is open"
grep -qF "$(cat /var/lib/postrider/admin.key)" /tmp/server.log && fail "the admin key is in the log"
ask subscriptions create https://hooks.example.com/ 'task.*' >/dev/null
ask send task.updated '{"status": "CUR"}' >/dev/null
ask deliveries list | grep -q dlv_ || fail "the event has no delivery"

echo "== back up, as docs/backup.md says, while the server runs, and restore the copy"
ask backup --to /var/backups/postrider/monday || fail "no backup"
[ -s /var/backups/postrider/monday/main.db ] || fail "the backup has no main.db"
[ "$(stat -c '%U' /var/backups/postrider/monday/main.db)" = postrider ] || fail "the copy is another user's"
# The service may write there too, which no service manager tries here.
grep -qx 'ReadWritePaths=-/var/backups/postrider' /lib/systemd/system/postrider.service ||
    fail "the unit cannot write backups"
runuser -u postrider -- postrider restore --from /var/backups/postrider/monday --data-dir /var/lib/postrider/restored ||
    fail "the backup cannot be restored"
rm -r /var/lib/postrider/restored

# The first example of a client's README: a receiver, a subscription, an event.
first_webhook() {
    client=$1
    folder=$2
    shift 2
    from=$(date +%s)
    told=$(cd "$folder" && timeout 300 env POSTRIDER_SERVER=http://127.0.0.1:8080 \
        POSTRIDER_KEY="$(cat /var/lib/postrider/admin.key)" "$@" 2>&1) || fail "$client: $told"
    case $told in *"verified dlv_"*) ;; *) fail "$client: no webhook arrived: $told" ;; esac
    echo "$client: the first webhook after $(($(date +%s) - from)) s, $(($(date +%s) - began)) s after the trial began"
}

if [ -d /clients ]; then
    echo "== the first webhook by each client"
    # The receivers of the examples are on loopback, which a server does not contact unless it is told to.
    sed -i 's|^#allow = \[\]|allow = ["127.0.0.0/8"]\nallow_http = true|' /etc/postrider/postrider.toml
    stop
    start
    first_webhook rust /clients/rust ./first_webhook
    first_webhook typescript /clients/typescript node first.js
    for wheel in /clients/python/*.whl; do python3 -m zipfile -e "$wheel" /clients/python/packages; done
    first_webhook python /clients/python env PYTHONPATH=packages python3 first.py
    export HOME=/clients GOFLAGS=-mod=mod GOPROXY=off
    first_webhook go /clients/go/example go run .
    # The purge below looks for what is left.
    rm -rf /clients
fi

echo "== upgrade to $next over changed configuration, while it runs"
echo '# changed by the administrator' >>/etc/postrider/postrider.toml
dpkg --install /next.deb
[ "$(dpkg-query -W -f '${Version}' postrider)" = "$next" ] || fail "it is not upgraded"
grep -q 'changed by the administrator' /etc/postrider/postrider.toml || fail "configuration is lost"
[ "$(stat -c '%U:%G %a' /etc/postrider/postrider.toml)" = "root:postrider 640" ] ||
    fail "the configuration is open after the upgrade"
stop
start
ask deliveries list | grep -q dlv_ || fail "the delivery did not outlast the upgrade"
stop

echo "== remove"
dpkg --remove postrider
[ ! -e /usr/bin/postrider ] || fail "the program is left"
[ -e /etc/postrider/postrider.toml ] || fail "remove took the configuration"
[ -e /var/lib/postrider/admin.key ] || fail "remove took the data"

echo "== install again: data and configuration are found again"
dpkg --install /next.deb
start
ask deliveries list | grep -q dlv_ || fail "the delivery did not outlast the removal"
stop

echo "== purge"
dpkg --purge postrider
[ -s /var/backups/postrider/monday/main.db ] || fail "purge took a backup"
left=$(find / -xdev \( -path /proc -o -path /tmp -o -path /var/backups/postrider -o -path /var/lib/dpkg -o -path /var/log \) -prune \
    -o -iname '*postrider*' -print | grep -v '^/postrider.deb$' || true)
[ -z "$left" ] || fail "purge left: $left"
echo "== done"
