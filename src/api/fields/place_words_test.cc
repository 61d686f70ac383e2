#include "api/fields/place_words.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

TEST(PlacementFields, WhatIsReadIsShownAsItWasAsked) {
  const PlacementFields words{.node_labels = {"zone=eu", "ssd", "empty="},
                              .without_labels = {"spot"},
                              .exclusive = true,
                              .gpu_ids = {"0", "3"},
                              .gpu_bandwidth_gbs = 200};
  std::string model = "H100, A100";
  const auto read = read_place(words, model);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 1u);
  const PlaceRequest& place = read->front();
  EXPECT_EQ(place.device_mask, 0b1001u);
  EXPECT_EQ(place.gpu_models, (std::vector<std::string>{"H100", "A100"}));
  EXPECT_EQ(model, "");
  EXPECT_EQ(models_text(model, *read), "H100,A100");
  const PlacementFields shown = words_of(place);
  EXPECT_EQ(shown.node_labels, words.node_labels);
  EXPECT_EQ(shown.without_labels, words.without_labels);
  EXPECT_TRUE(shown.exclusive);
  EXPECT_EQ(shown.gpu_ids, words.gpu_ids);
  EXPECT_EQ(shown.gpu_bandwidth_gbs, 200);
  EXPECT_FALSE(place.labels[2].any_value);
}

TEST(PlacementFields, NothingAskedIsNothing) {
  std::string model = "A100";
  const auto read = read_place({}, model);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->empty());
  EXPECT_EQ(model, "A100");
  EXPECT_EQ(read_place({.gpu_layout = "pack"}, model)->size(), 0u);
}

TEST(PlacementFields, WhatMeansNothingIsRefusedNamingItsField) {
  const auto field_of = [](const PlacementFields& words) {
    std::string model;
    const auto read = read_place(words, model);
    return read.ok() ? std::string() : read.error().field;
  };
  EXPECT_EQ(field_of({.node_labels = {"=eu"}}), "node_labels");
  EXPECT_EQ(field_of({.without_labels = {std::string(300, 'x')}}), "without_labels");
  EXPECT_EQ(field_of({.gpu_layout = "ring"}), "gpu_layout");
  EXPECT_EQ(field_of({.gpu_ids = {"64"}}), "gpu_ids");
  EXPECT_EQ(field_of({.gpu_ids = {"99999999999"}}), "gpu_ids");
  EXPECT_EQ(field_of({.gpu_ids = {""}}), "gpu_ids");
  EXPECT_EQ(field_of({.gpu_ids = {"1", "1"}}), "gpu_ids");
  EXPECT_EQ(field_of({.gpu_bandwidth_gbs = -1}), "gpu_bandwidth_gbs");
}

}  // namespace
}  // namespace gpusched::api
