#include "sign/jwt.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <cmath>

#include "base/net/base64url.h"
#include "base/text.h"
#include "sign/strict_json.h"

namespace gpusched::sign {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepthMax = 8;
constexpr std::size_t kTextBytesMax = 255;       ///< `sub` and `jti`; OpenID Connect says so for `sub`.
constexpr double kSecondsMax = 253'402'300'800;  // The year 10000.

std::string_view view_of(const json::string& text) { return {text.data(), text.size()}; }

const json::value* member(const json::object& from, std::string_view name) {
  return from.if_contains(json::string_view(name.data(), name.size()));
}

/// Null: there is none, or it is no text.
const json::string* text_member(const json::object& from, std::string_view name) {
  const json::value* const found = member(from, name);
  return found == nullptr ? nullptr : found->if_string();
}

const json::value* at_path(const json::object& from, std::span<const std::string> path) {
  const json::object* object = &from;
  for (std::size_t i = 0; i < path.size() && object != nullptr; ++i) {
    const json::value* const found = member(*object, path[i]);
    if (found == nullptr || i + 1 == path.size()) return found;
    object = found->if_object();
  }
  return nullptr;
}

bool is_or_has(const json::value& value, std::string_view text) {
  if (const json::string* const one = value.if_string()) return view_of(*one) == text;
  const json::array* const list = value.if_array();
  return list != nullptr && std::ranges::any_of(*list, [&](const json::value& each) {
           const json::string* const one = each.if_string();
           return one != nullptr && view_of(*one) == text;
         });
}

/// A time in seconds since 1970, cut to a whole one. False: it is there, and is none.
bool read_seconds(const json::object& from, std::string_view name, std::optional<int64_t>& seconds) {
  const json::value* const found = member(from, name);
  if (found == nullptr) return true;
  json::error_code failure;
  const auto number = found->to_number<double>(failure);
  if (failure || !std::isfinite(number) || number < 0 || number >= kSecondsMax) return false;
  seconds = static_cast<int64_t>(number);
  return true;
}

struct Parts {
  std::string_view signed_text, header, payload, signature;
};

std::optional<Parts> split(std::string_view token) {
  if (token.size() > kJwtBytesMax) return std::nullopt;
  const std::size_t first = token.find('.');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos)
    return std::nullopt;
  return Parts{.signed_text = token.substr(0, second),
               .header = token.substr(0, first),
               .payload = token.substr(first + 1, second - first - 1),
               .signature = token.substr(second + 1)};
}

bool is_of_a_token(std::string_view type) {
  return type == "JWT" || type == "jwt" || type == "at+jwt" || type == "application/at+jwt";
}

/// Header that has nothing which we cannot respect.
struct Header {
  std::string kid;
  JwtAlgorithm algorithm;
};
std::optional<Header> read_header(std::string_view text) {
  const std::optional<std::string> bytes = base64url_decoded(text);
  const std::optional<json::object> members = bytes ? parse_strict_object(*bytes, kDepthMax) : std::nullopt;
  if (!members || member(*members, "crit") != nullptr) return std::nullopt;
  const json::string* const type = text_member(*members, "typ");
  if (member(*members, "typ") != nullptr && (type == nullptr || !is_of_a_token(view_of(*type))))
    return std::nullopt;
  const json::string* const algorithm = text_member(*members, "alg");
  const json::string* const kid = text_member(*members, "kid");
  if (algorithm == nullptr || kid == nullptr) return std::nullopt;
  const std::optional<JwtAlgorithm> known = jwt_algorithm_named(view_of(*algorithm));
  if (!known) return std::nullopt;
  return Header{.kid = std::string(view_of(*kid)), .algorithm = *known};
}

JwtOutcome fault(JwtFault what, std::string why = {}) {
  return {.fault = what, .why = std::move(why), .claims = std::nullopt};
}

JwtOutcome refused(std::string why) { return fault(JwtFault::kClaims, std::move(why)); }

}  // namespace

/// The claims of a token whose signature is right.
class JwtReader {
 public:
  JwtReader(const JwtExpectation& expected, int64_t now)
      : expected_(expected),
        leeway_(std::clamp<int64_t>(expected.leeway_seconds, 0, kJwtLeewayMaxSeconds)),
        now_(now) {}

  JwtOutcome read(std::string_view payload) const;

 private:
  std::string problem_with(const json::object& members, JwtClaims& claims) const;
  std::string problem_with_times(const json::object& members, JwtClaims& claims) const;
  static std::string problem_with_holder(const json::object& members, JwtClaims& claims);

  const JwtExpectation& expected_;
  const int64_t leeway_, now_;
};

