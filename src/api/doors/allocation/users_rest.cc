// The allocation door's users.
#include <algorithm>
#include <utility>

#include "api/doors/allocation/allocation_ids.h"
#include "api/doors/allocation/allocation_rest.h"
#include "api/doors/allocation/user_json.h"
#include "api/doors/pages.h"
#include "api/doors/rest_query.h"

namespace gpusched::api {

void AllocationRest::create_user(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  record_user(request, PersonId{}, call);
}

void AllocationRest::update_user(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  const auto number = number_of_allocation_id(cluster(), AllocationIdKind::kPerson, path.back());
  // One that is nobody's is not found, by whoever may look.
  record_user(request, PersonId{number && *number != 0 ? *number : UINT64_MAX}, call);
}

void AllocationRest::record_user(const HttpRequest& request, PersonId person, const RestCallPtr& call) {
  Answer<PersonRequest> parsed = parse_user(request.body, !person.valid(), cluster());
  if (!parsed) return call->fail(parsed.error());
  parsed->by = shown_requester(request.requested_by, request.peer);
  once(request, call, [&](const RepeatedCalls::TurnPtr& turn) {
    const bool is_new = !person.valid();
    backend_.record_person(call->caller(), person, std::move(*parsed),
                           [this, call, is_new, turn](Answer<PersonView> recorded) {
                             if (!recorded) return call->fail(recorded.error());
                             call->note().line.resource = "user-" + std::to_string(recorded->id.value);
                             std::string body = user_json(cluster(), *recorded);
                             if (turn != nullptr) turn->keep(is_new ? 201 : 200, body);
                             call->send(is_new ? 201 : 200, std::move(body));
                           });
  });
}

void AllocationRest::list_users(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  RestQuery query(request.query);
  const int64_t skip = query.count("skip", 0, INT32_MAX);
  const int64_t limit = std::min(query.count("limit", kPageMax, INT64_MAX), kPageMax);
  if (query.problem()) return call->fail(*query.problem());
  backend_.list_people(call->caller(), skip, limit, [this, call](Answer<std::vector<PersonView>> people) {
    if (!people) return call->fail(people.error());
    std::vector<std::string> records;
    records.reserve(people->size());
    for (const PersonView& person : *people) records.push_back(user_json(cluster(), person));
    call->send(200, list_json(records));
  });
}

}  // namespace gpusched::api
