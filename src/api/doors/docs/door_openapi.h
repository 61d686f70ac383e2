#pragma once

#include "api/contract/json_writer.h"
#include "api/doors/docs/call_words.h"

namespace gpusched::api {

/// Statuses that any call may be refused with.
inline constexpr int kRefusals[] = {400, 401, 403, 404, 405, 408, 409, 410, 413, 422, 429, 500, 503, 504};

/// Writes the members of "responses" for calls that are refused: those of `name`.
void write_refusals(JsonWriter& json, std::string_view name);
/// Writes the paths of those doors as members of "paths", and their schemas as members of
/// "components.schemas".
void write_door_paths(JsonWriter& json, std::span<const DoorDoc> doors);
void write_door_schemas(JsonWriter& json, std::span<const DoorDoc> doors);

/// "post" of kPost.
std::string method_key(HttpMethod method);
/// A field's meaning without what only the reference pages' tables need: "[box](box.md)" is "box".
std::string without_links(std::string_view text);

}  // namespace gpusched::api
