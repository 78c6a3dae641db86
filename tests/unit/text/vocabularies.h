// Small vocabularies for tests.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "staffel/tokenizer.h"
#include "text/bpe.h"
#include "text/utf8.h"

namespace staffel {

// The stored form of bytes in a byte-level vocabulary.
inline std::string ByteLevel(std::string_view bytes) {
  std::string stored;
  for (const char byte : bytes) AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(byte)), &stored);
  return stored;
}

// Byte-level BPE: 0 "<|endoftext|>", 1 "<|im_start|>", 2 "<|im_end|>", all control; 3 + b for byte
// b; then the products of the merges (given as bytes), then the extra tokens.
inline TokenizerSpec ByteVocabulary(
    const std::vector<std::pair<std::string, std::string>>& merges,
    const std::vector<std::pair<std::string, TokenType>>& extra = {},
    const std::string& pre = "smollm") {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = pre;
  const auto add = [&](const std::string& stored, TokenType type) {
    spec.tokens.push_back(stored);
    spec.types.push_back(type);
  };
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    add(name, TokenType::kControl);
  }
  for (int byte = 0; byte < 256; byte++) {
    add(ByteLevel(std::string(1, static_cast<char>(byte))), TokenType::kNormal);
  }
  for (const auto& [left, right] : merges) {
    add(ByteLevel(left + right), TokenType::kNormal);
    spec.merges.push_back(ByteLevel(left) + " " + ByteLevel(right));
  }
  for (const auto& [text, type] : extra) add(text, type);
  spec.bos = 1;
  spec.eos = 2;
  return spec;
}

// SentencePiece: 0 "<unk>", 1 "<s>", 2 "</s>"; 3 + b for byte b if with_bytes; then the pieces with
// their scores.
inline TokenizerSpec PieceVocabulary(const std::vector<std::pair<std::string, float>>& pieces,
                                     bool with_bytes = true) {
  TokenizerSpec spec;
  spec.model = "llama";
  const auto add = [&](const std::string& text, TokenType type, float score) {
    spec.tokens.push_back(text);
    spec.types.push_back(type);
    spec.scores.push_back(score);
  };
  add("<unk>", TokenType::kUnknown, 0);
  add("<s>", TokenType::kControl, 0);
  add("</s>", TokenType::kControl, 0);
  for (int byte = 0; byte < 256 && with_bytes; byte++) {
    const char* digits = "0123456789ABCDEF";
    add(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">", TokenType::kByte, 0);
  }
  for (const auto& [text, score] : pieces) add(text, TokenType::kNormal, score);
  spec.unknown = 0;
  spec.bos = 1;
  spec.eos = 2;
  spec.add_space_prefix = false;
  return spec;
}

}  // namespace staffel
