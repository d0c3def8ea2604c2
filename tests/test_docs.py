"""README and docs: links resolve, names exist, commands parse, snippets run, the site builds."""

import ast
import importlib.util
import inspect
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from torch import nn

import sheafed
from sheafed.cli import app
from sheafed.config import PRESETS, parse_experiment, read_experiment
from sheafed.methods import Node, NodeContext, NonCooperative
from sheafed.sweep.runner import Runner
from sheafed.sweep.trials import expand_variants, make_trials
from sheafed.training import train
from tests.helpers.federations import EDGES, agents, pilots, same, weights

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *DOCS.rglob("*.md")]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LATE = {"sheafed.models.adapters"}  # public, but its imports are slow
LINK = re.compile(r"\]\((?!\w+:)([^)\s]*)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def named(path):
    return str(path.relative_to(ROOT))


def snippets(path, language):
    return [code for found, code in FENCE.findall(path.read_text()) if found == language]


def prose(path):
    return FENCE.sub("", path.read_text())


def anchors(path):
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose(path)))
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_resolve(page):
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_promise_of_security_names_a_test_that_exists():
    text = (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) >= 25
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), name
    promised = text.partition("## What is promised")[2].partition("## Out of scope")[0]
    rows = [line for line in promised.splitlines() if line.startswith("|") and "---" not in line]
    headings = [line for line in rows if line.endswith("| tried by |")]
    assert len(headings) == 3
    assert all("::test_" in line for line in rows if line not in headings)


def test_readme_is_short_and_starts_with_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 700
    assert {"make demo", "make test"} <= set(re.findall(r"make \w+", text[:1000]))


