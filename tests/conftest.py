import gc
import signal
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small matrices lose time to threads, and bitwise comparisons want one order of sums."""
    import torch  # not by the process that only distributes tests

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def garbage_is_sought_less_often():
    """Among a million objects of libraries and tests each search takes as long as a short test."""
    gc.set_threshold(10_000)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of one authority for all agents and relays of the tests."""
    from tests.helpers.certificates import write_certificates

    return write_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def foreign_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the same names by an authority that is not trusted."""
    from tests.helpers.certificates import write_certificates

    return write_certificates(tmp_path_factory.mktemp("foreign"))


@pytest.fixture
def default_ctrl_c():
    """Ctrl-C as in a fresh process: torchrun, once run in this one, leaves its own handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def forget_modules(monkeypatch):
    """Return a function that names modules of the test's own, to be imported anew by the next."""
    import sys

    def forget(*names):
        for name in names:
            # Set before it is deleted, so that its absence is what is restored.
            monkeypatch.setitem(sys.modules, name, None)
            del sys.modules[name]

    return forget


@pytest.fixture
def short_reading_heads(monkeypatch):
    """Fit heads after training in three steps, not a hundred, where it matters not how well."""
    from sheafed.methods.head_steps import take_steps
    from sheafed.methods.reading_head_fit import fit_reading_head

    monkeypatch.setitem(fit_reading_head.__kwdefaults__, "steps", 3)
    monkeypatch.setattr(take_steps, "__defaults__", (3,))


@pytest.fixture
def in_process(monkeypatch):
    """Run trials in this process, which is quicker, and without plots; return which were run."""
    from sheafed.config import running
    from sheafed.errors import SheafedError
    from sheafed.sweep.runner import FAILURE, Runner

    ran = []

    def run_here(runner, trial):
        ran.append(trial)
        directory = runner.out / trial.directory
        directory.mkdir(parents=True, exist_ok=True)
        try:
            experiment = runner.experiment(trial.overrides)
            running.run_experiment(experiment, directory, resume=True)
        except SheafedError as problem:
            (directory / FAILURE).write_text(str(problem))
            return False
        (directory / FAILURE).unlink(missing_ok=True)
        return True

    monkeypatch.setattr(Runner, "_run", run_here)
    monkeypatch.setattr(running, "plot_label_distribution", lambda *_, **__: None)
    return ran


@pytest.fixture
def three(tmp_path):
    """A config of three small agents on digits: the paper's method, without distillation."""
    path = tmp_path / "three.toml"
    path.write_text(
        """
        [data]
        name = "digits"
        pilot_fraction = 0.15
        split = [0.6, 0.2, 0.2]
        train_fraction = 0.5
        [model]
        members = ["bo", "dee", "eli"]
        [graph]
        kind = "line"
        [training]
        epochs = 1
        batch_size = 32
        """
    )
    return str(path)
