#include "api/fields/place_words.h"

#include <bit>
#include <charconv>

#include "api/fields/checks.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

std::vector<std::string> parted(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string_view part = text.substr(begin, end - begin);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.emplace_back(part);
    begin = end + 1;
  }
  return parts;
}

bool is_sound(const std::string& text) {
  return text.size() <= limits::kLabelBytesMax && text.find('\0') == std::string::npos;
}

Answer<std::vector<LabelTerm>> terms_of(const char* field, const std::vector<std::string>& texts) {
  std::vector<LabelTerm> terms;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    LabelTerm term{.name = text.substr(0, equals), .any_value = equals == std::string::npos};
    if (!term.any_value) term.value = text.substr(equals + 1);
    if (term.name.empty() || !is_sound(term.name) || !is_sound(term.value)) {
      return invalid(field, std::string(field) +
                                " has an entry that is neither NAME=VALUE nor NAME, or is longer "
                                "than " +
                                std::to_string(limits::kLabelBytesMax) + " bytes; such as zone=eu");
    }
    terms.push_back(std::move(term));
  }
  return terms;
}

/// Digits alone are an index, of no GPU when there are too many of them.
std::optional<uint32_t> index_of(const std::string& text) {
  if (text.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  uint32_t index = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), index);
  return failure == std::errc{} ? index : UINT32_MAX;
}

std::optional<ApiError> read_ids(const std::vector<std::string>& ids, PlaceRequest& place) {
  for (const std::string& id : ids) {
    if (id.empty() || !is_sound(id))
      return invalid("gpu_ids",
                     "gpu_ids has an entry that is empty or too long; give GPUs as 0 or GPU-8a5c...");
    const std::optional<uint32_t> index = index_of(id);
    if (!index) {
      place.device_uuids.push_back(id);
      continue;
    }
    if (*index >= limits::kDevicesPerNodeMax) {
      return invalid("gpu_ids", "gpu_ids has an index above " +
                                    std::to_string(limits::kDevicesPerNodeMax - 1) +
                                    ", the highest that a node can have");
    }
    const uint64_t bit = uint64_t{1} << *index;
    if ((place.device_mask & bit) != 0)
      return ApiError{ErrorKind::kUnprocessable, std::string(describe(RequestFlaw::kIdTwice)), "gpu_ids"};
    place.device_mask |= bit;
  }
  return std::nullopt;
}

}  // namespace

Answer<std::vector<PlaceRequest>> read_place(const PlacementFields& words, std::string& gpu_model) {
  PlaceRequest place;
  Answer<std::vector<LabelTerm>> labels = terms_of("node_labels", words.node_labels);
  if (!labels) return labels.error();
  Answer<std::vector<LabelTerm>> without = terms_of("without_labels", words.without_labels);
  if (!without) return without.error();
  place.labels = std::move(*labels);
  place.without_labels = std::move(*without);
  place.exclusive = words.exclusive;
  if (words.gpu_layout == "spread") {
    place.layout = Layout::kSpread;
  } else if (words.gpu_layout == "contiguous") {
    place.layout = Layout::kContiguous;
  } else if (!words.gpu_layout.empty() && words.gpu_layout != "pack") {
    return invalid("gpu_layout", "gpu_layout must be pack, spread or contiguous");
  }
  if (auto problem = read_ids(words.gpu_ids, place)) return std::move(*problem);
  if (words.gpu_bandwidth_gbs < 0 || words.gpu_bandwidth_gbs > limits::kLinkGbsMax) {
    return invalid("gpu_bandwidth_gbs",
                   "gpu_bandwidth_gbs must be from 0 to " + std::to_string(limits::kLinkGbsMax));
  }
  place.bandwidth_min = words.gpu_bandwidth_gbs;
  if (gpu_model.find(',') != std::string::npos) {
    place.gpu_models = parted(gpu_model);
    gpu_model.clear();
  }
  if (place == PlaceRequest{}) return std::vector<PlaceRequest>{};
  return std::vector<PlaceRequest>{std::move(place)};
}

PlacementFields words_of(const PlaceRequest& place) {
  const auto texts_of = [](const std::vector<LabelTerm>& terms) {
    std::vector<std::string> texts;
    for (const LabelTerm& term : terms)
      texts.push_back(term.any_value ? term.name : term.name + "=" + term.value);
    return texts;
  };
  PlacementFields words{
      .node_labels = texts_of(place.labels),
      .without_labels = texts_of(place.without_labels),
      .exclusive = place.exclusive,
      .gpu_layout = place.layout == Layout::kPack ? "" : std::string(to_string(place.layout)),
      .gpu_ids = place.device_uuids,
      .gpu_bandwidth_gbs = place.bandwidth_min};
  for (uint64_t rest = place.device_mask; rest != 0; rest &= rest - 1)
    words.gpu_ids.push_back(std::to_string(std::countr_zero(rest)));
  return words;
}

std::string models_text(const std::string& gpu_model, const std::vector<PlaceRequest>& place) {
  if (place.empty() || place.front().gpu_models.empty()) return gpu_model;
  std::string text;
  for (const std::string& model : place.front().gpu_models) text += (text.empty() ? "" : ",") + model;
  return text;
}

}  // namespace gpusched::api
