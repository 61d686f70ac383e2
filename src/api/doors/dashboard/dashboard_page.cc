#include "api/doors/dashboard/dashboard_page.h"

#include "api/doors/dashboard/dashboard_assets.h"

namespace gpusched::api {
namespace {

/// Scripts and styles are the program's own files; what a page connects to is the scheduler. The one policy
/// for trusted types is the templates' of the framework, and a name can never become markup.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types svelte-trusted-html";

}  // namespace

std::string json_in_html(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else {
      out += c;
    }
  }
  return out;
}

void add_dashboard_headers(HttpResponse& response) {
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Referrer-Policy", "same-origin");
  response.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  response.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
}

HttpResponse dashboard_page(int status, std::string_view snapshot) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>gpu-scheduler</title>\n"
      "<link rel=\"icon\" type=\"image/svg+xml\" href=\"" +
      dashboard_path(".svg") + "\">\n<link rel=\"stylesheet\" href=\"" + dashboard_path(".css") +
      "\">\n<script type=\"module\" src=\"" + dashboard_path(".js") +
      "\"></script>\n</head>\n<body>\n<div id=\"app\"></div>\n"
      "<noscript>The dashboard needs JavaScript. Without it: gpu-cli top on a terminal, and /docs for the "
      "API.</noscript>\n<script type=\"application/json\" id=\"snapshot\">" +
      json_in_html(snapshot) + "</script>\n</body>\n</html>\n";
  HttpResponse response{.status = status, .body = std::move(out), .content_type = "text/html; charset=utf-8"};
  response.headers.emplace_back("Content-Security-Policy", std::string(kPolicy));
  response.headers.emplace_back("Cache-Control", "no-store");
  add_dashboard_headers(response);
  return response;
}

}  // namespace gpusched::api
