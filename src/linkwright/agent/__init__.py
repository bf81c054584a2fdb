"""The host daemon: observe, plan, execute, recover; the HTTP API on a unix socket."""
