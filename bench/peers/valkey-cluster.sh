#!/usr/bin/env bash
# A Valkey 9.1 cluster of two primaries on loopback, each with the durability that Portolan always has
# (`appendonly yes`, `appendfsync always`). The processes only: its user assigns the slots.
#
#   valkey-cluster.sh install     take the server as valkey.sh does
#   valkey-cluster.sh start       start both, wait until they answer
#   valkey-cluster.sh stop        end them, by pid
#   valkey-cluster.sh wipe        stop, and remove their data
#   valkey-cluster.sh pids        their process ids
#   valkey-cluster.sh endpoints   their addresses, separated by a comma
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/common.sh"

root=$peers_root/valkey-cluster
server=$peers_root/valkey/valkey-server
# The cluster's own bus is 10,000 above.
ports=(16401 16402)

answers() { (ping "$1"); }

ping() {
  exec 3<>"/dev/tcp/127.0.0.1/$1"
  printf 'PING\r\n' >&3
  IFS= read -r -t 1 answer <&3
  exec 3>&-
  [ "${answer%$'\r'}" = +PONG ]
}

start() {
  local port
  for port in "${ports[@]}"; do
    running "$root/$port" && continue
    mkdir -p "$root/$port/data"
    start_process "$root/$port" "$server" --port "$port" --bind 127.0.0.1 \
      --cluster-enabled yes --cluster-node-timeout 5000 \
      --dir "$root/$port/data" --appendonly yes --appendfsync always --save ''
  done
  for port in "${ports[@]}"; do wait_until 20 answers "$port"; done
}

stop() {
  local port
  for port in "${ports[@]}"; do stop_process "$root/$port"; done
}

case ${1:-} in
  install) "$here/valkey.sh" install ;;
  start) start ;;
  stop) stop ;;
  wipe) stop && rm -rf "$root" ;;
  pids) for port in "${ports[@]}"; do cat "$root/$port/pid"; done ;;
  endpoints) echo "127.0.0.1:${ports[0]},127.0.0.1:${ports[1]}" ;;
  version) "$server" --version ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
