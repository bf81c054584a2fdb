#!/usr/bin/python3
"""The BMC takes part in a mode change: it power-cycles the host where only that makes the card load its mode.

Install, as root, on the host itself:

    install -D -m 0755 redfish.py /etc/linkwright/hooks/power-cycle/50-redfish
    install -m 0600 /dev/null /etc/linkwright/bmc.json
    /etc/linkwright/bmc.json: {"url": "https://bmc.example", "user": "linkwright", "password": "…",
                               "system": "/redfish/v1/Systems/1", "ca": "/etc/linkwright/bmc-ca.pem"}

Answers: 0 the BMC accepted the power cycle, 75 it does not answer now, 1 it refused or is not set up. The agent
has released every interface and stored what it does before it asks; the power may go while this script runs.
Redfish (DSP2046): ComputerSystem.Reset with PowerCycle; ForceRestart leaves the power on, so it is no substitute.
"""

import base64
import json
import os
import pathlib
import ssl
import sys
import urllib.error
import urllib.request

SETTINGS = pathlib.Path("/etc/linkwright/bmc.json")
LIMIT_S = 20


def main() -> int:
    change = json.load(sys.stdin)
    try:
        if SETTINGS.stat().st_mode & 0o077:
            print(f"{SETTINGS} can be read by others: chmod 600 {SETTINGS}")
            return 1
        bmc = json.loads(SETTINGS.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"the BMC is not set up: {error}")
        return 1
    try:
        system = ask(bmc, bmc["system"])
        reset = system["Actions"]["#ComputerSystem.Reset"]
        allowed = reset.get("ResetType@Redfish.AllowableValues", ["PowerCycle"])
        if "PowerCycle" not in allowed:
            print(f"the BMC offers no PowerCycle, only {', '.join(allowed)}")
            return 1
        ask(bmc, reset["target"], {"ResetType": "PowerCycle"})
    except urllib.error.HTTPError as error:
        print(f"the BMC refused: {error.code} {error.reason}")
        return 1
    except (OSError, TimeoutError) as error:
        print(f"the BMC does not answer: {error}")
        return os.EX_TEMPFAIL
    except (KeyError, ValueError) as error:
        print(f"the BMC's answer cannot be used: {error}")
        return 1
    print(f"power cycle of {change['host']} accepted")
    return 0


def ask(bmc: dict, path: str, body: dict | None = None) -> dict:
    """GET, or POST with a body; the JSON of the answer."""
    password = base64.b64encode(f"{bmc['user']}:{bmc['password']}".encode()).decode()
    request = urllib.request.Request(
        bmc["url"].rstrip("/") + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Basic {password}", "Content-Type": "application/json"},
    )
    trusted = ssl.create_default_context(cafile=bmc.get("ca"))
    with urllib.request.urlopen(request, timeout=LIMIT_S, context=trusted) as answer:
        text = answer.read()
    return json.loads(text) if text else {}


if __name__ == "__main__":
    sys.exit(main())
