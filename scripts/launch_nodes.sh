#!/usr/bin/env bash
# Start one training on several machines: run this on every one of them, with the same arguments.
#
#     scripts/launch_nodes.sh NODES ENDPOINT ID [torchrun options] -- SCRIPT [arguments]
#     scripts/launch_nodes.sh 2 10.0.0.1:29500 run7 --nproc-per-node 4 -- scripts/train_ddp.py --checkpoint /disk/run.pt
#
# ENDPOINT is host:port of any one of the machines, ID a name for this training.  No machine needs a number: they meet
# at ENDPOINT and agree there.  MAX_RESTARTS (3) says how often all ranks restart after one has died,
# INTERFACE which network card to use (default: the system's choice), ADDRESS how the others reach this machine.
set -euo pipefail

usage() {
    sed -n 's/^# \{0,1\}//p' "$0" | sed -n '3,5p' >&2
    exit 2
}

(($# >= 5)) || usage
nodes=$1 endpoint=$2 id=$3
shift 3
[[ $nodes =~ ^[1-9][0-9]*(:[1-9][0-9]*)?$ && $endpoint == *:* ]] || usage

options=()
while (($#)) && [[ $1 != -- ]]; do
    options+=("$1")
    shift
done
(($# >= 2)) || usage
shift

if [[ -n ${INTERFACE:-} ]]; then
    export GLOO_SOCKET_IFNAME=$INTERFACE NCCL_SOCKET_IFNAME=$INTERFACE
fi
if [[ -n ${ADDRESS:-} ]]; then
    options+=(--local-addr "$ADDRESS")
fi
# the machine that owns ENDPOINT keeps the store where all meet; torchrun itself only compares host names
is_host=false
if "${PYTHON:-python}" -c 'import socket, sys; socket.socket().bind((sys.argv[1], 0))' "${endpoint%:*}" 2>/dev/null; then
    is_host=true
fi
# each start of the ranks gets its own store: the shared one still holds the addresses of dead ranks (torch 2.13)
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes "$nodes" --rdzv-backend c10d --rdzv-endpoint "$endpoint" --rdzv-id "$id" --rdzv-conf "is_host=$is_host" \
    --max-restarts "${MAX_RESTARTS:-3}" ${options[@]+"${options[@]}"} "$@"
