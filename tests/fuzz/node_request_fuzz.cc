// rooms: base
// libs: crypto
// source: sign/node_certificate.cc
// source: sign/authority.cc
// source: sign/fingerprint.cc
// source: sign/keys/private_file.cc
//
// A request for a node's certificate, and a certificate, that a stranger sends: as they come, and, what the
// fuzzer would not find, a request that is signed with changes of the input's choice in it.
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/limits.h"
#include "sign/authority.h"
#include "sign/node_certificate.h"

namespace sign = gpusched::sign;

namespace {

struct World {
  std::string folder = "/tmp/gpusched_fuzz_XXXXXX", key = sign::make_node_key(), request, certificate;

  World() {
    CHECK(::mkdtemp(folder.data()) != nullptr);
    request = *sign::make_node_request(key);
    const auto read = sign::NodeRequest::read(request);
    CHECK(read.ok());
    certificate = authority().issue_node(*read, {.node = "n1", .identity = 7, .expires_at = 4'000'000'000});
    CHECK(authority().node_of(certificate).ok());
  }
  const sign::Authority& authority() const {
    static const sign::Authority kAuthority = [this] {
      auto opened = sign::Authority::open(folder + "/ca");
      CHECK(opened.ok());
      return std::move(*opened);
    }();
    return kAuthority;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const World kWorld;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto read = sign::NodeRequest::read(text); read.ok()) {
    CHECK(read->key() != nullptr && read->key_hash().size() == gpusched::limits::kPublicKeyHashBytes);
    // The certificate signed for it tells nothing of the request but its key.
    const auto claim = kWorld.authority().node_of(
        kWorld.authority().issue_node(*read, {.node = "n2", .identity = 8, .expires_at = 4'000'000'000}));
    CHECK(claim.ok() && claim->node == "n2" && claim->identity == 8);
  }
  // Nobody else's certificate is one, and what is behind the first one does not count.
  CHECK(!kWorld.authority().node_of(std::string(text)).ok());
  const auto both = kWorld.authority().node_of(kWorld.certificate + std::string(text));
  CHECK(!both.ok() || both->node == "n1");
  // A good request with one byte changed is signed by nobody.
  if (size >= 3) {
    std::string changed = kWorld.request;
    const size_t at = (size_t{data[0]} << 8 | data[1]) % changed.size();
    const bool same = changed[at] == static_cast<char>(data[2]);
    changed[at] = static_cast<char>(data[2]);
    CHECK(same || !sign::NodeRequest::read(changed).ok());
  }
  if (const auto claim = sign::NodeClaim::of_uri(text)) {
    const auto again = sign::NodeClaim::of_uri(claim->uri());
    CHECK(again && again->node == claim->node && again->identity == claim->identity);
  }
  // Key and certificate that do not belong together make no file.
  CHECK(!sign::node_file_text(std::string(text), kWorld.certificate, std::string(32, 'k')).ok());
  return 0;
}
