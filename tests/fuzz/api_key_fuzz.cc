// rooms: base
// libs: sodium
// source: sign/api_key.cc
//
// The text that a stranger sends as an API key.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "sign/api_key.h"

namespace sign = gpusched::sign;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const sign::NewApiKey kReal = sign::make_api_key();
  // As it comes, and as what the fuzzer would not find: a real key with bytes of the input in it.
  std::string bent = kReal.text;
  for (size_t i = 0; i + 1 < size; i += 2) bent[data[i] % bent.size()] = text[i + 1];
  for (const std::string_view each : {text, std::string_view(bent)}) {
    const auto parts = sign::parse_api_key(each);
    if (!parts) {
      CHECK(each != kReal.text);
      continue;
    }
    CHECK(each == "gsk_" + std::string(parts->prefix) + "." + std::string(parts->secret));
    CHECK(sign::is_api_secret(parts->secret, sign::hash_api_secret(parts->secret)));
    const bool is_real_secret = kReal.text.ends_with("." + std::string(parts->secret));
    CHECK(sign::is_api_secret(parts->secret, kReal.hash) == is_real_secret);
  }
  return 0;
}
