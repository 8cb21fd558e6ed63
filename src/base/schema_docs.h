#pragma once

#include <string>

#include "base/schema.h"

namespace chiron {

/// Every option with its default, what is allowed and its sentences, for a terminal of 100 columns.
std::string schema_text(const Schema& schema);

/// A JSON Schema (draft 2020-12) of the document, for editors.
std::string schema_json(const Schema& schema, const std::string& title);

/// A Markdown table per group: option, default, allowed, whether it may change on resume, meaning.
std::string schema_markdown(const Schema& schema);

/// A YAML document that lists every option under its sentences. Values that differ from the default stand as they are;
/// the others are comments that show the default.
std::string schema_starter(const Schema& schema);

/// Breaks a text at spaces into lines of at most `width` columns, each after `indent`.
std::string wrap(const std::string& text, size_t width, const std::string& indent);

}  // namespace chiron
