#!/bin/sh
# Ansible takes part in a mode change: a playbook prepares the fabric (a switch port, a subnet manager's partitions)
# before the host is interrupted, and another one checks or configures the host after the mode is verified.
#
# Install, as root:
#   install -D -m 0755 ansible.sh /etc/linkwright/hooks/pre-drain/30-ansible
#   install -D -m 0755 ansible.sh /etc/linkwright/hooks/post-verify/30-ansible
#   /etc/linkwright/playbooks/pre-drain.yaml and post-verify.yaml: your playbooks; one that is missing is skipped
#
# A playbook may take longer than a hook (60 s), so it runs as a unit of systemd of its own, and the hook answers 75
# until that has ended. What the change is about is in the variable file that the playbook gets (the hook's JSON).
#
# Answers: 0 the playbook ended well, 75 it still runs, 1 it failed (its log: journalctl -u NAME).
set -eu

playbook=/etc/linkwright/playbooks/$LINKWRIGHT_EVENT.yaml
[ -e "$playbook" ] || exit 0

unit=linkwright-$LINKWRIGHT_EVENT-$LINKWRIGHT_POLICY-$LINKWRIGHT_GENERATION
facts=/run/linkwright/$unit.json

case $(systemctl show --property=ActiveState --value "$unit") in
active | activating)
    echo "the playbook still runs: journalctl -fu $unit"
    exit 75
    ;;
failed)
    systemctl reset-failed "$unit" # the next try, after a person's retry, begins anew
    echo "the playbook failed: journalctl -u $unit"
    exit 1
    ;;
esac

if [ -e "$facts" ]; then # it ran and ended well
    rm "$facts"
    exit 0
fi
cat >"$facts"
systemd-run --quiet --unit="$unit" ansible-playbook --extra-vars "@$facts" "$playbook"
echo "the playbook was started: journalctl -fu $unit"
exit 75
