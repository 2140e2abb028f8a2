"""Who may know whom. The layers and the runtime seam are kept by this test, not by good intentions."""

from __future__ import annotations

import ast
from pathlib import Path

import architecture
import pytest

SOURCE = Path(__file__).parent.parent / "src" / "penstock"

ENGINE = tuple(package.name for package in architecture.ENGINE if package.name not in ("runtime", "kernel"))
MAY_IMPORT = {package.name: package.may_import for package in architecture.PACKAGES}

THE_WORLD = {
    "asyncio", "os", "time", "random", "socket", "select", "selectors", "threading", "subprocess", "multiprocessing",
    "secrets", "tempfile", "shutil", "pathlib", "io", "datetime", "signal", "concurrent", "uvloop", "logging", "ssl",
}  # fmt: skip

PACKAGES = {path.name for path in SOURCE.iterdir() if path.is_dir()}

WORLD_TYPES = {"random": {"Random"}}
"""Names that are only types: they carry no clock and no randomness of their own."""

NONDETERMINISTIC_CALLS = {"id", "hash", "open", "input"}


def modules(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


def imports(path: Path) -> list[tuple[int, str, tuple[str, ...]]]:
    found: list[tuple[int, str, tuple[str, ...]]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            found.append((node.lineno, node.module or "", tuple(alias.name for alias in node.names)))
    return found


def test_the_table_has_every_package_and_root_module() -> None:
    assert set(MAY_IMPORT) == {name for name in PACKAGES if not name.startswith("__")}
    assert set(architecture.ROOT_MODULES) == {path.name for path in SOURCE.glob("*.py")}


@pytest.mark.parametrize("module", sorted(architecture.ROOT_MODULES))
def test_root_modules_import_only_what_the_table_allows(module: str) -> None:
    for line, name, names in imports(SOURCE / module):
        parts = name.split(".")
        targets = ({parts[1]} if len(parts) > 1 else set(names)) & PACKAGES if parts[0] == "penstock" else set()
        assert targets <= architecture.ROOT_MODULES[module], f"{module}:{line}: may not know {targets}"


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_packages_import_only_what_their_layer_allows(package: str) -> None:
    for path in modules(package):
        entry_point = architecture.ENTRY_POINTS.get(path.relative_to(SOURCE).as_posix(), set())
        allowed = {package} | MAY_IMPORT[package] | entry_point
        for line, module, names in imports(path):
            parts = module.split(".")
            if parts[0] != "penstock":
                continue
            targets = ({parts[1]} if len(parts) > 1 else set(names)) & PACKAGES
            assert targets <= allowed, f"{path}:{line}: {package} may not know {targets - allowed}"


@pytest.mark.parametrize("package", [*ENGINE, "lag", "perf", "balance", "planning"])
def test_the_engine_reaches_the_world_only_through_the_runtime(package: str) -> None:
    for path in modules(package):
        for line, module, names in imports(path):
            root = module.split(".")[0]
            if root in THE_WORLD:
                assert names, f"{path}:{line}: import {module}"
                assert set(names) <= WORLD_TYPES.get(root, set()), f"{path}:{line}: from {module} import {names}"


@pytest.mark.parametrize("package", ENGINE)
def test_the_engine_calls_nothing_whose_answer_differs_between_runs(package: str) -> None:
    for path in modules(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in NONDETERMINISTIC_CALLS, f"{path}:{node.lineno}: {node.func.id}()"


@pytest.mark.parametrize("package", ENGINE)
def test_the_engine_iterates_over_no_set(package: str) -> None:
    """The order of a set of strings depends on PYTHONHASHSEED, and with it the run."""
    for path in modules(package):
        for node in ast.walk(ast.parse(path.read_text())):
            iterated = node.iter if isinstance(node, (ast.For, ast.comprehension)) else None
            if isinstance(iterated, (ast.Set, ast.SetComp)):
                pytest.fail(f"{path}:{iterated.lineno}: iterates over a set")
            if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name):
                assert iterated.func.id not in {"set", "frozenset"}, f"{path}:{iterated.lineno}: iterates over a set"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def imported_modules(path: Path, *, for_types: bool) -> list[str]:
    """Those of ours that importing this module imports first, and with `for_types` those that only its types need."""
    found: dict[str, None] = {}
    to_visit: list[ast.AST] = [ast.parse(path.read_text())]
    while to_visit:
        node = to_visit.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not for_types:
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue  # it imports when it is called
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found[inner if inner in MODULES else node.module or ""] = None
        to_visit += ast.iter_child_nodes(node)
    return [name for name in found if name in MODULES and name != module_name(path)]


def find_cycle(imports_of: dict[str, list[str]]) -> list[str]:
    """Modules that import each other in a ring; empty if there is none."""
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            path.append(name)
            for imported in imports_of[name]:
                if cycle := visit(imported):
                    return cycle
            path.pop()
            done.add(name)
        return []

    return next((cycle for name in sorted(imports_of) if (cycle := visit(name))), [])


def test_no_module_imports_itself_through_others() -> None:
    assert find_cycle({name: imported_modules(path, for_types=False) for name, path in MODULES.items()}) == []


@pytest.mark.parametrize("package", ["coordinators"])
def test_helpers_do_not_know_the_whole_they_are_part_of_even_as_a_type(package: str) -> None:
    """A cycle that exists only for the type checker is one in the reader's head all the same."""
    inside = {name: path for name, path in MODULES.items() if name.startswith(f"penstock.{package}")}
    known = {name: imported_modules(path, for_types=True) for name, path in inside.items()}
    assert find_cycle({name: [other for other in others if other in inside] for name, others in known.items()}) == []


MAY_END_A_NODE = {
    # The disk: a sync, a write, a read.
    ("log/core.py", "fatal"),
    ("log/flush.py", "spawn_essential"),
    ("broker/replicas/partition_directories.py", "fatal"),
    ("broker/replicas/partitions.py", "fatal"),
    ("broker/replicas/partitions.py", "spawn_essential"),  # recovery: what is not opened is not served
    ("broker/coordination/coordinator.py", "fatal"),
    ("broker/quorum/synced_end.py", "spawn_essential"),
    # A broken invariant of the quorum or of the image.
    ("broker/quorum/shell.py", "fatal"),
    ("broker/quorum/shell.py", "spawn_essential"),
    # The node lost its place in the cluster.
    ("broker/registration.py", "fatal"),
    ("broker/server.py", "fatal"),
}
"""See `penstock.runtime`. Everything else ends one request, one connection or one attempt. Adding a line here is a
decision: can anything that a peer sends lead there?"""


def test_few_places_may_end_a_node_and_all_of_them_are_listed() -> None:
    found = {
        (path.relative_to(SOURCE).as_posix(), node.func.attr)
        for package in ENGINE
        for path in modules(package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("fatal", "spawn_essential")
    }
    assert found == MAY_END_A_NODE
