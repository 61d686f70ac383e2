// rooms: base
// libs: crypto boost_json
// source: sign/jwt.cc
// source: sign/jwk.cc
// source: sign/strict_json.cc
//
// A token, and a key set, that a stranger sends: as they come, and as what the fuzzer would not find, parts
// of the input signed with a real key.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "sign/jwt.h"
#include "sign/testing/test_token.h"

namespace sign = gpusched::sign;

namespace {

const sign::JwtExpectation kExpected{.issuer = "i", .audience = "a", .leeway_seconds = 5};
const std::vector<std::string> kAudience = {"aud"};
const sign::JwksOptions kWithSecrets{.algorithms = {}, .secrets_allowed = true};
constexpr int64_t kNow = 1'700'000'000;

struct World {
  sign::TestTokenKey ed{sign::JwtAlgorithm::kEdDsa, "e"}, ec{sign::JwtAlgorithm::kEs256, "c"},
      secret{sign::JwtAlgorithm::kHs256, "s"};
  std::shared_ptr<const sign::JwtKeySet> keys;

  World() {
    auto parsed = sign::JwtKeySet::parse(
        "{\"keys\":[" + ed.jwk() + "," + ec.jwk() + "," + secret.jwk() + "]}", kWithSecrets);
    CHECK(parsed.ok());
    keys = *parsed;
  }
};

sign::JwtOutcome verify(const World& world, std::string_view token) {
  sign::JwtOutcome outcome = sign::verify_jwt(token, *world.keys, kExpected, kNow);
  CHECK(outcome.claims.has_value() == (outcome.fault == sign::JwtFault::kNone));
  CHECK(outcome.why.empty() == (outcome.fault != sign::JwtFault::kClaims));
  return outcome;
}

/// A token of 1 MB, which is refused by its size: of the input over and over, of a right token with the input
/// behind it, and of claims that are as long.
void check_large(const World& world, std::string_view text) {
  constexpr size_t kLarge = size_t{1} << 20;
  const auto grown = [&](std::string token) {
    while (token.size() < kLarge) token += text.empty() ? std::string_view("A") : text;
    return token;
  };
  const std::string good = world.ec.token(R"({"iss":"i","aud":"a","sub":"s","exp":1700000001})");
  CHECK(verify(world, good).fault == sign::JwtFault::kNone);
  for (const std::string& token : {grown({}), grown(good), grown(good + "."),
                                   world.ec.token(R"({"iss":"i","aud":"a","sub":")" +
                                                  std::string(kLarge, 's') + R"(","exp":1700000001})")})
    CHECK(verify(world, token).fault == sign::JwtFault::kMalformed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const World kWorld;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // Nobody signed it.
  const sign::JwtOutcome strangers = verify(kWorld, text);
  CHECK(strangers.fault != sign::JwtFault::kNone && strangers.fault != sign::JwtFault::kClaims);
  static_cast<void>(sign::JwtKeySet::parse(text, kWithSecrets));

  const size_t cut = text.find('\n');
  const std::string_view header = cut == std::string_view::npos ? std::string_view() : text.substr(0, cut);
  const std::string_view claims = cut == std::string_view::npos ? text : text.substr(cut + 1);
  const sign::JwtOutcome own = verify(kWorld, kWorld.ec.token(claims));
  CHECK(own.fault == sign::JwtFault::kNone || own.fault == sign::JwtFault::kClaims ||
        claims.size() > sign::kJwtBytesMax / 2);
  if (own.claims) {
    CHECK(!own.claims->subject().empty() && own.claims->expires_at() > kNow - 6);
    CHECK(own.claims->has(kAudience, "a"));
  }
  // A header of the input's choice: only that of the key's own algorithm is taken.
  for (const sign::TestTokenKey* const key : {&kWorld.ed, &kWorld.ec, &kWorld.secret}) {
    const sign::JwtOutcome chosen =
        verify(kWorld, key->token(header, R"({"iss":"i","aud":"a","sub":"s","exp":1700000001})"));
    // Neither does a header of the input's choice make good what has expired or is for somebody else.
    for (const std::string_view refused : {R"({"iss":"i","aud":"a","sub":"s","exp":1699999990})",
                                           R"({"iss":"i","aud":"b","sub":"s","exp":1700000001})",
                                           R"({"iss":"i","aud":["b","c"],"sub":"s","exp":1700000001})",
                                           R"({"iss":"j","aud":"a","sub":"s","exp":1700000001})"})
      CHECK(verify(kWorld, key->token(header, refused)).fault != sign::JwtFault::kNone);
    if (chosen.fault == sign::JwtFault::kNone)
      CHECK(header.find("\"" + key->kid() + "\"") != std::string_view::npos ||
            header.find("\\u") != std::string_view::npos);
  }
  if (size % 64 == 0) check_large(kWorld, text);
  return 0;
}
