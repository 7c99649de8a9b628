# Sourced by run.sh: a deployment of three sites of three nodes each, as processes on this machine.
#
# Node n of site s has the address 127.NET.s.n, with the usual ports. Every node keeps its data in a
# folder under target/ (which git ignores), so on the disk that the sources lie on; its log goes to
# DIR/nodes. Nothing outlives the run but the logs.

deployment_sites=3
deployment_nodes=3
# Two runs at once are unlikely to meet; where they do, the second one's ports do not open, and it reports that.
deployment_net=$((64 + $$ % 128))
deployment_data=
deployment_pids=()

# address SITE NODE PORT
address() { echo "127.$deployment_net.$1.$2:$3"; }

# ask SITE NODE COMMAND... : portolan's command line, at one node.
ask() {
  local server
  server=$(address "$1" "$2" 7380)
  shift 2
  "$portolan" "$@" --server "$server"
}

# start_node SITE NODE LOGS : the first node of the first site begins the deployment, the other sites' first
# nodes join it, and the rest joins its site's first.
start_node() {
  local site=$1 node=$2 logs=$3 join=()
  if [ "$node" -gt 1 ]; then
    join=(--join "$(address "$site" 1 7381)")
  elif [ "$site" -gt 1 ]; then
    join=(--join "$(address 1 1 7381)")
  fi
  env -u PORTOLAN_CONFIG "$portolan" serve --site "site-$site" --node "$node" "${join[@]}" \
    --data "$deployment_data/$site-$node" --admin off \
    --redis "$(address "$site" "$node" 7379)" --grpc "$(address "$site" "$node" 7380)" \
    --peer "$(address "$site" "$node" 7381)" >"$logs/$site-$node.log" 2>&1 </dev/null &
  deployment_pids+=($!)
}

# still_running LOGS : fails with the log of a node that has ended.
still_running() {
  local index pid
  for index in "${!deployment_pids[@]}"; do
    pid=${deployment_pids[$index]}
    if ! kill -0 "$pid" 2>/dev/null; then
      local name=$((index / deployment_nodes + 1))-$((index % deployment_nodes + 1))
      tail -n 3 "$1/$name.log" >&2
      fail "node $name has ended; its log is $1/$name.log"
    fi
  done
}

# slots_held : a line for each site that the first one lists: its name, its nodes, its slots.
slots_held() {
  ask 1 1 site list 2>/dev/null | awk 'NR > 1 { print $2, $3, $4 }'
}

# is_whole : every site has all its nodes and holds slots, and all slots are held.
is_whole() {
  awk -v sites="$deployment_sites" -v nodes="$deployment_nodes" '
    $2 == nodes && $3 > 0 { whole++ } { slots += $3 }
    END { exit !(whole == sites && slots == 16384) }' <<<"$1"
}

# wait_for WHAT LOGS COMMAND... : twice a second, for two minutes.
wait_for() {
  local what=$1 logs=$2 tries
  shift 2
  for ((tries = 0; tries < 240; tries++)); do
    if "$@"; then return 0; fi
    still_running "$logs"
    sleep 0.5
  done
  fail "$what: not after two minutes; the nodes' logs are in $logs"
}

# is_settled : whole, and as it was when last asked, four times in a row.
deployment_before=
deployment_same=0
is_settled() {
  local now
  now=$(slots_held || true)
  if [ "$now" = "$deployment_before" ] && is_whole "$now"; then
    deployment_same=$((deployment_same + 1))
  else
    deployment_same=0
  fi
  deployment_before=$now
  [ "$deployment_same" -ge 4 ]
}

# all_know_keyspaces : every node of every site has heard of both.
all_know_keyspaces() {
  local site node listed
  for ((site = 1; site <= deployment_sites; site++)); do
    for ((node = 1; node <= deployment_nodes; node++)); do
      listed=$(ask "$site" "$node" keyspace list 2>/dev/null) || return 1
      [[ $listed == *local:* && $listed == *global:* ]] || return 1
    done
  done
}

answers() { ask 1 1 site list >/dev/null 2>&1; }

# start_deployment LOGS : when it returns the deployment is whole, and `hosts` names its Redis ports.
start_deployment() {
  local logs=$1 site node of_site
  mkdir -p "$here/target" "$logs"
  deployment_data=$(mktemp -d "$here/target/deployment-XXXXXX")
  echo "starting $deployment_sites sites of $deployment_nodes nodes ..." >&2
  for ((site = 1; site <= deployment_sites; site++)); do
    for ((node = 1; node <= deployment_nodes; node++)); do
      start_node "$site" "$node" "$logs"
    done
  done
  wait_for "the first node answers" "$logs" answers
  wait_for "all nodes are there and the slots are shared out" "$logs" is_settled
  ask 1 1 keyspace create local --prefix local: --scope site >/dev/null || fail "no keyspace local"
  ask 1 1 keyspace create global --prefix global: --scope global >/dev/null || fail "no keyspace global"
  wait_for "all nodes know the keyspaces" "$logs" all_know_keyspaces
  hosts=
  for ((site = 1; site <= deployment_sites; site++)); do
    of_site=
    for ((node = 1; node <= deployment_nodes; node++)); do
      of_site+=${of_site:+,}$(address "$site" "$node" 7379)
    done
    hosts+=${hosts:+;}$of_site
  done
  ask 1 1 site list >&2
}

# stop_deployment : ends the nodes that were started, by their process ids, insists after ten seconds, and
# removes their data.
stop_deployment() {
  local pid tries=0
  for pid in "${deployment_pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${deployment_pids[@]}"; do
    while kill -0 "$pid" 2>/dev/null && [ $((tries++)) -lt 100 ]; do sleep 0.1; done
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  deployment_pids=()
  if [ -n "$deployment_data" ]; then rm -rf "$deployment_data"; fi
}
