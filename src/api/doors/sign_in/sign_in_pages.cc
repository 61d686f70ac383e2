#include "api/doors/sign_in/sign_in_pages.h"

#include <sodium.h>

#include <algorithm>
#include <array>

#include "api/contract/names.h"
#include "api/doors/html.h"
#include "base/net/base64.h"
#include "log/line.h"

namespace gpusched::api {
namespace {

constexpr std::string_view kPageStyle = R"(:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code { font-family: ui-monospace, monospace; font-size: .93em; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { border-bottom: 1px solid #8886; font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8883; padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top; }
button { font: inherit; padding: .3rem .9rem; }
.quiet { opacity: .75; }
)";

std::string sha256_of(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash;
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  return base64_encoded({reinterpret_cast<const char*>(hash.data()), hash.size()});
}

const std::string& policy() {
  static const std::string kPolicy = "default-src 'none'; style-src 'sha256-" + sha256_of(kPageStyle) +
                                     "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
  return kPolicy;
}

/// "2026-01-31 09:00:00 UTC"
std::string time_text(Time at) {
  std::string text;
  append_rfc3339(text, at);
  text = text.substr(0, std::string_view("2026-01-31T09:00:00").size());
  std::ranges::replace(text, 'T', ' ');
  return text + " UTC";
}

std::string tenant_text(const Binding& binding, const std::vector<TenantView>& tenants) {
  if (!binding.tenant.valid()) return "all tenants";
  for (const TenantView& tenant : tenants) {
    if (tenant.id == binding.tenant && tenant.settings.name) return *tenant.settings.name;
  }
  return tenant_name(binding.tenant);
}

void add_roles(std::string& out, const access::Caller& caller, const std::vector<TenantView>& tenants) {
  out += "<h2>Roles</h2>\n";
  if (caller.bindings.empty()) {
    out += "<p>None by name: this credential says by itself what it may do.</p>\n";
    return;
  }
  out += "<table><tr><th>Role</th><th>Where</th></tr>\n";
  for (const Binding& binding : caller.bindings) {
    const bool of_cluster = scope_of(binding.role) == RoleScope::kCluster;
    out += "<tr><td>" + escaped(to_string(binding.role)) + "</td><td>" +
           escaped(of_cluster ? "the cluster" : tenant_text(binding, tenants)) + "</td></tr>\n";
  }
  out += "</table>\n";
  if (caller.unix_users.empty()) return;
  out += "<p>Jobs may run as each node's default user, and as";
  for (const std::string& user : caller.unix_users) out += " <code>" + escaped(user) + "</code>";
  out += ".</p>\n";
}

constexpr std::string_view kLinkToSignIn = "<p><a href=\"/login\">Sign in</a></p>\n";

/// Messages begin as a part of a longer line does.
std::string sentence_of(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

void add_jobs(std::string& out, const Answer<JobPage>& page) {
  out += "<h2>Your newest jobs</h2>\n";
  if (!page) {
    out += "<p>They cannot be shown now, and whether there are any is not known. " +
           escaped(sentence_of(page.error().message)) + ".</p>\n<p class=\"quiet\">Code <code>" +
           escaped(row_of(page.error().kind).code) + "</code></p>\n";
    return;
  }
  const std::vector<JobView>& jobs = page->jobs;
  if (jobs.empty()) {
    out += "<p>There are none. <code>gpu-cli submit</code> makes one.</p>\n";
    return;
  }
  out += "<table><tr><th>Job</th><th>Name</th><th>State</th><th>Why</th></tr>\n";
  for (const JobView& job : jobs) {
    out += "<tr><td><code>" + escaped(job_name(job.id)) + "</code></td><td>" + escaped(job.name) +
           "</td><td>" + escaped(to_string(job.state)) + "</td><td>" + escaped(job.message) + "</td></tr>\n";
  }
  out += "</table>\n";
}

std::string_view title_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUnauthenticated:
      return "You are not signed in";
    case ErrorKind::kPermissionDenied:
      return "This is not allowed";
    case ErrorKind::kRateLimited:
      return "Too many requests";
    case ErrorKind::kNotFound:
    case ErrorKind::kMethodNotAllowed:
      return "There is nothing here";
    default:
      return "This does not work at the moment";
  }
}

}  // namespace

