"""Address and path of the servers that we start on this machine."""

LOOPBACK = "127.0.0.1"
"""The address is used, not `localhost`: for the name, clients try `[::1]` first, where another program may listen."""

STATUS = "/status"
"""The path of the web UI that shows the status of all datasets."""
