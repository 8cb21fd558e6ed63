#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

/// What several ranks do as one: small numbers and texts of the host go round. Collective; `s` is any stream of the
/// rank, whose host does the work. A group of one talks to nobody.
namespace chiron {

/// The largest of all ranks' numbers.
int64_t largest(Communicator& c, Stream& s, int64_t mine);
/// All ranks' texts, by rank.
std::vector<std::string> gather_texts(Communicator& c, Stream& s, const std::string& mine);

/// Calls f() on every rank, and returns when it has ended on all. What it throws on one is thrown on all: where it was
/// thrown as it is, elsewhere as an Error of the same code that names the rank. So all ranks end for the same reason.
/// A CommError of f's passes: others have heard of it.
void together(Communicator& c, Stream& s, const std::function<void()>& f);

}  // namespace chiron
