#include "api/doors/sign_in/sign_in_rest.h"

#include <algorithm>
#include <utility>

#include "api/doors/sign_in/sign_in_pages.h"
#include "base/text/single_value.h"

namespace gpusched::api {
namespace {

using enum access::Action;

void send_refusal(const RestCallPtr& call, const ApiError& error) {
  // The person to be signed in is nobody that is known.
  if (call->note().line.action == kSignIn) call->note().line.caller = nullptr;
  call->note().tell(&error);
  call->send(refusal_page(error));
}

bool is_ours(std::string_view host, const BrowserPlace& place) {
  std::string name(host);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name == place.host;
}

ApiError elsewhere(const BrowserPlace& place) {
  return {ErrorKind::kPermissionDenied, "people sign in at " + place.origin +
                                            ", and this request names another host, where the cookie would "
                                            "be of no use; open " +
                                            place.origin + "/login"};
}

}  // namespace

std::span<const SignInRest::RouteRow> SignInRest::routes() {
  static constexpr RouteRow kRoutes[] = {
      {HttpMethod::kGet, "login", kSignIn, &SignInRest::login},
      {HttpMethod::kGet, "login/callback", kSignIn, &SignInRest::callback},
      {HttpMethod::kPost, "logout", kSignOut, &SignInRest::logout},
      {HttpMethod::kGet, "me", kSeeJob, &SignInRest::me},
  };
  return kRoutes;
}

void SignInRest::name_call(const HttpRequest& request, CallNote& note) {
  name_by_route(routes(), request, note);
}

bool SignInRest::refuse(const HttpRequest& request, const RestCallPtr& call, const ApiError& error) const {
  if (!takes(request.path)) return false;
  const std::shared_ptr<const BrowserPlace> here = place();
  call->note().tell(&error);
  const bool knows_nobody = error.kind == ErrorKind::kUnauthenticated && request.authorization.empty();
  const bool has_cookie = here != nullptr && find_cookie(request.cookie, session_cookie(*here)).is_there;
  HttpResponse page = knows_nobody && !has_cookie ? not_signed_in_page() : refusal_page(error);
  if (request.path == "/me" && has_cookie && error.kind == ErrorKind::kPermissionDenied &&
      check_own_page(request, *here) && is_ours(request.host, *here))
    page = led_here_page();
  // A cookie that means nothing any more would only make the next page fail, too. Where none came there may
  // be a good one all the same: browsers keep it back when another site leads here.
  if (knows_nobody && has_cookie)
    page.headers.emplace_back("Set-Cookie", set_cookie(*here, session_cookie(*here), "", 0, true));
  call->send(std::move(page));
  return true;
}

void SignInRest::handle(HttpRequest&& request, const RestCallPtr& call) {
  if (place() == nullptr) {
    return call->fail({ErrorKind::kNotFound,
                       "nobody signs in here with a browser: `browser:` below `login:` in the file of "
                       "api.jwt_rules_file switches it on; gpu-cli login logs in from the command line"});
  }
  serve_route<SignInRest>(*this, routes(), request, call);
}

void SignInRest::login(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  const std::shared_ptr<const BrowserPlace> here = place();
  if (here == nullptr || request.host_count != 1 || !is_ours(request.host, *here))
    return send_refusal(call, elsewhere(here == nullptr ? BrowserPlace{} : *here));
  if (request.fetch_site == "cross-site" || request.fetch_site == "same-site" ||
      request.method == HttpMethod::kHead) {
    call->note().drop();
    return call->send(ask_first_page());
  }
  flow_->start(request.peer, [call, here](Answer<SignInFlow::Started> started) {
    if (!started) return send_refusal(call, started.error());
    call->note().drop();  // The result is told at the end.
    HttpResponse response = html_page(303, "Sign in", "");
    response.headers.emplace_back("Location", started->url);
    response.headers.emplace_back("Set-Cookie",
                                  set_cookie(*here, sign_in_cookie(*here), started->cookie,
                                             SignInFlow::kPendingLives.ns / seconds(1).ns, false));
    call->send(std::move(response));
  });
}

void SignInRest::callback(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  const std::shared_ptr<const BrowserPlace> here = place();
  if (here == nullptr || request.host_count != 1 || !is_ours(request.host, *here))
    return send_refusal(call, elsewhere(here == nullptr ? BrowserPlace{} : *here));
  if (request.method == HttpMethod::kHead) {  // For programs that look at links: they shall use up nothing.
    call->note().drop();
    return call->send(ask_first_page());
  }
  const std::optional<QueryParameters> query = parse_query(request.query);
  if (!query)
    return send_refusal(call,
                        {ErrorKind::kInvalidArgument, "the provider's answer is malformed; sign in again"});
  const FoundCookie cookie = find_cookie(request.cookie, sign_in_cookie(*here));
  const auto text = [&](std::string_view name) {
    return single_value(*query, name).value_or(std::string_view());
  };
  const bool names_issuer = std::ranges::any_of(*query, [](const auto& one) { return one.first == "iss"; });
  const SignInFlow::Brought brought{
      .cookie = cookie.value,
      .state = text("state"),
      .code = text("code"),
      .issuer = names_issuer ? std::optional(text("iss")) : std::nullopt,  // Two of them are nobody's.
      .error = text("error")};
  flow_->finish(request.peer, brought, [call, here](Answer<SignInFlow::SignedIn> done) {
    if (!done) return send_refusal(call, done.error());
    call->note().line.caller = done->caller;
    HttpResponse page = signed_in_page(*done->caller);
    page.headers.emplace_back(
        "Set-Cookie", set_cookie(*here, session_cookie(*here), done->session, done->lives_seconds, true));
    page.headers.emplace_back("Set-Cookie", set_cookie(*here, sign_in_cookie(*here), "", 0, false));
    call->send(std::move(page));
  });
}

void SignInRest::logout(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  const std::shared_ptr<const BrowserPlace> here = place();
  const uint64_t session = call->caller()->session;
  if (session == 0 || here == nullptr)
    return send_refusal(call, {ErrorKind::kUnauthenticated,
                               "there is no session to end: this request came without the cookie of one"});
  flow_->end(session);
  HttpResponse page = signed_out_page();
  page.headers.emplace_back("Set-Cookie", set_cookie(*here, session_cookie(*here), "", 0, true));
  call->send(std::move(page));
}

void SignInRest::me(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  const CallerPtr caller = call->caller();
  if (caller->kind == access::CallerKind::kAnonymous) return call->send(not_signed_in_page());
  backend_.list_tenants(caller, [this, caller, call](Answer<std::vector<TenantView>> tenants) {
    // A caller whose list is refused has a page all the same: numbers of tenants stand there, not names.
    std::vector<TenantView> seen = tenants ? std::move(*tenants) : std::vector<TenantView>{};
    JobFilter filter{.limit = kJobsShown};
    filter.owner = std::string(to_string(caller->kind)) + " " + caller->name;
    backend_.list_jobs(caller, std::move(filter),
                       [caller, call, seen = std::move(seen)](Answer<JobPage> page) {
                         call->send(me_page(*caller, seen, page));
                       });
  });
}

std::string SignInRest::banner(const HttpRequest& request) const {
  const std::shared_ptr<const BrowserPlace> here = place();
  if (here == nullptr) return {};
  const FoundCookie cookie = find_cookie(request.cookie, session_cookie(*here));
  if (!cookie.is_there || check_own_page(request, *here)) return docs_banner(nullptr);
  const Answer<CallerPtr> caller = flow_->holder_of_session(cookie.value);
  return docs_banner(caller ? caller->get() : nullptr);
}

}  // namespace gpusched::api