def subcommands(command, path=()):
    for name, inner in getattr(command, "commands", {}).items():
        yield from subcommands(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = dict(subcommands(typer.main.get_command(app)))
TORCHRUN = {"--local-addr", "--nnodes", "--rdzv-conf", "--rdzv-endpoint"}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_and_flags_exist(page):
    """Every `sheafed` command that is shown parses, and what it overrides is a key."""
    text = page.read_text().replace("\\\n", " ")
    for line in re.findall(r"^ {4}(?:torchrun .*-m )?sheafed (.*)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        path = next(p for p in (tuple(words[:2]), tuple(words[:1])) if p in COMMANDS)
        context = COMMANDS[path].make_context(path[-1], words[len(path) :])
        overrides = context.params.get("overrides") or []
        if context.params.get("config") in PRESETS:
            read_experiment(context.params["config"], overrides)
        else:
            parse_experiment({}, overrides)
    options = [p for command in COMMANDS.values() for p in command.params]
    ours = {name for p in options for name in (*p.opts, *p.secondary_opts)}
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= ours | TORCHRUN


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_configs_are_valid(page):
    for table in snippets(page, "toml"):
        parse_experiment(tomllib.loads(table))


def imports(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=named)
def test_imports_are_public(page):
    """Docs and examples import from `sheafed` or one level below, and only what is exported."""
    codes = [page.read_text()] if page.suffix == ".py" else snippets(page, "python")
    for code in codes:
        for module in imports(code):
            assert not module.startswith("sheafed") or module.count(".") <= 1, module
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sheafed"):
                home = importlib.import_module(node.module)
                public = getattr(home, "__all__", dir(home))
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    assert alias.name in public or name in LATE or is_package(name), name


def is_package(name):
    return name.count(".") == 1 and importlib.util.find_spec(name) is not None


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_calls_fit_their_signatures(page):
    """Snippets that need data of the reader's own do not run; their calls are at least possible."""
    tree = ast.parse("\n".join(snippets(page, "python")))
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sheafed"):
            known |= {alias.name: imported(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import) and node.names[0].name == "sheafed":
            known["sheafed"] = importlib.import_module("sheafed")
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = find(call.func, known)
        if called is not None:
            options = {keyword.arg: None for keyword in call.keywords}
            inspect.signature(called).bind(*[None] * len(call.args), **options)


def imported(module, name):
    found = getattr(importlib.import_module(module), name, None)
    return found or importlib.import_module(f"{module}.{name}")


def find(expression, known):
    """Return what a dotted name of a snippet stands for, if it is ours."""
    if isinstance(expression, ast.Name):
        return known.get(expression.id)
    if isinstance(expression, ast.Attribute):
        owner = find(expression.value, known)
        return None if owner is None else getattr(owner, expression.attr)
    return None


def data(sizes=(48, 16)):
    def sample(n):
        return torch.randn(n, 6), torch.arange(n) % 3

    return dict(zip(("train", "test"), map(sample, sizes), strict=True))


def test_readme_snippets_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    train, align = (
        code.replace("epochs=60", "epochs=1") for code in snippets(ROOT / "README.md", "python")
    )
    stand_ins = {f"encoder_{k}": nn.Linear(6, d) for k, d in zip("abc", (4, 5, 3), strict=True)}
    stand_ins |= {f"head_{k}": nn.Linear(d, 3) for k, d in zip("abc", (4, 5, 3), strict=True)}
    (x, y), (x_test, y_test) = data().values()
    stand_ins |= {"x": x, "y": y, "x_test": x_test, "y_test": y_test, "x_new": torch.randn(7, 6)}
    stand_ins |= {"oslo_data": data(), "turin_data": data(), "pilots": torch.randn(64, 6)}
    exec(train, stand_ins)
    assert stand_ins["classes"].shape == (7,)
    assert Path("oslo-turin.onnx").stat().st_size > 0
    generator = np.random.default_rng(0)
    latents = {
        name: generator.normal(size=(200, d)) for name, d in zip("abc", (8, 4, 6), strict=True)
    }
    latents["z_oslo"] = generator.normal(size=(5, 4))
    exec(align, latents)
    assert latents["received"].shape == (5, 6)


@pytest.mark.parametrize("page", sorted((DOCS / "tutorial").glob("*.md")), ids=named)
def test_tutorials_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec("\n".join(snippets(page, "python")).replace("epochs=20", "epochs=2"), {})
    assert capsys.readouterr().out


def test_the_page_about_inputs_runs(capsys):
    """Its tokenizer and its model are small stand-ins."""
    transformers = importlib.import_module("transformers")
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    stand_ins = {
        "model": transformers.BertModel(config),
        "tokenizer": lambda texts: {"input_ids": [[5, len(text), 0] for text in texts]},
        "texts": ["a", "text"] * 40,
    }
    page = DOCS / "how-to" / "text-and-dict-inputs.md"
    exec("\n".join(snippets(page, "python")), stand_ins)
    assert "torch.Size([5, 16])" in capsys.readouterr().out
    assert stand_ins["reader"].dimension == 8
    assert stand_ins["network"].pilots.shared


def test_a_regression_runs(capsys):
    regression, *_ = snippets(DOCS / "how-to" / "your-own-task-and-metric.md", "python")
    exec(regression.replace("epochs=20", "epochs=2"), {})
    assert "communication" in capsys.readouterr().out


METHOD_PAGE = DOCS / "how-to" / "your-own-method.md"


@pytest.fixture
def cosine_gluing(tmp_path, monkeypatch, forget_modules):
    """The module that the page about methods shows."""
    example, _ = snippets(METHOD_PAGE, "python")
    (tmp_path / "cosine_gluing.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    forget_modules("cosine_gluing")
    return importlib.import_module("cosine_gluing")


def test_the_method_of_the_page_trains(cosine_gluing):
    def trained(method):
        return train(agents(), EDGES, method, pilots(), epochs=3)

    runs = {p: trained(cosine_gluing.CosineGluing(p, pilots_per_round=20)) for p in (0.0, 3.0)}
    assert same(weights(runs[0.0]), weights(trained(NonCooperative())))
    assert runs[3.0].history.last["penalty"] < 0.8 * runs[0.0].history.last["penalty"]
    assert not any(node.rejected for node in runs[3.0].nodes.values())
    assert "Cosine gluing" in repr(runs[3.0])


def test_the_distance_of_the_page_is_0_where_an_isometry_leads(cosine_gluing):
    own = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    rotation = torch.linalg.qr(own[:5])[0]
    moved = own @ rotation + 3
    assert float(cosine_gluing.distance(own, moved)) < 1e-5
    assert float(cosine_gluing.distance(own, moved[:, :3])) > 0.01  # two directions are lacking
    assert float(cosine_gluing.distance(own[:, :3], own @ rotation)) < 0.5


def test_the_method_of_the_page_is_named_and_swept(cosine_gluing, tmp_path):
    (table,) = snippets(METHOD_PAGE, "toml")
    (tmp_path / "mine.toml").write_text(table)
    code = tmp_path / "cosine_gluing.py"
    method = parse_experiment(tomllib.loads(table)).method
    assert method.load([code]) == cosine_gluing.CosineGluing(penalty=0.3)
    (varied,) = re.findall(r"--vary (\S+)", METHOD_PAGE.read_text())
    runner = Runner(str(tmp_path / "mine.toml"), [], tmp_path / "out", 1, allow_code=[str(code)])
    found = [
        runner.experiment(trial.overrides).method.load([code]).penalty
        for trial in make_trials(expand_variants([varied], []), [], [0], runner.experiment)
    ]
    assert found == [0, 0.1, 1]


def test_help_tells_what_a_node_has():
    shown = inspect.getdoc(Node)
    for name in ("context", "peers", "endpoints", "pilot_latents", "neighbours", "whitening"):
        assert f"{name} (" in shown
    assert {"seed:", "secret:"} <= set(inspect.getdoc(NodeContext).split())


def test_figures_by_agent_and_over_seeds(tmp_path, monkeypatch, capsys):
    """The network is small, and what builds it a stand-in."""
    monkeypatch.chdir(tmp_path)
    pilots, names = torch.randn(64, 6), ("paris", "oslo", "turin")

    def build(seed):
        torch.manual_seed(seed)
        return [
            sheafed.Agent(n, nn.Linear(6, 4), nn.Linear(4, 3), data=data()) for n in names
        ], pilots

    given = {"build": build, "edges": [("paris", "oslo"), ("oslo", "turin")]}
    given |= {"method": sheafed.NonCooperative()}
    page = snippets(DOCS / "how-to" / "use-a-trained-network.md", "python")
    seeds, by_pair, tables = (
        next(code for code in page if word in code)
        for word in ("stdev", "communication_of", "of_pair")
    )
    exec(seeds.replace("epochs=20", "epochs=1"), given)
    exec(by_pair + tables, given)
    assert "over 3 seeds" in capsys.readouterr().out
    evaluation = given["evaluation"]
    assert {(row["sender"], row["receiver"]) for row in given["pairs"]} == set(
        evaluation.communication
    )
    heard = [evaluation.communication[sender, "oslo"] for sender in ("paris", "turin")]
    assert evaluation.communication_of("oslo") == pytest.approx(sum(heard) / 2)
    assert [row["agent"] for row in given["agents_table"]] == sorted(names)
    assert {row["epoch"] for row in given["over_epochs"]} == {1}


def test_a_metric_of_scikit_learn():
    page = snippets(DOCS / "how-to" / "your-own-task-and-metric.md", "python")
    exec(next(code for code in page if "balanced_accuracy" in code), given := {})
    scores = torch.eye(3)[[0, 0, 1, 1, 2]]  # of class 0 two of three are found, of the others all
    assert given["balanced"](scores, torch.tensor([0, 0, 0, 1, 2])) == pytest.approx(8 / 9)


def test_notation_names_exist():
    """Every `sheafed...` in the table of symbols is a module, an attribute or an option."""
    names = re.findall(r"`(sheafed[\w.]*)`", (DOCS / "reference" / "notation.md").read_text())
    assert len(names) > 30
    missing = [name for name in names if not resolves(name)]
    assert missing == []


def resolves(name):
    try:
        importlib.import_module(name)
        return True
    except ModuleNotFoundError:
        owner_name, _, last = name.rpartition(".")
    owner = importlib.import_module("sheafed")
    for part in owner_name.split(".")[1:]:
        try:
            owner = getattr(owner, part)
        except AttributeError:
            owner = importlib.import_module(f"{owner.__name__}.{part}")
    if hasattr(owner, last):
        return True
    if not inspect.isclass(owner):
        return False
    declared = {key for cls in owner.__mro__ for key in getattr(cls, "__annotations__", {})}
    options = set(inspect.signature(owner).parameters)
    return last in declared | options or re.search(
        rf"self\.{last}\b.* = ", inspect.getsource(owner)
    )


@pytest.mark.filterwarnings("default")  # those of MkDocs and its plugins are not ours
def test_site_builds_without_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    build = importlib.import_module("mkdocs.commands.build")
    config = importlib.import_module("mkdocs.config")
    build.build(config.load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    pages = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.html")}
    assert {"index.html", "reference/api/linalg.html", "contributing.html"} <= pages
    page = (tmp_path / "reference" / "api" / "linalg.html").read_text()
    assert "sheafed.linalg.procrustes" in page
    assert "<math" in page
    everything = "".join(path.read_text() for path in tmp_path.rglob("*.html"))
    assert "arithmatex" not in everything
    assert "fonts.googleapis.com" not in everything
    assert "--join-timeout" in (tmp_path / "reference" / "command-line.html").read_text()
    assert "max_grad_norm" in (tmp_path / "reference" / "configuration.html").read_text()
