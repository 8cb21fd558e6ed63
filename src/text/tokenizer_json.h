#pragma once

#include <string>

#include "text/bpe.h"

namespace chiron {

/// Reads the text of a Hugging Face tokenizer.json (`path` is for messages). Understood: byte-level BPE with GPT-2's
/// split pattern and added tokens that match exactly. Anything else that would change ids is a DataError that names it.
BpeModel read_tokenizer_json(const std::string& text, const std::string& path);

/// The reverse: a file that Hugging Face's library loads, with equal ids.
std::string write_tokenizer_json(const BpeModel& model);

}  // namespace chiron
