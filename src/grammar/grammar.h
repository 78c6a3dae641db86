// Structured output: a grammar is compiled once, and then says for every text which tokens may come
// next. The way: a front end turns its source into rules over characters (expr.h), these become a
// network of automata over UTF-8 bytes that call each other (network.h), which is made
// deterministic while it is used (automaton.h) and walked with the trie of a vocabulary
// (vocabulary.h); a Matcher (matcher.h) is one sequence's place in it. Pure: no I/O, threads or
// clocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "grammar/limits.h"
#include "grammar/network.h"
#include "staffel/grammar.h"
#include "staffel/status.h"

namespace staffel::grammar {

// Immutable; used from any thread.
class Grammar {
 public:
  Grammar(Network network, const Limits& limits) : network_(std::move(network)), limits_(limits) {}
  const Network& network() const { return network_; }
  const Limits& limits() const { return limits_; }

 private:
  Network network_;
  Limits limits_;
};

// InvalidArgument: the source is malformed, uses what is not supported (the message names it and
// where it stands), or is satisfied by no text. ResourceExhausted: it is larger than the limits.
Result<std::shared_ptr<const Grammar>> Compile(const GrammarSpec& spec, const Limits& limits = {});

}  // namespace staffel::grammar
