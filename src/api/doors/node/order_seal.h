#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gpusched/v1/node.pb.h"
#include "sign/keys/order_key.h"

namespace gpusched::api {

/// Whether a node with a certificate obeys it only signed: all but what starts, ends and changes nothing.
bool is_order(const v1::SchedulerMessage& message);

/// Bytes behind a packed order to start and before its payload of so many bytes: the whole is the order
/// with that payload.
std::string payload_head(std::size_t bytes);

/// Bytes behind a packed order, which tell the term of the scheduler that gives it; empty: it has none (0).
std::string term_field(uint64_t term);

/// Signs what one stream sends to its node.
class OrderSeal {
 public:
  OrderSeal(std::shared_ptr<const sign::OrderKey> key, std::string node, std::string nonce)
      : key_(std::move(key)), node_(std::move(node)), nonce_(std::move(nonce)) {}

  /// The head of the next SignedOrder: behind it go both parts of the packed order, which are not copied.
  std::string head(std::string_view own, std::string_view shared);

 private:
  std::shared_ptr<const sign::OrderKey> key_;
  std::string node_, nonce_;
  uint64_t sequence_ = 0;
};

}  // namespace gpusched::api
