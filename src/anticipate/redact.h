#pragma once

#include <string>
#include <string_view>

namespace gpusched::anticipate {

/// Stands where a secret stood.
inline constexpr std::string_view kRedacted = "[secret]";

/// `text` without what looks like a secret: values of names such as `password`, `api_key` or `HF_TOKEN`, also
/// behind options and headers; user and password of URLs; private keys; tokens that begin like those of known
/// services; long words that look random. It rather takes too much than too little. What it returns it
/// returns unchanged. Pure and thread-safe.
std::string redacted(std::string_view text);

}  // namespace gpusched::anticipate
