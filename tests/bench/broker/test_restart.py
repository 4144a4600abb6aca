"""A folder is filled as a broker would have left it, and a broker takes it up."""

from pathlib import Path

import msgspec
import pytest

from rove.bench.broker.restart import Folder, fill, restart
from rove.serve.disk.data_folder import INDEX_NAME
from rove.serve.disk.store import Store
from rove.testing.broker_processes import BrokerProcessError

SMALL = Folder(sessions=6, subscriptions=30, notifications=120, receivers=3)


def test_the_folder_holds_what_it_says(tmp_path: Path) -> None:
    fill(tmp_path, SMALL)
    with Store.open(tmp_path) as store:
        counts = {
            table: sum(1 for _ in store.load(table))
            for table in ("sessions", "subscriptions", "publications", "queue")
        }
    assert counts == {"sessions": 6, "subscriptions": 30, "publications": 40, "queue": 120}


@pytest.mark.soak
def test_a_broker_has_it_again_and_saves_what_makes_the_next_start_quicker(tmp_path: Path) -> None:
    fill(tmp_path / "data", SMALL)
    found = restart(tmp_path, SMALL)
    assert found.seconds > 0
    assert found.cpu_s > 0
    assert (tmp_path / "data" / INDEX_NAME).exists()
    more = msgspec.structs.replace(SMALL, notifications=121)
    with pytest.raises(BrokerProcessError, match=r"rove_queued_messages is 120 .* not 121"):
        restart(tmp_path, more)


def test_a_broker_that_does_not_start_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(BrokerProcessError, match="did not start again"):
        restart(tmp_path, SMALL)
