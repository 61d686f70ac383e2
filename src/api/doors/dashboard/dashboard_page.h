#pragma once

#include <string>
#include <string_view>

#include "api/http/http_message.h"

namespace gpusched::api {

/// The dashboard's document. `snapshot` is a JSON text: the page's first data. It may hold anything that
/// users wrote; nothing in it can end the element that it stands in. The answer is `no-store`, since it is
/// one caller's.
HttpResponse dashboard_page(int status, std::string_view snapshot);

/// The text as it stands in an element of HTML whose content is JSON: without '<' and '>'.
std::string json_in_html(std::string_view json);

/// Sets what every answer of the dashboard says to browsers: no sniffing, no frames, only its own pages.
void add_dashboard_headers(HttpResponse& response);

}  // namespace gpusched::api
