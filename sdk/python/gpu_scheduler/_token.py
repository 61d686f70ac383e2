"""Files that hold a credential."""

from .errors import AuthenticationError

_BYTES_MAX = 8192


def read_token_file(path: str) -> str:
    """The API key or token in a file.

    Raises:
        OSError: The file cannot be read.
        AuthenticationError: It holds neither a key nor a token.
    """
    with open(path, "rb") as file:
        text = file.read(_BYTES_MAX + 1).rstrip(b"\r\n ")
    if not text or len(text) > _BYTES_MAX or any(byte <= 32 or byte >= 127 for byte in text):
        raise AuthenticationError(path + " holds neither an API key nor a token; it must be a file of gpu-cli key "
                                  "create --out, or a copy of the scheduler's DATA_DIR/token", "usage")
    return text.decode("ascii")
