#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/ids.h"

/// An attempt's key in the packets of shims.
namespace gpusched::shim {

inline void put_key(ByteWriter& out, const AttemptKey& key) {
  out.varint(key.job.value);
  out.varint(key.attempt);
  out.varint(key.member);
}

/// Fails `in` where there is none.
inline AttemptKey get_key(ByteReader& in) {
  AttemptKey key;
  key.job = JobId{in.varint()};
  const uint64_t attempt = in.varint();
  const uint64_t member = in.varint();
  if (attempt > UINT32_MAX || member > UINT32_MAX) in.fail();
  key.attempt = static_cast<uint32_t>(attempt);
  key.member = static_cast<uint32_t>(member);
  return key;
}

}  // namespace gpusched::shim
