#!/usr/bin/env python3
"""Reads a sharded checkpoint with PyTorch's reader of distributed checkpoints and compares every tensor with one put
together by hand from the shards.

    tests/dcp_read.py [--plain] STEP_FOLDER

By hand: each shard is opened as what it is, a safetensors file, and its tensors are copied to their offsets; none may
overlap, none may be missing. --plain does no more than that, and needs nothing but Python. PyTorch's part needs torch
(2.7 or newer) and safetensors.
"""

import json
import struct
import sys
from pathlib import Path

SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "U8": 1}


class Tensor:
    """A whole tensor: its type, and its shape and bytes as far as shards have come."""

    def __init__(self, kind):
        self.kind = kind
        self.chunks = []  # offsets, shape, bytes

    @property
    def shape(self):
        return [max(o[i] + s[i] for o, s, _ in self.chunks) for i in range(len(self.chunks[0][0]))]

    def assemble(self):
        """The bytes, row-major. ValueError where two chunks overlap or none is."""
        size, shape = SIZES[self.kind], self.shape
        total = size
        for n in shape:
            total *= n
        out, seen = bytearray(total), bytearray(total // size)
        for offsets, part, data in self.chunks:
            line = part[-1] if part else 1
            for row in range(len(data) // (line * size)):
                at, rest, step = (offsets[-1] if part else 0), row, shape[-1] if shape else 1
                for dim in range(len(part) - 2, -1, -1):
                    at += (offsets[dim] + rest % part[dim]) * step
                    rest //= part[dim]
                    step *= shape[dim]
                if any(seen[at:at + line]):
                    raise ValueError("two chunks overlap")
                seen[at:at + line] = b"\1" * line
                out[at * size:(at + line) * size] = data[row * line * size:(row + 1) * line * size]
        if not all(seen):
            raise ValueError(f"{seen.count(0)} of its {len(seen)} elements are in no shard")
        return bytes(out)


def read_shards(folder):
    """Name -> Tensor, of all shards."""
    tensors = {}
    for file in sorted(Path(folder).glob("shard-*.safetensors")):
        data = file.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        metadata = header.pop("__metadata__")
        if metadata["format"] != "pt" or metadata["DCP_VERSION"] != "1.0":
            raise ValueError(f"{file}: __metadata__ is {metadata}")
        offsets = json.loads(metadata["DCP_SHARDING_INFO"])
        if offsets.keys() != header.keys():
            raise ValueError(f"{file}: offsets of {sorted(offsets)}, tensors {sorted(header)}")
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            tensor = tensors.setdefault(name, Tensor(entry["dtype"]))
            if tensor.kind != entry["dtype"]:
                raise ValueError(f"{file}: {name} is {entry['dtype']}, elsewhere {tensor.kind}")
            tensor.chunks.append((offsets[name]["saved_offsets"], entry["shape"],
                                  data[8 + length + begin:8 + length + end]))
    return tensors


def assemble_all(folder):
    """Name -> (type, shape, bytes)."""
    whole = {}
    for name, tensor in read_shards(folder).items():
        try:
            whole[name] = (tensor.kind, tensor.shape, tensor.assemble())
        except ValueError as error:
            raise ValueError(f"{folder}: {name}: {error}") from error
    return whole


def compare_with_pytorch(folder, whole):
    """The number of tensors that differ from what PyTorch reads."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    kinds = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16,
             "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8}
    state = {name: torch.full(shape, 77, dtype=kinds[kind]) for name, (kind, shape, _) in whole.items()}
    reader = HuggingFaceStorageReader(path=str(folder))
    known = reader.read_metadata().state_dict_metadata
    different = len(known.keys() ^ whole.keys())
    dcp.load(state, storage_reader=HuggingFaceStorageReader(path=str(folder)))
    for name, (kind, shape, data) in whole.items():
        mine = torch.frombuffer(bytearray(data), dtype=kinds[kind]).reshape(shape)
        if list(known[name].size) != shape or not torch.equal(mine, state[name]):
            print(f"{name}: differs")
            different += 1
    print(f"PyTorch {torch.__version__}")
    return different


def main(words):
    plain = "--plain" in words
    folders = [word for word in words if word != "--plain"]
    if len(folders) != 1:
        sys.exit(__doc__)
    whole = assemble_all(folders[0])
    if not whole:
        sys.exit(f"{folders[0]}: no shards")
    different = 0 if plain else compare_with_pytorch(folders[0], whole)
    print(f"{len(whole)} tensors, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
