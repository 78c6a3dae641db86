// Bounds on what a grammar may cost. Texts come from clients: whatever they say, compiling ends
// within these bounds or with an error that names the one that was hit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace staffel::grammar {

struct Limits {
  size_t source_bytes = 8u << 20;   // of a grammar's or schema's text
  int json_depth = 128;             // nesting of a JSON text
  int nesting = 200;                // groups in a regular expression or rule
  int schema_depth = 160;           // subschemas within each other, references followed
  int64_t expressions = 1'500'000;  // nodes that front ends make
  int64_t automaton_states = 4'000'000;
  int64_t dfa_states = 40'000;       // of one automaton that is made deterministic as a whole
  int schema_combinations = 5'000;   // conjunctions of subschemas, alternatives multiplied
  int64_t shortest_bytes = 1 << 18;  // of the shortest text that a grammar has
  int64_t configurations = 4096;     // ways that a text can be read at once (ambiguity)
  size_t cache_bytes = 32u << 20;    // of one grammar's states and masks for one vocabulary
};

}  // namespace staffel::grammar
