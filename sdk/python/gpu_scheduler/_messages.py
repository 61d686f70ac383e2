"""Message classes of the service ``algogpu.GPUScheduler``.

They are made at run time from a committed descriptor set (``algogpu.binpb``), in a descriptor pool of their own,
instead of from generated modules, for two reasons. Generated modules refuse a protobuf runtime that is older than
their generator, and this package works with every runtime from 3.20 on. And clients of this service often have
generated modules of their own: two files that define ``algogpu.TaskRequest`` cannot be in the default pool.
"""

import pkgutil
from typing import Any, Dict

MISSING = ("GPUClient speaks gRPC, and {name} is not installed; install it with "
           "`pip install 'gpu-scheduler-client[grpc]'`, or use gpu_scheduler.Client, which needs no gRPC")


def load() -> Dict[str, Any]:
    """The message classes by their names. Raises ImportError with a sentence where grpcio or protobuf is missing."""
    try:
        import grpc  # noqa: F401
    except ImportError as missing:
        raise ImportError(MISSING.format(name="grpcio")) from missing
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as missing:
        raise ImportError(MISSING.format(name="protobuf")) from missing
    data = pkgutil.get_data(__package__, "algogpu.binpb")
    assert data is not None
    pool = descriptor_pool.DescriptorPool()
    found = {}
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
        for message in file.message_type:
            descriptor = pool.FindMessageTypeByName(file.package + "." + message.name)
            if hasattr(message_factory, "GetMessageClass"):  # Since protobuf 4.22.
                found[message.name] = message_factory.GetMessageClass(descriptor)
            else:
                found[message.name] = message_factory.MessageFactory(pool).GetPrototype(descriptor)
    return found
