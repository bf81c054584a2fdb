#!/bin/sh
# Slurm takes part in a mode change: the node is drained before, and resumed after the mode is verified.
#
# Install, as root, on the host itself (it needs scontrol and squeue, and a Slurm user who may change nodes):
#   install -D -m 0755 slurm.sh /etc/linkwright/hooks/pre-drain/50-slurm
#   install -D -m 0755 slurm.sh /etc/linkwright/hooks/post-verify/50-slurm
#
# Answers: 0 no job runs (or: the node is resumed), 75 jobs still run, anything else: Slurm did not do it.
set -eu

node=${SLURM_NODE:-$LINKWRIGHT_HOST}
reason="linkwright: $LINKWRIGHT_POLICY generation $LINKWRIGHT_GENERATION to $LINKWRIGHT_LINK_MODE"

case $LINKWRIGHT_EVENT in
pre-drain)
    scontrol update nodename="$node" state=drain reason="$reason"
    jobs=$(squeue --noheader --nodelist="$node" --states=running,completing,suspended --format=%A | tr '\n' ' ')
    if [ -n "$jobs" ]; then
        echo "jobs still run on $node: $jobs"
        exit 75
    fi
    ;;
post-verify)
    # Only a node that was drained for this is resumed: somebody else's drain stays.
    if scontrol show node "$node" | grep -q "Reason=linkwright: "; then
        scontrol update nodename="$node" state=resume
    fi
    ;;
esac
