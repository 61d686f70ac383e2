// The proposer of a command, beside it in its group.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "codec/binary.h"
#include "codec/group.h"

namespace gpusched {
namespace {

const Proposer kService{.kind = CallerKind::kService, .name = "tenant-7/ci", .key_id = "key-12"};
const Proposer kNameless{.kind = CallerKind::kAnonymous};

std::string encoded() {
  GroupEncoder encoder;
  encoder.begin(Time{1});
  encoder.note_digest(1);
  encoder.add(CancelJob{.job = JobId{5}}, &kService);
  encoder.add(AdvanceTime{});
  encoder.add(PauseStarts{.by = "ana"}, &kNameless);
  EXPECT_EQ(encoder.command_count(), 3u);
  return encoder.take();
}

/// An entry of a payload: its type, and its content with the length before it.
std::string entry(uint64_t type, const std::string& content) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.varint(type);
  writer.fixed32(static_cast<uint32_t>(content.size()));
  return bytes + content;
}

std::string of_kind(int64_t kind) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.varint(1 << 3);
  writer.svarint(kind);
  return bytes;
}

ErrorCode error_of(const std::string& entries) {
  const Result<CommandGroup> group = decode_group(std::string(8, '\0') + entries);
  EXPECT_FALSE(group.ok());
  return group.ok() ? ErrorCode::kIo : group.error().code;
}

constexpr uint64_t kProposerEntry = 0x3FFE;

TEST(GroupProposer, ComesBackWithItsCommand) {
  const Result<CommandGroup> group = decode_group(encoded());
  ASSERT_TRUE(group.ok()) << group.error().message;
  ASSERT_EQ(group->commands.size(), 3u);
  ASSERT_NE(group->proposer_of(0), nullptr);
  EXPECT_EQ(*group->proposer_of(0), kService);
  EXPECT_EQ(group->proposer_of(1), nullptr);
  ASSERT_NE(group->proposer_of(2), nullptr);
  EXPECT_EQ(*group->proposer_of(2), kNameless);
  EXPECT_EQ(group->proposer_of(3), nullptr);
}

TEST(GroupProposer, TakesTheBytesThatWereForetold) {
  const auto size_of = [](const Proposer* proposer) {
    GroupEncoder encoder;
    encoder.begin(Time{1});
    encoder.add(AdvanceTime{}, proposer);
    return encoder.payload().size();
  };
  for (const Proposer& proposer : {kService, kNameless})
    EXPECT_EQ(size_of(&proposer), size_of(nullptr) + encoded_bytes(proposer));
}

TEST(GroupProposer, IsShownInADump) {
  const Result<CommandGroup> group = decode_group(encoded());
  ASSERT_TRUE(group.ok());
  const std::string dump = dump_group(*group);
  const std::size_t at = dump.find("\"proposer\":{");
  ASSERT_NE(at, std::string::npos);
  EXPECT_NE(dump.find("\"name\":\"tenant-7/ci\"", at), std::string::npos) << dump;
  EXPECT_NE(dump.find("\"proposer\":{", at + 1), std::string::npos) << dump;
}

TEST(GroupProposer, IsCorruptWithoutACommandTwiceOrOfNoKind) {
  const std::string command = entry(1, "");
  const std::string operator_entry =
      entry(kProposerEntry, of_kind(static_cast<int64_t>(CallerKind::kOperator)));
  EXPECT_TRUE(decode_group(std::string(8, '\0') + operator_entry + command).ok());
  EXPECT_EQ(error_of(operator_entry), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of(command + operator_entry), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of(operator_entry + operator_entry + command), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of(entry(kProposerEntry, "") + command), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of(entry(kProposerEntry, of_kind(99)) + command), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of(entry(kProposerEntry, "\xFF") + command), ErrorCode::kCorrupt);
}

TEST(GroupProposer, WithAFieldOfANewerVersionIsNotReadInPart) {
  std::string bytes = of_kind(1);
  ByteWriter writer(bytes);
  writer.varint(99 << 3);
  writer.svarint(1);
  EXPECT_EQ(error_of(entry(kProposerEntry, bytes) + entry(1, "")), ErrorCode::kVersion);
}

TEST(GroupProposer, GarbledBytesNeverCrash) {
  const std::string payload = encoded();
  for (std::size_t at = 8; at < payload.size(); ++at) {
    for (const int bits : {1, 64, 255}) {
      std::string garbled = payload;
      garbled[at] = static_cast<char>(static_cast<unsigned char>(garbled[at]) ^ bits);
      std::ignore = decode_group(garbled);
      std::ignore = decode_group(garbled.substr(0, at));
    }
  }
}

}  // namespace
}  // namespace gpusched
