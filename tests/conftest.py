import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small matrices lose time to threads, and bitwise comparisons want one order of sums."""
    torch.set_num_threads(1)


@pytest.fixture
def in_process(monkeypatch):
    """Run trials here, which is quicker than in processes of their own; return which were run."""
    from sheafed.cli.run import run
    from sheafed.errors import SheafedError
    from sheafed.experiments.runner import FAILURE, Runner

    ran = []

    def run_here(runner, trial):
        ran.append(trial)
        directory = runner.out / trial.directory
        directory.mkdir(parents=True, exist_ok=True)
        try:
            run(runner.config, directory, [*runner.overrides, *trial.overrides], resume=True)
        except SheafedError as problem:
            (directory / FAILURE).write_text(str(problem))
            return False
        (directory / FAILURE).unlink(missing_ok=True)
        return True

    monkeypatch.setattr(Runner, "_run", run_here)
    return ran