HttpResponse html_page(int status, std::string_view title, const std::string& body) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>" +
      escaped(title) + "</title><style>" + std::string(kPageStyle) + "</style></head><body>\n<h1>" +
      escaped(title) + "</h1>\n" + body + "</body></html>\n";
  HttpResponse response{.status = status, .body = std::move(out), .content_type = "text/html; charset=utf-8"};
  response.headers.emplace_back("Content-Security-Policy", policy());
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Cache-Control", "no-store");
  // Not no-referrer: a form would then say that it comes from nowhere, and signing out needs to know.
  response.headers.emplace_back("Referrer-Policy", "same-origin");
  response.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  response.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  return response;
}

HttpResponse refusal_page(const ApiError& error) {
  const ErrorRow& row = row_of(error.kind);
  HttpResponse page =
      html_page(row.http_status, title_of(error.kind),
                "<p>" + escaped(sentence_of(error.message)) + ".</p>\n" + std::string(kLinkToSignIn) +
                    "<p class=\"quiet\">Code <code>" + escaped(row.code) + "</code></p>\n");
  if (error.retry_after.ns > 0)
    page.headers.emplace_back("Retry-After",
                              std::to_string((error.retry_after.ns + 999'999'999) / 1'000'000'000));
  return page;
}

HttpResponse signed_in_page(const access::Caller& caller) {
  HttpResponse page =
      html_page(200, "You are signed in",
                "<p>As <code>" + escaped(caller.name) + "</code>. <a href=\"/me\">Go on</a></p>\n");
  page.headers.emplace_back("Refresh", "0; url=/me");
  return page;
}

HttpResponse signed_out_page() {
  return html_page(200, "You are signed out",
                   "<p>This browser's session has ended here, and what was open with it. The provider of "
                   "identities may still know you: whoever uses this browser may sign in again without a "
                   "password until you sign out there, too.</p>\n" +
                       std::string(kLinkToSignIn));
}

HttpResponse ask_first_page() {
  return html_page(200, "Sign in?",
                   "<p>Another site's page led this browser here. Go on only if you want to sign in.</p>\n" +
                       std::string(kLinkToSignIn));
}

HttpResponse not_signed_in_page() {
  return html_page(401, "You are not signed in",
                   "<p>This page shows who you are to the scheduler, and your jobs. If another site led you "
                   "here, this browser kept your session back: <a href=\"/me\">go on</a>.</p>\n" +
                       std::string(kLinkToSignIn));
}

HttpResponse led_here_page() {
  return html_page(403, "Go on?",
                   "<p>Another page led this browser here, and your session is for this site's own pages "
                   "alone.</p>\n<p><a href=\"/me\">Go on</a></p>\n");
}

HttpResponse me_page(const access::Caller& caller, const std::vector<TenantView>& tenants,
                     const Answer<JobPage>& jobs) {
  std::string out = "<p>Signed in as <code>" + escaped(caller.name) + "</code>";
  if (caller.ends_at.valid()) out += ", until <b>" + time_text(caller.ends_at) + "</b>";
  out += ".</p>\n";
  if (caller.session != 0)
    out += "<form method=\"post\" action=\"/logout\"><button type=\"submit\">Sign out</button></form>\n";
  add_roles(out, caller, tenants);
  add_jobs(out, jobs);
  out += "<p><a href=\"/docs\">The API</a></p>\n";
  return html_page(200, "gpu-scheduler", out);
}

std::string docs_banner(const access::Caller* caller) {
  if (caller == nullptr) return "<p><a href=\"/login\">Sign in</a></p>\n";
  return "<p>Signed in as <a href=\"/me\">" + escaped(caller->name) + "</a></p>\n";
}

}  // namespace gpusched::api
