"""Draws values from schemas: every field, plausible and extreme, with limits plus and minus one. Seeded."""

import re

from conftest import ROOT

# Numbers at which formats and arithmetic break, besides the project's own limits.
EDGES = [0, 1, -1, 2, 7, 8, 63, 64, 65, 127, 128, 255, 256, 999, 1000, 1001, 2**31 - 1, 2**31, -2**31, 2**32 - 1, 2**32,
         2**53, 2**53 + 1, 2**62, 2**63 - 1, -2**63, 2**64 - 1]
TEXTS = ["", "a", "default", "0", "-1", "true", "null", " ", "é", "名前", "🙂", "a\tb", "a\nb", "a\u0000b", "\u202e", "\x7f", "a/b", "../..",
         "a b", "%2e%2e", "'\"\\", "<b>", "${HOME}", "#0", "job-1", "job-1[0]", "job-18446744073709551615", "tenant-1", "n1",
         "after_ok:job-1", "after_any:#0", "1-3:2%2", "0-999999", "2030-01-01T00:00:00Z", "requeue", "cancel", "online",
         "1g.10gb", "A100-SXM4-80GB", "zone=a", "!zone", "zone in (a,b)", "http://127.0.0.1:1/x", "USR1", "10m", "50ms",
         "move-0000000000000000", "auto", "*", "?", "-"]


def project_limits():
    """The numbers of src/base/*limits.h, which are where code that counts wrongly goes wrong."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src" / "base").glob("*limits.h")))
    found = set()
    for name, value in re.findall(r"inline constexpr (?:u?int\d+_t|std::size_t) (k\w+) =\s*([^;]+);", text):
        plain = re.sub(r"\b(?:u?int\d+_t|std::size_t)\{([^}]*)\}", r"\1", value).replace("'", "").replace("u", "")
        if re.fullmatch(r"[\d\s<+*()-]+", plain):
            found.add((name, eval(plain)))  # pylint: disable=eval-used
    assert len(found) > 50, "limits.h is not read any more"
    return dict(found)


LIMITS = project_limits()
LENGTHS = sorted({n + d for n in (LIMITS["kNameBytesMax"], LIMITS["kRequestKeyBytesMax"], LIMITS["kReasonBytesMax"],
                                  LIMITS["kMigProfileMax"], LIMITS["kPreemptUrlBytesMax"]) for d in (-1, 0, 1)})
COUNTS = sorted({n + d for n in (LIMITS["kLabelCountMax"], LIMITS["kLabelTermsMax"], LIMITS["kPartsMax"],
                                 LIMITS["kGpuModelsMax"], LIMITS["kDependenciesMax"], LIMITS["kNodeLabelsMax"],
                                 LIMITS["kBookingUsersMax"]) for d in (-1, 0, 1)})
BULKY = sorted({n + d for n in (LIMITS["kEnvironmentCountMax"], LIMITS["kCommandWordsMax"], LIMITS["kBatchJobsMax"])
                for d in (-1, 0, 1)})
NUMBERS = sorted({n + d for n in LIMITS.values() for d in (-1, 0, 1)} | set(EDGES) | {-n for n in LIMITS.values()})


class Draw:
    """Values of one seed. `known` has names that exist, so that requests come further than "not found"."""

    def __init__(self, random):
        self.random = random
        self.known = {"job": [], "tenant": ["default"], "node": ["n1"], "reservation": []}
        self.bytes_left = 0

    def begin(self, bytes_max=1 << 20):
        """Before each request: what all its texts together may have."""
        self.bytes_left = bytes_max

    def chance(self, permille):
        return self.random.randrange(1000) < permille

    def integer(self, low, high):
        """Within the type; mostly small."""
        if self.chance(400):
            return self.random.randrange(0, 9)
        for _ in range(20):
            number = self.random.choice(NUMBERS)
            if low <= number <= high:
                return number
        return self.random.randint(low, high)

    def real(self):
        return self.random.choice([0.0, 1.0, 0.5, -0.0, -1.0, 0.001, 1e-300, 1e18, 1e300, 1.7976931348623157e308, 0.9999999])

    def text(self, name=""):
        """What fits the field's name mostly, else anything."""
        kind = next((kind for kind in self.known if kind in name), None)
        if kind is not None and self.known[kind] and self.chance(700):
            return self.random.choice(self.known[kind])
        if self.chance(80):
            size = min(self.random.choice(LENGTHS), self.bytes_left)
            self.bytes_left -= size
            return self.random.choice(["x", "9", "%"]) * size
        if self.chance(5):
            size = min(self.random.choice([LIMITS["kSpecBytesMax"] + d for d in (-64, 0, 1)]), self.bytes_left)
            self.bytes_left -= size
            return "y" * size
        return self.random.choice(TEXTS)

    def count(self):
        """Of a list or map."""
        if self.chance(900):
            return self.random.choice([0, 1, 1, 1, 2, 3])
        count = self.random.choice(COUNTS if self.chance(900) else BULKY)
        # Long lists have short elements.
        return count if self.bytes_left > 0 else 1

    def seconds(self):
        """Of an instant: now, near, the ends of what times can be."""
        return self.random.choice([0, 1, -1, 1_700_000_000, 1_900_000_000, 4_000_000_000, 2**32, 4_611_686_018, 4_611_686_019,
                                   253_402_300_799, 253_402_300_800, -62_135_596_800, -62_135_596_801, 2**63 - 1, -2**63])
