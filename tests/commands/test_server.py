"""The server's answers, its limits, and a new model in the place of the old one."""

import asyncio
import io
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from flats import flats

from tfp_fnspace.commands import folder, server, wire, work

pyarrow = pytest.importorskip("pyarrow")
testclient = pytest.importorskip("fastapi.testclient")


@pytest.fixture(scope="module")
def client(fitted):
    with testclient.TestClient(server.application(fitted, max_bytes=20_000)) as found:
        yield found


def rows(count=5):
    """Returns rows of the table as JSON holds them."""
    return json.loads(flats(seed=1).head(count).to_json(orient="records"))


def row(size="50", city='"Bern"'):
    """Returns a body of one row, whose values JSON writers need not know."""
    return f'{{"rows": [{{"size": {size}, "city": {city}, "new": true}}]}}'


def expected(fitted, count=5, level=0.9):
    """Returns the predictions of the model itself."""
    return work.predictions(folder.load(fitted), flats(seed=1).head(count), level)


def test_json_is_answered_with_the_predictions_of_the_model(client, fitted):
    answer = client.post("/predict", json={"rows": rows()})
    assert answer.status_code == 200
    found = pd.DataFrame(answer.json()["predictions"])
    pd.testing.assert_frame_equal(found, expected(fitted), rtol=1e-6)


def test_arrow_is_answered_with_arrow(client, fitted):
    table, sink = pyarrow.Table.from_pandas(flats(seed=1).head(5)), io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = client.post(
        "/predict?level=0.5", content=sink.getvalue(), headers={"content-type": wire.ARROW}
    )
    assert answer.status_code == 200 and answer.headers["content-type"] == wire.ARROW
    found = pyarrow.ipc.open_stream(answer.content).read_pandas()
    pd.testing.assert_frame_equal(found, expected(fitted, level=0.5), rtol=1e-6)


def test_classes_are_words(classifier):
    with testclient.TestClient(server.application(classifier)) as client:
        answer = client.post("/predict", json={"rows": rows(2)})
    assert {each["class"] for each in answer.json()["predictions"]} <= {"Bern", "Lyon", "Turin"}


@pytest.mark.slow
def test_requests_that_wait_are_predicted_together(fitted, monkeypatch):
    sizes, own = [], work.predictions

    def counted(saved, table, level):
        sizes.append(len(table))
        return own(saved, table, level)

    monkeypatch.setattr(work, "predictions", counted)
    with testclient.TestClient(server.application(fitted)) as client:

        def ask(count):
            return client.post("/predict", json={"rows": rows(count)}).json()["predictions"]

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(ask, [1, 2, 3, 4] * 8))
    assert sum(sizes) == 80 and len(sizes) < 32
    for count, answer in zip([1, 2, 3, 4] * 8, answers, strict=True):
        pd.testing.assert_frame_equal(pd.DataFrame(answer), expected(fitted, count), rtol=1e-5)


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        ("{", 400, "The body must be .* Received: JSONDecodeError"),
        ('{"row": []}', 400, "Received: KeyError: 'rows'"),
        ("[1, 2]", 400, "Received: TypeError"),
        ('{"rows": []}', 422, "There must be a row"),
        ('{"rows": [{"size": 3}]}', 422, r"must have the columns \['city', 'new'\]"),
        (
            '{"rows": [{"size": "wide", "city": "Bern", "new": true}]}',
            422,
            "'size' must have numbers. Received: 'wide' in row 0",
        ),
        (row(size="Infinity"), 422, "numbers of the column 'size' must be finite. Received: inf"),
        (row(size="1e999"), 422, "numbers of the column 'size' must be finite. Received: inf"),
        (row(size='"-Infinity"'), 422, "'size' must be finite. Received: '-Infinity' in row 0"),
        (row(size="1e300"), 422, r"must be at most 1e\+100 in magnitude"),
        (
            row(size="1e39"),
            422,
            "standard deviations of the mean.* Received: x=1e.39",
        ),  # no float32
        (row(city="-Infinity"), 422, "column 'city' must be finite. Received: -inf in row 0"),
        (row(size="1" + 400 * "0"), 400, "OverflowError: int too large"),
        ("x" * 30_000, 413, "at most 20000 bytes"),
    ],
)
def test_bad_bodies_are_refused_and_the_server_goes_on(client, content, status, message):
    answer = client.post("/predict", content=content)
    assert answer.status_code == status
    assert re.search(message, answer.json()["detail"])
    assert client.post("/predict", json={"rows": rows(1)}).status_code == 200


