#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "api/contract/backend.h"
#include "api/doors/events/event_feed.h"
#include "api/doors/rest_query.h"

namespace gpusched::api {

/// How a door writes what a watch tells; each is a piece of the client's wire.
class ChangeFormat {
 public:
  virtual ~ChangeFormat() = default;
  /// Every change after `sequence` is told.
  virtual std::string begin(uint64_t sequence) const = 0;
  /// Follows `begin` where a watch cannot be resumed: what changed meanwhile is not known any more, so the
  /// client has to list again.
  virtual std::string resync() const = 0;
  virtual std::string job(const JobView& job) const = 0;
  /// The job is in a state now that is not asked for.
  virtual std::string left(JobId job, JobState state) const = 0;
  /// The job, which had ended, is not known any more.
  virtual std::string forgotten(JobId job) const = 0;
  virtual std::string node(const NodeView& node) const = 0;
  /// Too much changed at once for this client: it has to list again.
  virtual std::string overflow() const = 0;
  /// The piece, with the word that every change up to `sequence` is told behind it.
  virtual std::string marked(std::string piece, uint64_t sequence) const = 0;
  /// The same word alone.
  virtual std::string mark(uint64_t sequence) const = 0;
};

/// The part of the changes that a watch tells.
struct ChangesWanted {
  JobFilter filter;
  bool nodes = false;
  std::optional<uint64_t> since = {};  ///< Resumes one that was told of everything up to there.
};
/// Reads `after_sequence`; without it the header Last-Event-ID, which browsers send when they reconnect.
std::optional<uint64_t> read_resumption(const HttpRequest& request, RestQuery& query);

/// Tells the client of each job that changes and matches the filter, and of each node if wanted, until it
/// goes away. A client that reads slowly gets the newest state of each, not each state between. A tenant that
/// is not there is answered by an error.
class ChangeWatch : public EventFeed {
 public:
  using EventFeed::EventFeed;
  virtual void start() = 0;
};
/// `stop` it when the client goes away.
std::shared_ptr<ChangeWatch> make_change_watch(Backend& backend, RunLater run_later, CallerPtr caller,
                                               std::unique_ptr<EventWire> wire,
                                               std::unique_ptr<const ChangeFormat> format,
                                               ChangesWanted wanted);
/// The same over HTTP, begun.
void send_changes(Backend& backend, HttpServer& server, const RestCallPtr& call,
                  std::unique_ptr<EventWire> wire, std::unique_ptr<const ChangeFormat> format,
                  ChangesWanted wanted);

}  // namespace gpusched::api
