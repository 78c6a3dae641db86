#include "text/pre_tokenizer_table.h"

namespace staffel {
namespace {

using std::string;

const string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const string kContraction = R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))";
const string kSpaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The GPT-4 shape: contraction, letters with one other character in front, digits, the rest.
string Gpt4(const string& digits) {
  return kContraction + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" + digits + R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)" +
         kSpaces;
}

// The GPT-4o shape: letters are cut where lower case is followed by upper case.
string Gpt4o(const string& contraction, const string& digits) {
  const string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const string before = R"([^\r\n\p{L}\p{N}]?)";
  return before + upper + "*" + lower + "+" + contraction + "|" + before + upper + "+" + lower +
         "*" + contraction + "|" + digits + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + kSpaces;
}

// Cased letters as DeepSeek's tokenizer.json lists them.
const string kDeepSeekLetters =
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A})"
    R"(\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556})"
    R"(\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"
    R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D})"
    R"(\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"
    R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC})"
    R"(\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128})"
    R"(\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E})"
    R"(\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3})"
    R"(\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})"
    R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2})"
    R"(\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})";
const string kDeepSeekCjk = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

// Letters and marks, with punctuation glued in front of ASCII letters (DeepSeek V3).
const string kDeepSeekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*)";

const string kBloom = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";

}  // namespace

const std::vector<PreTokenizerRule>& PreTokenizerRules() {
  // Never destroyed: tokenizers may be built while the program ends.
  static const auto& rules = *new std::vector<PreTokenizerRule>{
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
        "gigachat", "mellum", "a.x-4.0"},
       {kGpt2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       {R"(\p{N})", kGpt2}},
      {{"default"}, {R"([\p{P}$+<=>^~|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"falcon"}, {R"([\p{P}$+<=>^~|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {Gpt4(R"(\p{N}{1,3})")},
       /*whole_words=*/true},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {Gpt4(R"(\p{N}{1,3})")}},
      // Qwen2's tokenizer.json has the normaliser NFC, and the reference ids show it.
      {{"qwen2"}, {Gpt4(R"(\p{N})")}, /*whole_words=*/false, /*normalizes=*/true},
      {{"deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2", "solar-open"},
       {Gpt4(R"(\p{N})")}},
      {{"qwen35"},
       {kContraction + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" +
        kSpaces}},
      {{"gpt-4o", "llama4", "kanana2", "minimax-m2"}, {Gpt4o(kContraction + "?", R"(\p{N}{1,3})")}},
      {{"tekken"}, {Gpt4o("", R"(\p{N})")}, /*whole_words=*/true},
      {{"seed-coder"},
       {kContraction + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)" + kSpaces}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       {R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N})"
        R"(| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      // The last blank run is found from its first character on: from every character it would take
      // quadratic time.
      {{"deepseek-llm"},
       {R"([\r\n])", R"(\s?[)" + kDeepSeekLetters + "]+",
        R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
        R"((?<!\s)\s++\z)", kDeepSeekCjk, R"(\p{N}+)"}},
      {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekCjk, R"(\p{N})"}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"},
       {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
        kDeepSeekV3 + kSpaces}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, R"(\p{N})"}},
  };
  return rules;
}

}  // namespace staffel
