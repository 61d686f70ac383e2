#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/jobs.h"
#include "api/contract/tenants.h"
#include "api/http/http_message.h"

/// Pages of HTML for people who sign in with a browser. None has a script, and all that somebody else wrote
/// is escaped.
namespace gpusched::api {

/// A page, with what a browser may do with it: show it, and send its forms back here.
HttpResponse html_page(int status, std::string_view title, const std::string& body);

/// The page for an error: the failure, its reason, and what to do.
HttpResponse refusal_page(const ApiError& error);
/// After the way back from the provider: leads on to /me, since a browser sends the session's cookie to our
/// own pages' links alone.
HttpResponse signed_in_page(const access::Caller& caller);
HttpResponse signed_out_page();
/// For somebody whom another site's page led to /login.
HttpResponse ask_first_page();
HttpResponse not_signed_in_page();
/// For somebody whom a neighbour's page led to /me, with the cookie that it may not use.
HttpResponse led_here_page();

/// The caller's own page: who it is, what it may do, its newest jobs, and until when.
HttpResponse me_page(const access::Caller& caller, const std::vector<TenantView>& tenants,
                     const Answer<JobPage>& jobs);

/// The line above the API's document. Null: nobody is signed in.
std::string docs_banner(const access::Caller* caller);

}  // namespace gpusched::api
