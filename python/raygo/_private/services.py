"""The machine's address, under the name that libraries use."""

from __future__ import annotations

from raygo.util import get_node_ip_address

__all__ = ["get_node_ip_address"]
