#pragma once

#include <string>

#include "base/result.h"
#include "sign/keys/order_key.h"

/// The key for orders, and the next one while it changes: files in the authority's folder.
namespace gpusched {

struct OrderKeyFiles {
  std::string key;      ///< The key that signs.
  std::string next;     ///< The key that will sign; nodes are told of it while it is there.
  std::string changed;  ///< Empty; there once the key was changed: nodes are told that it is the only one.
  std::string told;     ///< The two keys that the scheduler has told nodes of, since it served with both.
};
OrderKeyFiles order_key_files(const std::string& authority_folder);

/// The public keys that nodes are to know, for a scheduler that signs with `key`. Empty: it was never
/// changed.
Result<std::string> told_order_keys(const std::string& authority_folder, const sign::OrderKey& key);

/// Notes that from now on nodes are told of those keys.
Result<Unit> note_told_order_keys(const std::string& authority_folder, const std::string& keys);

/// Makes the next key beside the one that signs, with the same owner. kAlreadyExists: there is one.
Result<Unit> begin_order_key_change(const std::string& authority_folder);
/// The next key becomes the one that signs, and the old one is gone. kNotFound: there is no next one.
/// kUnavailable: no scheduler has told nodes of it.
Result<Unit> finish_order_key_change(const std::string& authority_folder);

}  // namespace gpusched
