#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "shim/container/container_plan.h"
#include "shim/container/container_tool.h"

namespace gpusched::shim {

/// Progress of an image's download, read from what podman or docker draw on a terminal.
class PullProgress {
 public:
  /// Takes output as it comes. True when the picture changed.
  bool take(std::string_view piece);
  /// "41 %", "2 of 7 layers" or "" when nothing is known yet.
  std::string text() const;

 private:
  struct Layer {
    double done = 0;
    double size = 0;  ///< Bytes; 0: not known.
    bool complete = false;
  };
  void take_line(std::string_view line);

  std::map<std::string, Layer, std::less<>> layers_;
  std::string rest_;  ///< An unfinished line.
};

struct ResolvedImage {
  std::string id;      ///< Reference that the runtime runs: exactly this content.
  std::string digest;  ///< Digest of its manifest, "sha256:..."; empty if the runtime does not report it.

  friend bool operator==(const ResolvedImage&, const ResolvedImage&) = default;
};

/// Whether a runtime's words about a failed pull mean that trying again cannot help: a name that the registry
/// does not know, a refused credential, a reference that is none.
bool is_final_refusal(std::string_view errors);

/// Finds the image of an attempt on this node, and pulls it when it has to.
///
/// One pull of one image runs at a time on a node: others wait for it and use what it brought. A pull that
/// fails is tried again with growing pauses for `pull_patience_ms`, apart from the retries of the job. What
/// the job's first attempt here ran is what its later ones run (`pin-JOB`). An image that was pulled with a
/// credential is used without a pull only by those who have the same credential.
///
/// Errors: kNotFound and kPermissionDenied are the job's own mistakes, kUnavailable is the world's,
/// kTimeout says that an order to end came.
class ImageFinder {
 public:
  using Say = std::function<void(const std::string& line)>;

  /// `say` gets one line for people whenever the picture changes.
  ImageFinder(const ContainerPlan& plan, SignalWatch& signals, Say say);

  Result<ResolvedImage> find();

 private:
  /// Result of an earlier look, valid while the runtime's images are unchanged.
  std::optional<ResolvedImage> recorded(const std::string& reference) const;
  void record(const std::string& reference, const ResolvedImage& image, const std::string& stamp) const;
  std::optional<ResolvedImage> inspect(const std::string& reference) const;
  bool is_open_to_us(const ResolvedImage& image) const;
  void note_credential(const ResolvedImage& image) const;

  void close_older_file(const std::string& reference) const;
  std::optional<ResolvedImage> here(const std::string& reference) const;
  Result<ResolvedImage> pull_once_on_node(const std::string& reference);
  Result<ResolvedImage> pull(const std::string& reference);
  Result<Unit> try_pull(const std::string& reference);
  Result<ResolvedImage> pulled(const std::string& reference) const;

  std::string stamp() const;
  std::string path(const std::string& name) const { return plan_.images_folder + '/' + name; }

  const ContainerPlan& plan_;
  SignalWatch& signals_;
  Say say_;
};

}  // namespace gpusched::shim
