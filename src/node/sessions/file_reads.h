#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "node/ports/ports.h"
#include "node/sessions/keeper_process.h"

namespace gpusched {

/// Files of attempts that are being read, each by a keeper that is the attempt's user. Pieces are given one
/// at a time, when they are asked for. Not thread-safe; a part of Sessions.
class FileReads {
 public:
  FileReads(std::string shim_program, std::string data_folder, std::string instance, const Clock& clock,
            NodeLink& link);
  ~FileReads();

  void read(const v1::ReadFile& order, const AttemptProcess& process);
  void end_all();

  int descriptor() const { return epoll_; }
  void pump();
  /// Ends those of whom nobody asked anything in a minute.
  void tick();
  Time next_deadline() const;

 private:
  struct Read {
    KeeperProcess keeper;
    v1::ReadFile asked = {};  ///< Read that is to be answered next.
    bool waiting = false;     ///< It is not answered yet.
    int64_t size = 0;
    int64_t offset = 0;  ///< Offset of the next piece.
    uint32_t mode = 0;
    Time used_at = {};
  };
  void begin(const v1::ReadFile& order, const AttemptProcess& process);
  void ask(Read& read, const v1::ReadFile& order);
  /// False when the read is over and was forgotten.
  bool on_event(uint64_t number, Read& read, const shim::SessionEvent& event);
  void refuse(const v1::ReadFile& order, const std::string& code, const std::string& sentence);
  void forget(uint64_t number);

  const std::string shim_program_, data_folder_, instance_;
  const Clock& clock_;
  NodeLink& link_;
  int epoll_ = -1;
  std::map<uint64_t, Read> reads_;  ///< By the scheduler's request number.
  EndedKeepers ended_;
};

}  // namespace gpusched
