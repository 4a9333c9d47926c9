"""Until the first round is on disk, a command imports what it needs, and nothing else."""

import json
import subprocess
import sys

NEVER = ("IPython", "jinja2", "matplotlib", "narwhals", "pandas", "pyarrow", "sklearn", "torchvision")
NOT_BY_US = (  # beyond those modules of theirs that `import torch` itself imports
    "functorch", "mpmath", "networkx", "onnx", "sympy", "tensorboard", "torch._dynamo", "torch._export",
    "torch._functorch", "torch._higher_order_ops", "torch._inductor", "torch.ao", "torch.distributed", "torch.export",
    "torch.fx", "torch.jit", "torch.onnx", "torch.testing", "triton",
)  # fmt: skip
WATCHED = """
import json, sys
from pathlib import Path
import torch
brought = set(sys.modules)
def watch(event, arguments):
    if event == "open" and str(arguments[0]).endswith("records.jsonl") and arguments[1] == "a":
        Path("modules.json").write_text(json.dumps([sorted(brought), sorted(sys.modules)]))
sys.addaudithook(watch)
from repshare.cli.main import main
main(sys.argv[1:])
"""
WITHOUT_MATPLOTLIB = """
import sys
class Finder:  # importing it raises ModuleNotFoundError, as where it is not installed
    def find_spec(self, name, path=None, target=None):
        if name == "matplotlib":
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Finder())
from repshare.cli.main import main
main(sys.argv[1:])
"""
COMPARE = ("compare", "--dataset", "digits", "--clients", "2", "--samples", "60", "--rounds", "1", "--name", "first")


def run(code, *arguments, cwd):
    command = [sys.executable, "-c", code, *COMPARE, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


def within(modules, packages):
    return {name for name in modules if any(name == each or name.startswith(f"{each}.") for each in packages)}


def test_rounds_of_all_usual_methods_import_no_plots_no_compiler_and_no_other_packages(tmp_path):
    done = run(WATCHED, "--workers", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    brought, loaded = map(set, json.loads((tmp_path / "modules.json").read_text()))
    assert "repshare_lab.simulation.rounds" in loaded
    assert within(loaded, NEVER) == set()
    assert within(loaded - brought, NOT_BY_US) == set()


def test_a_worker_imports_nothing_else_either():
    code = (
        "import json, sys, torch; brought = set(sys.modules)\n"
        "import repshare_lab.simulation.pools\n"
        "print(json.dumps([sorted(brought), sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    brought, loaded = map(set, json.loads(done.stdout))
    assert "repshare_lab.simulation.workers" in loaded
    assert within(loaded, (*NEVER, "rich")) == set()
    assert within(loaded - brought, NOT_BY_US) == set()


def test_a_command_is_read_without_pytorch_and_numpy():
    code = "import sys, repshare_lab.cli.learning; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_the_figures_need_is_missed_before_the_training_not_after_it(tmp_path):
    done = run(WITHOUT_MATPLOTLIB, "--workers", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("repshare: this needs matplotlib, which is not installed: ")
    assert list(tmp_path.iterdir()) == []
