#include "model/place_request.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/limits.h"
#include "model/types.h"

namespace gpusched {
namespace {

bool is_separator(char c) { return c == ' ' || c == '-' || c == '_'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (at < text.size()) {
    if (is_separator(text[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && !is_separator(text[end])) ++end;
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

/// True if a label that meets `required` meets `forbidden` too: a term without a value is met by any.
bool overlaps(const LabelTerm& required, const LabelTerm& forbidden) {
  return required.name == forbidden.name && (forbidden.any_value || required == forbidden);
}

RequestFlaw flaw_of_labels(const PlaceRequest& request) {
  const auto nameless = [](const LabelTerm& term) { return term.name.empty(); };
  if (request.labels.size() + request.without_labels.size() > limits::kLabelTermsMax)
    return RequestFlaw::kTooMany;
  if (std::any_of(request.labels.begin(), request.labels.end(), nameless) ||
      std::any_of(request.without_labels.begin(), request.without_labels.end(), nameless))
    return RequestFlaw::kEmptyName;
  for (const LabelTerm& term : request.labels) {
    for (const LabelTerm& other : request.labels) {
      if (term.name == other.name && !term.any_value && !other.any_value && term.value != other.value)
        return RequestFlaw::kLabelTwoValues;
    }
    const bool both = std::any_of(request.without_labels.begin(), request.without_labels.end(),
                                  [&](const LabelTerm& other) { return overlaps(term, other); });
    if (both) return RequestFlaw::kLabelBothWays;
  }
  return RequestFlaw::kNone;
}

template <typename Range>
bool has_twice(const Range& range) {
  for (auto at = range.begin(); at != range.end(); ++at) {
    if (std::find(std::next(at), range.end(), *at) != range.end()) return true;
  }
  return false;
}

RequestFlaw flaw_of_devices(const PlaceRequest& request, const Part& part) {
  if (request.device_uuids.size() > limits::kDevicesPerNodeMax) return RequestFlaw::kTooMany;
  if (request.device_mask != 0 && !request.device_uuids.empty()) return RequestFlaw::kIdsBothWays;
  if (std::count(request.device_uuids.begin(), request.device_uuids.end(), "") > 0)
    return RequestFlaw::kEmptyName;
  if (has_twice(request.device_uuids)) return RequestFlaw::kIdTwice;
  if (!request.names_devices()) return RequestFlaw::kNone;
  const auto ids = static_cast<int64_t>(request.device_uuids.size()) + std::popcount(request.device_mask);
  if (ids != part.gpu_count) return RequestFlaw::kIdsOtherCount;
  return request.layout == Layout::kPack ? RequestFlaw::kNone : RequestFlaw::kIdsWithLayout;
}

}  // namespace

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::kPack:
      return "pack";
    case Layout::kSpread:
      return "spread";
    case Layout::kContiguous:
      return "contiguous";
  }
  UNREACHABLE();
}

bool Part::is_arranged() const {
  const PlaceRequest* asked = wishes();
  return asked != nullptr &&
         (asked->names_devices() || asked->layout == Layout::kContiguous || asked->bandwidth_min > 0);
}

RequestFlaw flaw_of(const Part& part) {
  if (part.place.empty()) return RequestFlaw::kNone;
  if (part.place.size() > 1) return RequestFlaw::kSeveralTimes;
  const PlaceRequest& request = part.place.front();
  if (request.layout > kLayoutLast || request.bandwidth_min < 0 ||
      request.bandwidth_min > limits::kLinkGbsMax)
    return RequestFlaw::kOutOfRange;
  if (const RequestFlaw labels = flaw_of_labels(request); labels != RequestFlaw::kNone) return labels;
  if (request.gpu_models.size() > limits::kGpuModelsMax) return RequestFlaw::kTooMany;
  if (!request.gpu_models.empty() && part.gpu_count == 0) return RequestFlaw::kModelsWithoutGpus;
  if (std::count(request.gpu_models.begin(), request.gpu_models.end(), "") > 0)
    return RequestFlaw::kEmptyName;
  if (has_twice(request.gpu_models) || (!request.gpu_models.empty() && !part.gpu_model.empty()))
    return RequestFlaw::kModelTwice;
  const bool arranged =
      request.names_devices() || request.layout != Layout::kPack || request.bandwidth_min > 0;
  if (part.is_share() && (arranged || request.exclusive)) return RequestFlaw::kOfShare;
  if (const RequestFlaw devices = flaw_of_devices(request, part); devices != RequestFlaw::kNone)
    return devices;
  if (request.layout != Layout::kPack && part.gpu_count < 2) return RequestFlaw::kLayoutOfOne;
  if (request.bandwidth_min > 0 && part.gpu_count < 2) return RequestFlaw::kBandwidthOfOne;
  return RequestFlaw::kNone;
}

std::string_view describe(RequestFlaw flaw) {
  switch (flaw) {
    case RequestFlaw::kNone:
      return "nothing is wrong with it";
    case RequestFlaw::kLabelBothWays:
      return "a node label is both required and excluded; remove one of the two";
    case RequestFlaw::kLabelTwoValues:
      return "a node label is required with two values, but a label has only one; remove one of them";
    case RequestFlaw::kEmptyName:
      return "a label, GPU model or GPU id is empty; give it a name, or remove it";
    case RequestFlaw::kTooMany:
      return "the job names too many labels (at most 32), GPU models (at most 16) or GPU ids (at most 64); "
             "name fewer";
    case RequestFlaw::kModelsWithoutGpus:
      return "GPU models are named, but no GPUs are requested; set the number of GPUs";
    case RequestFlaw::kModelTwice:
      return "a GPU model is named twice; name each model once, in order of preference";
    case RequestFlaw::kIdsOtherCount:
      return "the number of GPU ids differs from the number of requested GPUs; give one id for each GPU";
    case RequestFlaw::kIdTwice:
      return "a GPU id is given twice; give each id once";
    case RequestFlaw::kIdsBothWays:
      return "GPUs are named both by index and by UUID; use one of the two";
    case RequestFlaw::kIdsWithLayout:
      return "a layout is requested together with GPU ids; remove the layout or the ids";
    case RequestFlaw::kLayoutOfOne:
      return "a layout needs two or more GPUs; request more GPUs, or remove the layout";
    case RequestFlaw::kBandwidthOfOne:
      return "a minimum bandwidth needs two or more GPUs; request more GPUs, or remove the bandwidth";
    case RequestFlaw::kOfShare:
      return "a share or MIG slice of a GPU cannot be combined with GPU ids, a layout, a bandwidth or an "
             "exclusive node; request whole GPUs, or remove the others";
    case RequestFlaw::kSeveralTimes:
      return "the placement is given more than once; give it once";
    case RequestFlaw::kOutOfRange:
      return "the layout or bandwidth is not valid; docs/reference/requests.md lists the valid ones";
  }
  UNREACHABLE();
}

bool gpu_model_matches(std::string_view model, std::string_view wanted) {
  if (wanted.empty()) return true;
  const std::vector<std::string_view> has = words_of(model);
  const std::vector<std::string_view> needs = words_of(wanted);
  return std::search(has.begin(), has.end(), needs.begin(), needs.end(), same_word) != has.end();
}

}  // namespace gpusched
