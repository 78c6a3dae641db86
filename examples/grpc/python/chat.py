#!/usr/bin/env python3
"""Asks a question over gRPC and prints the answer as it comes: chat.py HOST:PORT QUESTION"""
import os
import pathlib
import sys

import grpc

# Makes messages and stubs from the .proto file; `python3 -m grpc_tools.protoc` writes them to files instead.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "proto"))
pb, services = grpc.protos_and_services("inference.proto")


def main(target, question):
    key = os.environ.get("STAFFEL_API_KEY")
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    request = pb.ChatRequest(messages=[pb.ChatMessage(role="user", content=question)],
                             sampling=pb.SamplingParams(temperature=0, max_tokens=200))
    with grpc.insecure_channel(target) as channel:
        try:
            # With a timeout the server ends its work, too, when nobody waits for the answer any more.
            for response in services.InferenceStub(channel).Chat(request, metadata=metadata, timeout=120):
                for choice in response.choices:
                    print(choice.delta.content, end="", flush=True)
            print()
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