@pytest.mark.parametrize("missing", [{"size": "NaN"}, {"city": "NaN"}])
def test_nan_is_a_missing_value_as_null_is(client, missing):
    answers = [client.post("/predict", content=row(**missing))]
    answers.append(client.post("/predict", content=row(**dict.fromkeys(missing, "null"))))
    assert [each.status_code for each in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize("level", ["0", "1", "nan", "high"])
def test_bad_levels_are_refused(client, level):
    assert client.post(f"/predict?level={level}", json={"rows": rows(1)}).status_code == 422


def test_a_body_that_does_not_arrive_is_given_up(client, monkeypatch):
    monkeypatch.setattr(wire, "_PATIENCE", 0.05)

    class Slow:
        async def stream(self):
            yield b"{"
            await asyncio.sleep(10.0)

    with pytest.raises(wire.HTTPException) as error:
        asyncio.run(wire.body(Slow(), 100))
    assert error.value.status_code == 408


def test_health_says_what_answers(client, fitted):
    card = json.loads((fitted / "card.json").read_text())
    assert client.get("/health").json() == {
        "status": "ok",
        "made": card["made"],
        "target": "rent",
        "inputs": {"size": "number", "city": "category", "new": "number"},
    }


def test_metrics_count_answers_and_rows(fitted):
    with testclient.TestClient(server.application(fitted)) as client:
        client.post("/predict", json={"rows": rows(3)})
        client.post("/predict", content="{")
        lines = client.get("/metrics").text.splitlines()
    assert 'answers_total{status="200"} 1.0' in lines
    assert 'answers_total{status="400"} 1.0' in lines
    assert "rows_total 3.0" in lines


def test_a_new_model_takes_over_and_a_damaged_one_does_not(fitted, classifier, tmp_path):
    path = tmp_path / "model"
    shutil.copytree(fitted, path)
    served = folder.Current(path)
    shutil.copytree(path, tmp_path / "half")
    (path / "card.json").write_text("{")  # another file, as after a copy that is not atomic
    with pytest.raises(ValueError, match="whole card.json"):
        served.load_if_new()
    assert served.saved.schema.target == "rent"
    shutil.rmtree(path)
    with pytest.raises(FileNotFoundError, match="must be a folder that `fit` has written"):
        served.load_if_new()
    folder.save(path, folder.load(classifier))
    served.load_if_new()
    assert served.saved.schema.target == "city"


def test_a_model_that_comes_while_another_is_read_is_not_mixed_with_it(
    fitted, classifier, tmp_path, monkeypatch
):
    path = tmp_path / "model"
    shutil.copytree(fitted, path)
    served = folder.Current(path)
    own, second = folder.load, folder.load(classifier)
    folder.save(path, own(fitted))

    def slow(read):
        found = own(read)
        folder.save(path, second)
        return found

    first = served.saved
    monkeypatch.setattr(folder, "load", slow)
    served.load_if_new()
    assert served.saved is first
    monkeypatch.setattr(folder, "load", own)
    served.load_if_new()
    assert served.saved.schema.target == "city"


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_swap_leaves_a_whole_model(fitted, classifier, tmp_path):
    path = tmp_path / "model"
    shutil.copytree(fitted, path)
    served = folder.Current(path)
    program = (
        "import itertools, sys\n"
        "from tfp_fnspace.commands import folder\n"
        "path, *others = sys.argv[1:]\n"
        "others = [folder.load(each) for each in others]\n"
        "asked = iter(sys.stdin.readline, 'go on\\n')\n"
        "for each in itertools.cycle(others):\n"
        "    next(asked, None)\n"
        "    folder.save(path, each)\n"
        "    print(each.schema.target, flush=True)\n"
    )
    for seconds in (0.0, 0.01, 0.03):
        words = [sys.executable, "-c", program, str(path), str(classifier), str(fitted)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        with subprocess.Popen(words, **pipes) as writer:
            for target in ("city", "rent"):
                writer.stdin.write("one more\n")
                assert writer.stdout.readline() == f"{target}\n"
                served.load_if_new()
                assert served.saved.schema.target == target
            writer.stdin.write("go on\n")  # one model after the other, until it is killed
            writer.stdout.readline()
            time.sleep(seconds)
            writer.kill()
        served.load_if_new()
        found = folder.load(path)
        assert found.schema.target == served.saved.schema.target
        assert len(work.predictions(found, flats(seed=1).head(2), 0.9)) == 2


def test_requests_beyond_those_that_may_wait_are_told_to_come_again(fitted, monkeypatch):
    own, free = work.predictions, threading.Event()

    def blocked(*arguments):
        free.wait(30.0)
        return own(*arguments)

    monkeypatch.setattr(work, "predictions", blocked)
    with testclient.TestClient(server.application(fitted, max_waiting=1)) as client:

        def ask(_):
            return client.post("/predict", json={"rows": rows(1)})

        with ThreadPoolExecutor(8) as threads:
            waiting = [threads.submit(ask, i) for i in range(8)]
            while not any(each.done() for each in waiting):
                time.sleep(0.01)
            free.set()
            answers = [each.result() for each in waiting]
    refused = [each for each in answers if each.status_code == 503]
    assert refused and all(each.headers["Retry-After"] == "1" for each in refused)
    assert {each.status_code for each in answers} == {200, 503}


class Held:
    """Requests of a client that wait, since the first prediction does not end until `answers`.

    Args:
        client: Client of the server.
        monkeypatch: The fixture.
    """

    def __init__(self, client, monkeypatch):
        self.client, self.waiting, self._free = client, [], threading.Event()
        self._threads, self._seen = ThreadPoolExecutor(8), threading.Semaphore(0)
        predictions, table = work.predictions, wire.table

        def blocked(*arguments):
            self._free.wait(60.0)
            return predictions(*arguments)

        def seen(*arguments):
            self._seen.release()
            return table(*arguments)

        monkeypatch.setattr(work, "predictions", blocked)
        monkeypatch.setattr(wire, "table", seen)
        monkeypatch.setattr(server, "_TOGETHER", 0.0)
        self.ask(row())
        time.sleep(0.2)  # its prediction has begun, so others wait for its end

    def ask(self, content):
        """Sends a body; returns when the server has checked its table."""
        self.waiting.append(self._threads.submit(self.client.post, "/predict", content=content))
        assert self._seen.acquire(timeout=60.0)
        self.client.get("/health")  # is answered after what the server had begun

    def answers(self):
        """Returns the answers to all but the first request."""
        self._free.set()
        return [each.result(60.0) for each in self.waiting][1:]


def test_a_request_without_a_prediction_does_not_fail_those_beside_it(fitted, monkeypatch):
    own = work.predictions

    def with_a_defect(saved, table, level):
        if 13.0 in list(table["size"]):
            raise ZeroDivisionError
        return own(saved, table, level)

    monkeypatch.setattr(work, "predictions", with_a_defect)
    app = server.application(fitted)
    with testclient.TestClient(app, raise_server_exceptions=False) as client:
        alone = client.post("/predict", content=row("51")).json()
        held = Held(client, monkeypatch)
        for size in ("51", "1e39", "51", "13.0", "51"):
            held.ask(row(size))
        answers = held.answers()
    assert [each.status_code for each in answers] == [200, 422, 200, 500, 200]
    for each in answers[::2]:
        (found,), (single,) = each.json()["predictions"], alone["predictions"]
        assert found == pytest.approx(single, rel=1e-5)


def test_a_request_is_predicted_by_the_model_that_checked_it(
    fitted, classifier, tmp_path, monkeypatch
):
    path = tmp_path / "model"
    shutil.copytree(fitted, path)
    monkeypatch.setattr(server, "_LOOK", 0.05)
    with testclient.TestClient(server.application(path)) as client:
        held = Held(client, monkeypatch)
        held.ask(row())
        folder.save(path, folder.load(classifier))
        for _ in range(600):
            if client.get("/health").json()["target"] == "city":
                break
            time.sleep(0.1)
        held.ask('{"rows": [{"size": 50, "new": true, "rent": 900}]}')
        old, new = held.answers()
    assert "median" in old.json()["predictions"][0]
    assert new.json()["predictions"][0]["class"] in {"Bern", "Lyon", "Turin"}


def test_errors_of_the_model_do_not_stop_the_server(fitted, monkeypatch):
    own = work.predictions
    app = server.application(fitted)
    with testclient.TestClient(app, raise_server_exceptions=False) as client:
        monkeypatch.setattr(work, "predictions", lambda *_: 1 / 0)
        assert client.post("/predict", json={"rows": rows(1)}).status_code == 500
        monkeypatch.setattr(work, "predictions", own)
        answer = client.post("/predict", json={"rows": rows(1)})
    assert answer.status_code == 200
    assert np.isfinite(answer.json()["predictions"][0]["mean"])
