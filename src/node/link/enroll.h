#pragma once

#include <string>

#include "base/result.h"
#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/link/tls_relay.h"

namespace gpusched {

/// How a node gets its certificate, and where it keeps it: a file in its data folder, key and certificate in
/// one file, so that no moment has one without the other.
std::string node_file_of(const std::string& data_folder);

/// A whole file of mode 0600, or the old one, whatever happens.
Result<Unit> write_private(const std::string& path, const std::string& text);

/// Shows a node token to the scheduler at `address` over TLS, and writes what it gives for it. The key is
/// made here, is kept before the token is shown, and does not leave this machine: who was cut off asks again
/// with the same token, and gets the same node. kInvalidArgument: without TLS. kUnauthenticated: the
/// scheduler refuses, and why. Blocks for at most `patience`.
Result<Unit> enroll(const std::string& address, const LinkTls& tls, const std::string& token,
                    const std::string& node_name, const std::string& version, const std::string& data_folder,
                    Duration patience);

/// The next certificate over the living stream, for a new key, which is kept in memory until it is there.
class NodeRenewal {
 public:
  explicit NodeRenewal(std::string node_file) : node_file_(std::move(node_file)) {}

  /// Whether two thirds of the certificate's time are over, and when to look again: seconds since 1970.
  bool is_due(int64_t now_s);
  /// The request to send. Again before there was an answer: another one.
  Result<std::string> request(int64_t now_s);
  /// Writes the new certificate in place of the old one. The answer is signed as an order is, so that what it
  /// says is the key of later orders is said by the key that signs them now.
  Result<Unit> take(const v1::Enrolled& answer);
  /// Writes other keys for orders in place of those before. True: they were others.
  Result<bool> take_order_keys(const std::string& keys);
  /// The scheduler does not renew it; it is asked again later.
  void refused() { key_.clear(); }

 private:
  const std::string node_file_;
  std::string key_;  ///< Key of the request under way.
  int64_t look_at_ = 0;
};

}  // namespace gpusched
