#pragma once

#include <string>
#include <string_view>

namespace gpusched::api {

/// An OpenAPI document as a page of HTML without scripts, for people: its calls with their parameters, bodies
/// and answers, then its schemas. `document` is one of ours; what it does not have is left out.
std::string docs_page(std::string_view document);
/// Where that page has room for a line about who looks at it.
inline constexpr std::string_view kDocsBanner = "<!-- who -->\n";
/// The policy for browsers: the page may only be shown.
inline constexpr std::string_view kDocsPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors "
    "'none'";

}  // namespace gpusched::api
