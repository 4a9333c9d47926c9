"""The way of a release into a relay and of a teacher out of it stays as short as it is."""

import json
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
MOST = {  # entered by one request, and changes from one file to another. These numbers may only go down
    "PUT": {"files": 17, "functions": 79, "changes": 56},
    "GET": {"files": 15, "functions": 62, "changes": 46},
}


def test_a_release_and_a_teacher_cross_few_files_and_functions(tmp_path):
    command = [sys.executable, "-m", "support.walk", str(tmp_path), "--list"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=120, check=True)
    lines = (line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("PUT", "GET")))
    found = {method: json.loads(counts) for method, counts in lines}
    assert found.keys() == MOST.keys()
    longer = [(way, what) for way, counts in found.items() for what, count in counts.items() if count > MOST[way][what]]
    assert longer == [], f"{found}: {done.stderr}"
