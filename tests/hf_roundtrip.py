#!/usr/bin/env python3
"""Compares Chiron with Hugging Face's transformers, in both directions, on small random models.

    tests/hf_roundtrip.py PROGRAM

For each model that transformers writes: Chiron's export of it, and of a short run that starts from it, must load in
transformers without missing or unexpected keys; the first has the same logits, and after each the likeliest
continuation is the same in both programs. Needs torch and transformers.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

GPT2 = dict(vocab_size=131, n_positions=64, n_embd=48, n_layer=2, n_head=4, initializer_range=0.3)
LLAMA = dict(vocab_size=131, max_position_embeddings=64, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16)

MODELS = {  # name: config, dtype, most bytes a file
    "gpt2 tied": (GPT2Config(**GPT2), torch.float32, "5GB"),
    "gpt2 untied, erf, sharded": (GPT2Config(**GPT2, tie_word_embeddings=False, activation_function="gelu"),
                                  torch.float32, "40KB"),
    "llama": (LlamaConfig(**LLAMA), torch.float32, "5GB"),
    "llama tied, biases, bf16": (LlamaConfig(**LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
                                 torch.bfloat16, "5GB"),
    "llama linear rope, f16": (LlamaConfig(**LLAMA, rope_scaling=dict(rope_type="linear", factor=2.0)),
                               torch.float16, "5GB"),
    "llama llama3 rope, wide heads, sharded": (LlamaConfig(**LLAMA, rope_theta=5e5, head_dim=16,
                                                           rope_scaling=LLAMA3_ROPE), torch.float32, "40KB"),
}
PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46]


def chiron(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"chiron {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def load(folder, kind):
    model, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {key: list(value) for key, value in info.items() if value}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    return model.eval()


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([PROMPT])).logits[0]


def continuation(model, tokens):
    ids = list(PROMPT)
    with torch.no_grad():
        for _ in range(tokens):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(PROMPT):]


def compare_continuation(program, where, model, what):
    said = chiron(program, "generate", where, "--prompt-ids", ",".join(map(str, PROMPT)), "--max-tokens", 24,
                  "--temperature", 0)
    ours, theirs = [int(word) for word in said.split(",")], continuation(model, 24)
    if ours != theirs:
        sys.exit(f"{what}: chiron continues with {ours}, transformers with {theirs}")


def check(program, name, config, dtype, size, folder):
    torch.manual_seed(1)
    kind = GPT2LMHeadModel if config.model_type == "gpt2" else LlamaForCausalLM
    source = kind(config).to(dtype)
    with torch.no_grad():
        for parameter in source.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    source.save_pretrained(folder / "source", max_shard_size=size)
    want = load(folder / "source", kind)

    chiron(program, "export", folder / "source", "--to", folder / "copy")
    copy = load(folder / "copy", kind)
    difference = (logits(copy) - logits(want)).abs().max().item()
    if difference > 1e-4:
        sys.exit(f"{name}: logits differ by {difference}")
    compare_continuation(program, folder / "source", want, name)

    (folder / "run.yaml").write_text(f"""
model: {{from: {folder / 'source'}}}
training: {{batch_size: 2, seq_len: 32, max_steps: 3, warmup_steps: 0, eval_every: 0}}
data: {{synthetic: true}}
""")
    chiron(program, "train", folder / "run.yaml", "--out", folder / "run")
    chiron(program, "export", folder / "run", "--to", folder / "trained")
    trained = load(folder / "trained", kind)
    if torch.equal(logits(trained), logits(want)):
        sys.exit(f"{name}: training changed nothing")
    compare_continuation(program, folder / "run", trained, name + ", trained")
    print(f"{name}: good, logits within {difference:.1e}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = str(Path(sys.argv[1]).resolve())
    for name, (config, dtype, size) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            check(program, name, config, dtype, size, Path(folder))


if __name__ == "__main__":
    main()
