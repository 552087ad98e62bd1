"""What one may ask about the session and this machine."""
from __future__ import annotations

import os
import socket
from typing import Any

from raygo import _session
from raygo._calls import call

_ANYWHERE = "192.0.2.1:9"      # an address for documentation: routed like any other, and nothing is sent there


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """The names of live actors that have one.

    Parameters
    ----------
    all_namespaces : bool
        Those of all namespaces, as dicts with "name" and "namespace"; otherwise plain names of the session's own.
    """
    namespace = "" if all_namespaces else _session.get().namespace
    rows = call("actor.list_named", {"namespace": namespace})
    if all_namespaces:
        return [{"name": row["name"], "namespace": row["namespace"]} for row in rows]
    return [row["name"] for row in rows if row["namespace"] == namespace]


def get_node_ip_address(address: str | None = None) -> str:
    """The address of this machine as the session knows it.

    Parameters
    ----------
    address : str, optional
        Without a session: the address of a host, "ip:port", through which this machine's own is found.
    """
    if address is None and _session.current is not None:
        return _session.current.node_ip
    host, _, port = (address or _ANYWHERE).rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))      # picks the route; a datagram socket sends nothing by connecting
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return "127.0.0.1"


def get_node_instance_id() -> str:
    """The cloud's name of this machine; empty where there is none."""
    return os.environ.get("RAY_CLOUD_INSTANCE_ID", "")
