"""The network exchange: the contract, and what its links, certificates and bounds promise."""

from collections.abc import Collection
from pathlib import Path

import pytest

from exchange.contract import ExchangeContract
from exchange.peers import Together, connected
from sheafed.exchange import Exchange, Ledger
from sheafed.exchange.certificates import make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, ["a", "b", "c", "d", "relay"])
    return directory


class TestNetworkExchange(ExchangeContract):
    @pytest.fixture(autouse=True)
    def _certificates(self, certificates: Path) -> None:
        self.certificates = certificates

    def make(self, names: Collection[str]) -> Exchange:
        ledger = Ledger()
        return Together(connected(self.certificates, names, ledger=ledger), ledger)

    def inject(self, exchange: Exchange, receiver: str, data: bytes) -> None:
        assert isinstance(exchange, Together)
        exchange.inject(receiver, data)

    def settle(self, exchange: Exchange) -> None:
        assert isinstance(exchange, Together)
        exchange.settle()
