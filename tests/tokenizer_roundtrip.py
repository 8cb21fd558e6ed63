#!/usr/bin/env python3
"""Compares a data set made by `chiron prepare` with Hugging Face's tokenizers library (PyPI: tokenizers).

    chiron prepare TEXT --train-bpe 2048 --out DIR
    tests/tokenizer_roundtrip.py TEXT DIR

TEXT: the one file the set was made of. The tokenizer.json must load, give the same ids for the whole text as the set
holds, decode them to the text, and hold the same merges that the library's own trainer learns.
"""
import json
import struct
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def read_shard(path):
    data = open(path, "rb").read()
    magic, version, width, tokens = struct.unpack_from("<8sIIq", data)
    assert (magic, version) == (b"CHIRONTK", 1), path
    return struct.unpack_from("<%d%s" % (tokens, {2: "H", 4: "i"}[width]), data, 256)


def main(text_path, folder):
    text = open(text_path, encoding="utf-8", newline="").read()
    dataset = json.load(open(f"{folder}/dataset.json", encoding="utf-8"))
    ours = [id for shard in dataset["shards"] for id in read_shard(f"{folder}/{shard['file']}")]
    assert len(ours) == dataset["tokens"] and dataset["text_bytes"] == len(text.encode())

    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    assert tokenizer.get_vocab_size() == dataset["vocab_size"]
    theirs = tokenizer.encode(text).ids + [tokenizer.token_to_id("<|endoftext|>")]
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    assert ours == theirs, f"first difference at token {at}"
    assert tokenizer.decode(ours) == text

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    other = Tokenizer(models.BPE())
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    other.train_from_iterator(
        [text],
        trainers.BpeTrainer(vocab_size=dataset["vocab_size"] - 1, min_frequency=2, initial_alphabet=alphabet,
                            show_progress=False))
    merges = json.load(open(f"{folder}/tokenizer.json", encoding="utf-8"))["model"]["merges"]
    assert merges == [list(m) for m in json.loads(other.to_str())["model"]["merges"]], "the merges differ"
    print(f"{len(ours)} tokens, {len(merges)} merges: equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