JwtOutcome JwtReader::read(std::string_view payload) const {
  const std::optional<std::string> bytes = base64url_decoded(payload);
  std::optional<json::object> members = bytes ? parse_strict_object(*bytes, kDepthMax) : std::nullopt;
  if (!members) return refused("its claims are no JSON object, or have a member twice");
  JwtClaims claims;
  if (std::string problem = problem_with(*members, claims); !problem.empty())
    return refused(std::move(problem));
  claims.members_ = std::make_shared<const json::object>(std::move(*members));
  return {.fault = JwtFault::kNone, .why = {}, .claims = std::move(claims)};
}

std::string JwtReader::problem_with(const json::object& members, JwtClaims& claims) const {
  const json::string* const issuer = text_member(members, "iss");
  if (issuer == nullptr || view_of(*issuer) != expected_.issuer)
    return "its issuer (iss) is not " + expected_.issuer;
  const json::value* const audience = member(members, "aud");
  if (audience == nullptr || !is_or_has(*audience, expected_.audience))
    return "it is for another audience (aud) than " + expected_.audience;
  if (std::string problem = problem_with_times(members, claims); !problem.empty()) return problem;
  return problem_with_holder(members, claims);
}

std::string JwtReader::problem_with_times(const json::object& members, JwtClaims& claims) const {
  std::optional<int64_t> expires_at, not_before;
  const bool are_times = read_seconds(members, "exp", expires_at) &&
                         read_seconds(members, "nbf", not_before) &&
                         read_seconds(members, "iat", claims.issued_at_);
  if (!are_times || !expires_at)
    return "its exp, which it must have, or its nbf or iat is no time in seconds since 1970";
  if (now_ >= *expires_at + leeway_) return "it expired " + std::to_string(now_ - *expires_at) + " s ago";
  if (not_before && now_ + leeway_ < *not_before)
    return "it is not valid (nbf) for another " + std::to_string(*not_before - now_) + " s";
  if (claims.issued_at_ && now_ + leeway_ < *claims.issued_at_)
    return "it was issued (iat) in the future, in " + std::to_string(*claims.issued_at_ - now_) +
           " s: one of the clocks is wrong";
  claims.expires_at_ = *expires_at;
  return {};
}

std::string JwtReader::problem_with_holder(const json::object& members, JwtClaims& claims) {
  const json::string* const subject = text_member(members, "sub");
  const json::string* const id = text_member(members, "jti");
  if (subject != nullptr) claims.subject_ = view_of(*subject);
  if (id != nullptr) claims.id_ = view_of(*id);
  const auto is_bad = [](const std::string& text) {
    return text.size() > kTextBytesMax || has_control_character(text);
  };
  if (claims.subject_.empty() || is_bad(claims.subject_))
    return "its subject (sub), which it must have, is no text of 1 to 255 bytes";
  if ((member(members, "jti") != nullptr && claims.id_.empty()) || is_bad(claims.id_))
    return "its id (jti) is no text of 1 to 255 bytes";
  return {};
}

bool JwtClaims::has(std::span<const std::string> path, std::string_view value) const {
  if (members_ == nullptr) return false;
  const json::value* const found = at_path(*static_cast<const json::object*>(members_.get()), path);
  return found != nullptr && is_or_has(*found, value);
}

std::optional<std::string> JwtClaims::text(std::span<const std::string> path) const {
  if (members_ == nullptr) return std::nullopt;
  const json::value* const found = at_path(*static_cast<const json::object*>(members_.get()), path);
  const json::string* const text = found == nullptr ? nullptr : found->if_string();
  return text == nullptr ? std::nullopt : std::optional(std::string(view_of(*text)));
}

JwtOutcome verify_jwt(std::string_view token, const JwtKeySet& keys, const JwtExpectation& expected,
                      int64_t now) {
  const std::optional<Parts> parts = split(token);
  const std::optional<Header> header = parts ? read_header(parts->header) : std::nullopt;
  if (!header) return fault(JwtFault::kMalformed);
  const std::optional<std::string> signature = base64url_decoded(parts->signature);
  if (!signature || signature->empty()) return fault(JwtFault::kMalformed);
  const JwtKey* const key = keys.find(header->kid);
  if (key == nullptr) return fault(JwtFault::kUnknownKey);
  // The key says how it signs; a header that says otherwise is an attempt.
  if (key->algorithm() != header->algorithm) return fault(JwtFault::kMalformed);
  if (!key->is_signed(parts->signed_text, *signature)) return fault(JwtFault::kBadSignature);
  return JwtReader(expected, now).read(parts->payload);
}

}  // namespace gpusched::sign
