#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/result.h"
#include "node/ports/ports.h"

namespace gpusched {

/// One record's bytes, as docs/reference/agent-disk-layout.md says.
std::string encode_store_record(const StoreRecord& record);
std::optional<StoreRecord> decode_store_record(std::string_view bytes);

/// The attempts' records on disk: numbered segments `attempts.<n>.log` in the data folder, appended to,
/// synced by a thread of its own in groups, and replaced by a snapshot when they grow. A torn tail is cut, a
/// damaged record is passed over, and both are logged.
///
/// One thread calls everything but `synced_position`, which any thread may. A failing disk ends the process,
/// since what is durable is unknown then; on a full one `flush` says so and keeps what it could not write. A
/// reserve of `kReserveFileBytes` in the file `reserve` is given up before that, and before a start fails.
class AttemptLog final : public AttemptStore {
 public:
  static constexpr uint64_t kReserveFileBytes = 4 << 20;

  /// Reads what is there and begins a new segment with it, durably; on a full disk it goes on in the old one.
  /// kVersion: written by a newer agent.
  static Result<std::unique_ptr<AttemptLog>> open(const std::string& data_folder);
  ~AttemptLog() override;

  /// State by the records so far.
  const StoreImage& image() const { return image_; }

  uint64_t append(const StoreRecord& record) override;
  bool flush() override;
  void sync() override;

  /// Becomes readable when `synced_position` grew; the reader takes its value out.
  int synced_event() const { return synced_event_; }
  uint64_t synced_position() const { return synced_.load(std::memory_order_acquire); }

  /// Segments are replaced from this size on. For tests.
  void set_segment_bytes(uint64_t bytes) { segment_bytes_max_ = bytes; }

 private:
  explicit AttemptLog(std::string data_folder) : data_folder_(std::move(data_folder)) {}

  Result<Unit> load();
  Result<Unit> load_segment(uint64_t number);
  void take_segment(std::string_view bytes, uint64_t number);
  Result<Unit> begin_segment();
  Result<Unit> go_on_in_old_segment();
  bool give_up_reserve();
  void make_reserve() const;
  bool replace_segment();
  void remove_segments_before(uint64_t number) const;
  std::string segment_path(uint64_t number) const;
  std::string snapshot() const;
  void reserve(int file);
  std::size_t write_some(int file, std::string_view bytes) const;
  void run_sync();

  const std::string data_folder_;
  StoreImage image_;
  uint64_t segment_ = 0;  ///< Number of the one that is written.
  uint64_t segment_bytes_ = 0;
  uint64_t whole_segment_ = 0;   ///< The newest one that was read and begins with a whole snapshot; 0: none.
  uint64_t whole_bytes_ = 0;     ///< Bytes of it that are whole.
  uint64_t reserved_bytes_ = 0;  ///< Bytes of the file's blocks; a failed try is repeated with the next.
  uint64_t segment_bytes_max_ = 16u << 20;
  std::string buffer_;
  uint64_t position_ = 0;
  uint64_t flushed_ = 0;
  int synced_event_ = -1;
  std::atomic<uint64_t> synced_{0};

  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable wake_;
  int file_ = -1;
  uint64_t wanted_ = 0;
  bool segment_is_new_ = false;  ///< Older segments go once this one is durable.
  bool stopping_ = false;
  std::thread syncer_;
};

}  // namespace gpusched
