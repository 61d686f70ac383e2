"""Tells pip which systems the programs in the wheel run on."""

import platform

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GLIBC = "2_36"  # Debian 12's, on which the programs are built; tests hold that they need no newer one.


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC}_{platform.machine()}"
