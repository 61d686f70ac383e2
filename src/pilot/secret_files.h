#pragma once

#include <optional>
#include <string>

#include "base/result.h"

/// Files that hold a secret: an API key, or the key of a model. Only their owner may read them, and a secret
/// in them may be sealed with a passphrase (sign/keys/sealed_secret.h).
namespace gpusched::pilot {

/// The passphrase of sealed secrets: out of a file that only its owner may read, or else asked for on the
/// terminal, once and only when it is needed. Not thread-safe.
class Passphrase {
 public:
  /// `file`: empty: there is none.
  explicit Passphrase(std::string file) : file_(std::move(file)) {}

  /// kNotFound: the file cannot be read, or there is neither a file nor a terminal; kPermissionDenied: others
  /// may read the file.
  Result<std::string> get();
  /// The same for a new secret: on a terminal it is asked for twice. kInvalidArgument: the two differ.
  Result<std::string> get_new();

 private:
  const std::string file_;
  std::optional<std::string> known_;
};

/// The secret in the file, opened if it is sealed. Errors as Passphrase::get and sign::open_sealed_secret,
/// and kNotFound: the file cannot be read; kPermissionDenied: others may read it.
Result<std::string> read_secret(const std::string& path, Passphrase& passphrase);

/// Whether the file holds a sealed secret.
bool is_sealed_file(const std::string& path);

/// Reads one line, a secret, from the terminal without showing it, or from the standard input. kNotFound: it
/// is empty.
Result<std::string> ask_secret(const std::string& prompt);

/// Writes the secret, sealed, into a file of mode 0600, in place of one that is there. kIo.
Result<Unit> write_sealed(const std::string& path, const std::string& secret, const std::string& passphrase);

}  // namespace gpusched::pilot
