#include "api/contract/spec_peek.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/text/task_content.h"
#include "base/text/task_payload.h"
#include "base/text/trace_variable.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

constexpr uint64_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

/// A field as protobuf packs it, whatever its wire type.
std::string field(uint64_t number, uint64_t wire_type) {
  std::string packed;
  ByteWriter out(packed);
  out.varint(number << 3 | wire_type);
  switch (wire_type) {
    case kVarint:
      out.varint(300);
      break;
    case kFixed64:
      packed.append("\xff\xff\xff\xff\xff\xff\xff\xff");
      break;
    case kBytes:
      out.varint(3);
      packed.append("abc");
      break;
    default:
      packed.append("\xff\xff\xff\xff");
  }
  return packed;
}

TEST(SpecPeek, FindsFieldsBehindOnesOfEachWireType) {
  for (const uint64_t before : {kVarint, kFixed64, kBytes, kFixed32}) {
    const SpecNumbers numbers = spec_numbers(field(3, before) + field(40, kBytes) + field(500, kVarint));
    EXPECT_EQ(numbers.count(), 2u) << before;
    EXPECT_TRUE(numbers[3] && numbers[40]) << before;
  }
  EXPECT_TRUE(spec_numbers("").none());
}

TEST(SpecPeek, KnowsTheNumbersOfAllFields) {
  const google::protobuf::Descriptor& type = *v1::JobSpec::descriptor();
  for (int i = 0; i < type.field_count(); ++i)
    EXPECT_LT(static_cast<std::size_t>(type.field(i)->number()), SpecNumbers().size());
}

TEST(SpecPeek, PassesFieldsOfAFixedWidth) {
  v1::JobSpec spec;
  spec.set_name("train");
  spec.set_user("ada");
  const std::string packed = field(90, kFixed32) + field(91, kFixed64) + spec.SerializeAsString();
  EXPECT_EQ(peek_spec(packed).name, "train");
  EXPECT_EQ(peek_spec(packed).user, "ada");
}

TEST(SpecPeek, ValuesOfSecretVariablesAreLeftOutAndNothingElse) {
  v1::JobSpec spec;
  spec.set_name("train");
  (*spec.mutable_environment())["EPOCHS"] = "3";
  (*spec.mutable_environment())["HUB_TOKEN"] = "open sesame";
  (*spec.mutable_environment())["HUB"] = "a mirror";
  (*spec.mutable_labels())["HUB_TOKEN"] = "none";
  spec.set_umask(18);
  const Blob open(spec.SerializeAsString());
  EXPECT_EQ(without_secrets(open).identity(), open.identity());

  spec.add_secret_variables("HUB_TOKEN");
  const Blob shown =
      without_secrets(Blob(spec.SerializeAsString() + field(90, kFixed32) + field(91, kFixed64)));
  EXPECT_EQ(shown.view().find("sesame"), std::string_view::npos);
  v1::JobSpec read;
  ASSERT_TRUE(read.ParseFromArray(shown.view().data(), static_cast<int>(shown.view().size())));
  spec.mutable_environment()->erase("HUB_TOKEN");
  read.DiscardUnknownFields();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read, spec));
}

TEST(SpecPeek, TheDigestOfASecretPayloadIsNotShown) {
  v1::JobSpec spec;
  (*spec.mutable_environment())["TASK_PAYLOAD_BASE64"] = "c2VzYW1l";
  spec.add_secret_variables("TASK_PAYLOAD_BASE64");
  std::string packed = spec.SerializeAsString();
  add_task_content(packed, {.high = 1, .low = 2});
  EXPECT_FALSE(task_content_of(without_secrets(Blob(packed)).view()).is_known());
}

TEST(SpecPeek, APayloadOfATaskIsNotShown) {
  v1::JobSpec spec;
  spec.set_name("train");
  for (const bool has_secrets : {false, true}) {
    if (has_secrets) spec.add_secret_variables("HUB_TOKEN");
    std::string packed = spec.SerializeAsString();
    add_task_payload(packed, "open sesame");
    EXPECT_EQ(without_secrets(Blob(packed)).view(), spec.SerializeAsString());
  }
}

TEST(SpecPeek, NothingIsShownOfADamagedSpecificationThatHasSecrets) {
  v1::JobSpec spec;
  (*spec.mutable_environment())["HUB_TOKEN"] = "open sesame";
  spec.add_secret_variables("HUB_TOKEN");
  const std::string whole = spec.SerializeAsString();
  std::string no_end = whole;
  ByteWriter out(no_end);
  out.varint(uint64_t{95} << 3 | 2);
  out.varint(100);  // Bytes that are not there.
  EXPECT_TRUE(without_secrets(Blob(no_end)).empty());
}

TEST(SpecPeek, WhatIsPutInStandsBeforeTheTrace) {
  v1::JobSpec spec;
  spec.set_name("train");
  (*spec.mutable_environment())["A"] = "b";
  std::string packed = spec.SerializeAsString(), traced = packed;
  add_trace(traced, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  for (std::string* text : {&packed, &traced}) {
    set_user(*text, "ada");
    mark_never_root(*text);
  }
  EXPECT_EQ(without_trace(traced), packed);
  EXPECT_TRUE(is_never_root(traced));
  EXPECT_EQ(peek_spec(traced).user, "ada");
  ASSERT_TRUE(spec.ParseFromString(traced));  // As agents read it.
  EXPECT_EQ(spec.environment().at("TRACEPARENT"), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  EXPECT_EQ(spec.environment().at("A"), "b");
}

TEST(SpecPeek, AUserIsPutWhereItsFieldBelongs) {
  v1::JobSpec spec;
  spec.set_name("train");
  (*spec.mutable_labels())["team"] = "vision";
  spec.set_gang_scheduling(true);
  spec.set_submitter("gateway");
  for (const bool has_more : {false, true}) {
    if (has_more) spec.set_comment("night run");
    std::string packed = spec.SerializeAsString();
    set_user(packed, "ada");
    v1::JobSpec with_user = spec;
    with_user.set_user("ada");
    EXPECT_EQ(packed, with_user.SerializeAsString());
    EXPECT_EQ(peek_spec(packed).user, "ada");
  }
  std::string labelled = spec.SerializeAsString();
  add_label(labelled, "zone", "eu");
  v1::JobSpec with_label = spec;
  (*with_label.mutable_labels())["zone"] = "eu";
  EXPECT_EQ(spec_label(labelled, "zone"), "eu");
  EXPECT_EQ(spec_label(labelled, "team"), "vision");
  EXPECT_EQ(labelled.size(), with_label.SerializeAsString().size());
  std::string strange = field(3, kFixed32);
  set_user(strange, "ada");
  EXPECT_EQ(peek_spec(strange).user, "ada");
}

}  // namespace
}  // namespace gpusched::api
