// How two ranks meet on a new connection. The one with the higher rank connects:
//   Hello →   who I am, and a nonce
//   ← Challenge   a verdict, a nonce, and proof of the secret over both (when the other side forms
//                 the same epoch; until then it keeps the connection waiting)
//   Proof →   of the secret, over both; within a machine with the descriptors of the shared memory
//             and of the own doorbell
//   ← Accepted   within a machine with the descriptor of the other doorbell
// All have fixed sizes: nothing is allocated by a length that a stranger names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace staffel {

inline constexpr std::array<char, 8> kMeshMagic = {'s', 't', 'f', '-', 'm', 'e', 's', 'h'};
inline constexpr uint32_t kMeshProtocol = 1;

using MeshNonce = std::array<uint8_t, 16>;
using MeshProof = std::array<uint8_t, 32>;

enum class Transport : uint32_t { kTcp = 1, kSharedMemory = 2 };

// Native byte order, without holes.
struct HelloFrame {
  std::array<char, 8> magic = kMeshMagic;
  uint32_t protocol = kMeshProtocol;
  int32_t replica = 0, epoch = 0, from = 0, to = 0;
  Transport transport = Transport::kTcp;
  uint64_t ring_bytes = 0;  // of the segment that comes with the proof
  MeshNonce nonce{};
};
static_assert(sizeof(HelloFrame) == 56);

enum class Verdict : uint32_t { kGoOn, kOtherProtocol, kOldEpoch, kNotExpected };

struct ChallengeFrame {
  Verdict verdict = Verdict::kGoOn;
  int32_t value = 0;  // of the verdict: the own protocol, epoch or rank
  MeshNonce nonce{};
  MeshProof proof{};
};
static_assert(sizeof(ChallengeFrame) == 56);

struct AcceptedFrame {
  std::array<char, 8> magic = kMeshMagic;
};

MeshNonce RandomNonce();
enum class Prover { kListener, kConnector };
MeshProof Prove(std::string_view secret, Prover prover, const HelloFrame& hello,
                const MeshNonce& listener_nonce);
bool SameProof(const MeshProof& a, const MeshProof& b);  // in constant time

// What a refusal says, for people.
std::string Describe(const ChallengeFrame& refusal, const HelloFrame& hello);

// Sends all of it at once or fails: greetings fit into any socket's buffer. descriptors: UNIX only.
bool SendFrame(int socket, const void* frame, size_t size, const std::vector<int>& descriptors);

// A frame that comes in pieces, with at most two descriptors.
class FrameReader {
 public:
  enum class Outcome { kMore, kComplete, kEnd };
  // `frame` must keep its place until the frame is complete.
  void Start(void* frame, size_t size);
  // Reads what is there. Descriptors that were not asked for are closed by the kernel.
  Outcome Read(int socket, bool with_descriptors);
  size_t size() const { return have_; }
  std::vector<Fd>& descriptors() { return descriptors_; }

 private:
  uint8_t* frame_ = nullptr;
  size_t size_ = 0, have_ = 0;
  std::vector<Fd> descriptors_;
};

}  // namespace staffel
