"""Generated stubs of the etcd calls that crawlring makes; see etcd.proto."""

from .etcd_pb2 import *  # noqa: F403
from .etcd_pb2_grpc import *  # noqa: F403
