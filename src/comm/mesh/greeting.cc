#include "comm/mesh/greeting.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/strings.h"

namespace staffel {
namespace {

constexpr size_t kDescriptorsMax = 2;

}  // namespace

MeshNonce RandomNonce() {
  MeshNonce nonce;
  STAFFEL_CHECK(getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()))
      << "the kernel has no random bytes";
  return nonce;
}

MeshProof Prove(std::string_view secret, Prover prover, const HelloFrame& hello,
                const MeshNonce& listener_nonce) {
  uint8_t message[8 + sizeof hello + sizeof listener_nonce];
  std::memcpy(message, prover == Prover::kListener ? "listener" : "connects", 8);
  std::memcpy(message + 8, &hello, sizeof hello);
  std::memcpy(message + 8 + sizeof hello, listener_nonce.data(), listener_nonce.size());
  MeshProof proof{};
  unsigned int size = proof.size();
  STAFFEL_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), message,
                     sizeof message, proof.data(), &size) != nullptr);
  return proof;
}

bool SameProof(const MeshProof& a, const MeshProof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string Describe(const ChallengeFrame& refusal, const HelloFrame& hello) {
  switch (refusal.verdict) {
    case Verdict::kGoOn:
      break;
    case Verdict::kOtherProtocol:
      return StrCat("it speaks protocol ", refusal.value, ", this side ", hello.protocol,
                    "; install the same version of staffel");
    case Verdict::kOldEpoch:
      return StrCat("it refuses epoch ", hello.epoch, ": it is at epoch ", refusal.value);
    case Verdict::kNotExpected:
      return StrCat("the process at its address is rank ", refusal.value,
                    " and has no business with rank ", hello.from);
  }
  return "it answers with something unknown";
}

bool SendFrame(int socket, const void* frame, size_t size, const std::vector<int>& descriptors) {
  iovec part{const_cast<void*>(frame), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

void FrameReader::Start(void* frame, size_t size) {
  frame_ = static_cast<uint8_t*>(frame);
  size_ = size;
  have_ = 0;
  descriptors_.clear();
}

FrameReader::Outcome FrameReader::Read(int socket, bool with_descriptors) {
  iovec part{frame_ + have_, size_ - have_};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  if (with_descriptors) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  const ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return errno == EAGAIN || errno == EINTR ? Outcome::kMore : Outcome::kEnd;
  if (with_descriptors) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len; at += sizeof(int)) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
        descriptors_.emplace_back(fd);
      }
    }
  }
  if (size == 0 || descriptors_.size() > kDescriptorsMax) return Outcome::kEnd;
  have_ += static_cast<size_t>(size);
  return have_ == size_ ? Outcome::kComplete : Outcome::kMore;
}

}  // namespace staffel
