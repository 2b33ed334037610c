"""Every fault by its name: what a torture run may do to a cluster, one at a time or several at once."""

from tests.torture import node_faults, server_faults
from tests.torture.wounds import Arena, Fault, NodeHost, Unable, Wound

__all__ = ["FAULTS", "Arena", "Fault", "NodeHost", "Unable", "Wound"]

FAULTS: dict[str, Fault] = {fault.name: fault for fault in (*node_faults.FAULTS, *server_faults.FAULTS)}
