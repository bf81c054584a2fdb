"""What is on this host: adapters, ports, functions, their modes and who holds them. Read-only.

``observe`` is the one entry. It reads sysfs once (``functions``), groups the functions into adapters and ports
(``adapters``), asks the kernel for links, addresses and routes (``netdevs``), finds who holds each function
(``holders``, ``processes``), reads the firmware of all adapters side by side (``cards``), and puts it together.
"""

from .observe import observe

__all__ = ["observe"]
