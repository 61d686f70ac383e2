#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/contract/errors.h"
#include "model/place_request.h"

/// Where a job may run, in the words of every door.
namespace gpusched::api {

/// As a door has read it, before it is checked. Nothing given: anywhere.
struct PlacementFields {
  std::vector<std::string> node_labels;     ///< All that its node has: "name=value", or "name" for any value.
  std::vector<std::string> without_labels;  ///< Labels that its node has none of.
  bool exclusive = false;
  std::string gpu_layout;            ///< "pack", "spread", "contiguous"; empty: pack.
  std::vector<std::string> gpu_ids;  ///< All indexes, such as "0", or all UUIDs.
  int64_t gpu_bandwidth_gbs = 0;

  bool none() const {
    return node_labels.empty() && without_labels.empty() && !exclusive && gpu_layout.empty() &&
           gpu_ids.empty() && gpu_bandwidth_gbs == 0;
  }
};

/// Reads the words; none or one result. `gpu_model` may name several models, as in "H100,A100": then it is
/// taken out of there.
Answer<std::vector<PlaceRequest>> read_place(const PlacementFields& words, std::string& gpu_model);

/// As it was asked for.
PlacementFields words_of(const PlaceRequest& place);
/// The models that a part takes: "H100,A100".
std::string models_text(const std::string& gpu_model, const std::vector<PlaceRequest>& place);

}  // namespace gpusched::api
