"""The lessons are no part of the package: the folder that has them comes last, behind any copy that is tested."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)
