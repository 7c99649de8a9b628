#!/usr/bin/env bash
# A real etcd 3.6 of three nodes on loopback, at its defaults: every commit is on a majority's disk.
#
#   etcd.sh install     build it from the Go module proxy (needs go; a minute)
#   etcd.sh start       start three nodes, wait until all answer
#   etcd.sh stop        end them, by pid
#   etcd.sh wipe        stop, and remove their data
#   etcd.sh pids        their process ids, one a line
#   etcd.sh endpoints   their client addresses, separated by commas
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/common.sh"

root=$peers_root/etcd
client_ports=(12379 22379 32379)
peer_ports=(12380 22380 32380)

endpoints() {
  local ports=("${client_ports[@]/#/127.0.0.1:}")
  (IFS=, && echo "${ports[*]}")
}

install() {
  mkdir -p "$root/bin"
  if [ "$root/bin/etcd" -nt "$here/etcd/go.mod" ] && [ -x "$root/bin/etcdctl" ]; then return; fi
  (
    cd "$here/etcd"
    export CGO_ENABLED=0
    go build -o "$root/bin/etcd" go.etcd.io/etcd/server/v3
    go build -o "$root/bin/etcdctl" go.etcd.io/etcd/etcdctl/v3
  )
}

start() {
  local cluster='' i
  for i in 0 1 2; do cluster+="n$i=http://127.0.0.1:${peer_ports[i]},"; done
  for i in 0 1 2; do
    if running "$root/n$i"; then continue; fi
    start_process "$root/n$i" "$root/bin/etcd" --name "n$i" --data-dir "$root/n$i/data" \
      --listen-client-urls "http://127.0.0.1:${client_ports[i]}" \
      --advertise-client-urls "http://127.0.0.1:${client_ports[i]}" \
      --listen-peer-urls "http://127.0.0.1:${peer_ports[i]}" \
      --initial-advertise-peer-urls "http://127.0.0.1:${peer_ports[i]}" \
      --initial-cluster "${cluster%,}" --initial-cluster-token portolan-bench --log-level warn
  done
  wait_until 20 "$root/bin/etcdctl" --endpoints "$(endpoints)" endpoint health
}

stop() { for i in 0 1 2; do stop_process "$root/n$i"; done; }

case ${1:-} in
  install) install_alone "$root" ;;
  start) start ;;
  stop) stop ;;
  wipe) stop && rm -rf "$root"/n[012] ;;
  pids) cat "$root"/n[012]/pid ;;
  endpoints) endpoints ;;
  version) "$root/bin/etcd" --version | head -1 ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
