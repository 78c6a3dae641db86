"""The gRPC API for the stock grpcio client: messages and stubs from proto/, made when this is imported."""
import sys

try:
    import grpc
    from grpc_status import rpc_status
except ImportError as error:
    raise ImportError("grpcio and its companions are missing; scripts/test.sh installs them into build/venv") from error
from google.rpc import error_details_pb2

from harness import PATIENCE, ROOT, Server, free_port

sys.path.insert(0, str(ROOT / "proto"))
pb, services = grpc.protos_and_services("inference.proto")


class GrpcServer(Server):
    """A server with a gRPC port."""

    def __init__(self, model, *options, **more):
        self.grpc_port = free_port()
        super().__init__(model, "--grpc-port", self.grpc_port, *options, **more)

    @property
    def target(self):
        return f"127.0.0.1:{self.grpc_port}"

    def channel(self, *options):
        """A connection of its own."""
        return grpc.insecure_channel(self.target, [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1), *options])


def stub(channel):
    return services.InferenceStub(channel)


def sampling(**fields):
    """Greedy and short unless said otherwise."""
    bias = fields.pop("logit_bias", {})
    params = pb.SamplingParams(**{"temperature": 0, "max_tokens": 16, **fields})
    for token, value in bias.items():
        params.logit_bias[int(token)] = value
    return params


def user(content):
    return pb.ChatMessage(role="user", content=content)


class Answer:
    """What the messages of an answer hold, joined."""

    def __init__(self, messages):
        self.messages = list(messages)
        self.choices = {}
        for message in self.messages:
            for choice in message.choices:
                self.choices.setdefault(choice.index, []).append(choice)

    def text(self, index=0):
        return "".join(c.delta.content if hasattr(c, "delta") else c.text for c in self.choices[index])

    def joined(self, field, index=0):
        return [item for c in self.choices[index] for item in getattr(c, field)]

    def finish(self, index=0):
        reasons = [c.finish_reason for c in self.choices[index]]
        assert not any(reasons[:-1]), f"a finish before the last message: {reasons}"
        return pb.FinishReason.Name(reasons[-1]).removeprefix("FINISH_REASON_").lower()

    def calls(self, index=0):
        calls = {}
        for part in (p for c in self.choices[index] for p in c.delta.tool_calls):
            name, arguments = calls.get(part.index, ("", ""))
            calls[part.index] = (name + part.name, arguments + part.arguments)
        return list(calls.values())

    @property
    def usage(self):
        assert not any(m.HasField("usage") for m in self.messages[:-1])
        return self.messages[-1].usage


def failure(call):
    """The error that a call ends with; `call` is a function, or a stream that is read to its end."""
    try:
        for _ in call() if callable(call) else call:
            pass
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call has not failed")


def details(error, kind):
    """A detail of an error, such as "BadRequest"; None if it has none."""
    status = rpc_status.from_call(error)
    for any_ in status.details if status else ():
        detail = getattr(error_details_pb2, kind)()
        if any_.Unpack(detail):
            return detail
    return None


def wrong_field(error):
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, (error.code(), error.details())
    return details(error, "BadRequest").field_violations[0].field
