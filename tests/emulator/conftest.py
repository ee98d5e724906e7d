"""These tests need a process of their own: see plugin.py."""

import sys

collect_ignore_glob = [] if "tests.emulator.plugin" in sys.modules else ["test_*.py"]
