"""Writes what is in the packages of tools/package, as an SPDX 2.3 document: the files with their hashes, and the libraries
that are linked into the programs, with the versions of the Debian packages that they come from.

  tools/package_contents.py VERSION FOLDER [GPU_SCHEDULER]

The program tells whether the crates of src/consensus/raft/Cargo.lock are in the packages.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

# Name, Debian package, licence. All are in gpu-scheduler; gpu-agent and gpu-cli have some of them.
LIBRARIES = (("gRPC", "libgrpc++-dev", "Apache-2.0"), ("Protocol Buffers", "libprotobuf-dev", "BSD-3-Clause"),
             ("Abseil", "libabsl-dev", "Apache-2.0"), ("OpenSSL", "libssl-dev", "Apache-2.0"),
             ("c-ares", "libc-ares-dev", "MIT"), ("RE2", "libre2-dev", "BSD-3-Clause"), ("zlib", "zlib1g-dev", "Zlib"),
             ("libsodium", "libsodium-dev", "ISC"), ("yaml-cpp", "libyaml-cpp-dev", "MIT"),
             ("Boost", "libboost-json1.81-dev", "BSL-1.0"), ("utf8proc", "libutf8proc-dev", "MIT"),
             ("libstdc++", "libstdc++-12-dev", "GPL-3.0-or-later WITH GCC-exception-3.1"),
             ("GNU C Library", "libc6-dev", "LGPL-2.1-or-later"))

# The crates of the consensus of replicas, which gpu-scheduler has where it was built with it. Name and licence.
CRATES = (("raft", "Apache-2.0"), ("raft-proto", "Apache-2.0"), ("protobuf", "MIT"), ("bytes", "MIT"),
          ("byteorder", "Unlicense OR MIT"), ("cfg-if", "MIT OR Apache-2.0"), ("erased-serde", "MIT OR Apache-2.0"),
          ("fxhash", "Apache-2.0 OR MIT"), ("getrandom", "MIT OR Apache-2.0"), ("libc", "MIT OR Apache-2.0"),
          ("ppv-lite86", "MIT OR Apache-2.0"), ("rand", "MIT OR Apache-2.0"), ("rand_chacha", "MIT OR Apache-2.0"),
          ("rand_core", "MIT OR Apache-2.0"), ("serde", "MIT OR Apache-2.0"), ("serde_core", "MIT OR Apache-2.0"),
          ("slog", "MPL-2.0 OR MIT OR Apache-2.0"), ("thiserror", "MIT OR Apache-2.0"),
          ("zerocopy", "BSD-2-Clause OR Apache-2.0 OR MIT"))
LOCK = pathlib.Path(__file__).resolve().parent.parent / "src" / "consensus" / "raft" / "Cargo.lock"


def crate_versions():
    """Version of each crate in the lock file, by its name; of several the last one."""
    return dict(re.findall(r'^name = "(.+)"\nversion = "(.+)"$', LOCK.read_text(), re.MULTILINE))


def has_crates(program):
    """Whether the program has the consensus of replicas: its messages name their places in the crate."""
    return b"/raft-" in program.read_bytes()


def debian_version(package):
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    return shown.stdout or "NOASSERTION"


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def element(name, version, licence, **more):
    return {"SPDXID": spdx_id(name), "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
            "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION",
            "filesAnalyzed": False, **more}


def document(version, folder, scheduler=None):
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    files = sorted(path for path in folder.iterdir() if path.suffix not in (".json", ""))
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    packages = [element(name, version, "Apache-2.0", packageFileName=name,
                        checksums=[{"algorithm": "SHA256", "checksumValue": digest}]) for name, digest in digests.items()]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", spdx_id(name)) for name in digests]
    with_programs = [name for name in digests if not name.startswith("gpu_scheduler_client")]
    for name, package, licence in LIBRARIES:
        packages.append(element(name, debian_version(package), licence, comment=f"as Debian's {package} has it"))
        relations += [(spdx_id(whole), "CONTAINS", spdx_id(name)) for whole in with_programs]
    if scheduler is not None and has_crates(scheduler):
        versions = crate_versions()
        linked = [(f"crate {name}", versions[name], licence, "as src/consensus/raft/Cargo.lock has it") for name, licence in CRATES]
        linked.append(("Rust standard library", "NOASSERTION", "MIT OR Apache-2.0", "of the compiler that built the crates"))
        for name, of_crate, licence, comment in linked:
            packages.append(element(name, of_crate, licence, comment=comment))
            relations += [(spdx_id(package), "CONTAINS", spdx_id(name)) for package in with_programs]
    whole = hashlib.sha256("".join(digests.values()).encode()).hexdigest()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"gpu-scheduler-{version}", "documentNamespace": f"https://spdx.org/spdxdocs/gpu-scheduler-{version}-{whole}",
            "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: tools/package"]},
            "packages": packages,
            "relationships": [{"spdxElementId": left, "relationshipType": kind, "relatedSpdxElement": right}
                              for left, kind, right in relations]}


if __name__ == "__main__":
    print(json.dumps(document(sys.argv[1], *map(pathlib.Path, sys.argv[2:])), indent=1))
