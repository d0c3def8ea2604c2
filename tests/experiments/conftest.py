import pytest


@pytest.fixture
def three(tmp_path):
    """A config of three small agents on digits: the paper's method, without beliefs."""
    path = tmp_path / "three.toml"
    path.write_text(
        """
        [data]
        name = "digits"
        pilots = 0.15
        split = [0.6, 0.2, 0.2]
        use = 0.5
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
