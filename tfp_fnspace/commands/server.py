"""An HTTP server of a fitted model: rows in, predictive distributions out.

- `POST /predict?level=0.9` takes `{"rows": [{column: value, ...}, ...]}` as JSON, or a table as an
  Arrow stream (`application/vnd.apache.arrow.stream`), and answers in the same format.
- `GET /health` tells which model answers, and `GET /metrics` has counts for Prometheus.

Rows of requests that arrive together are predicted together. If another model takes the place of
the folder, in one step of the file system as `fit` writes it, the server loads it and goes on.
"""

import asyncio
import collections
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from tfp_fnspace.commands import folder, wire, work

#: Rows that are predicted at once, and seconds in which requests wait for others.
_ROWS_AT_ONCE, _TOGETHER = 1000, 0.002

#: Seconds between two looks at the folder.
_LOOK = 1.0


def application(
    path: str | os.PathLike[str], max_bytes: int = 10_000_000, max_waiting: int = 1000
) -> FastAPI:
    """Returns the application, which an ASGI server such as uvicorn runs.

    Args:
        path: Folder of a fitted model.
        max_bytes: The largest body of a request; a larger one is answered with status 413.
        max_waiting: Requests that may wait; further ones are answered with status 503.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it is not one of a saved model.
    """
    served = folder.Current(path)
    registry = CollectorRegistry()
    answers = Counter("answers", "Answers by status", ["status"], registry=registry)
    rows = Counter("rows", "Rows that were predicted", registry=registry)
    seconds = Histogram("seconds", "Seconds of an answer", registry=registry)
    queue: asyncio.Queue[Any] = asyncio.Queue(max_waiting)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI):
        tasks = [asyncio.create_task(_answer(queue)), asyncio.create_task(_watch(served))]
        yield
        for task in tasks:
            task.cancel()

    app = FastAPI(title="tfp_fnspace", description=__doc__, lifespan=lifespan)

    @app.middleware("http")
    async def count(request: Request, call_next: Any) -> Response:
        begin = time.perf_counter()
        response = await call_next(request)
        answers.labels(response.status_code).inc()
        seconds.observe(time.perf_counter() - begin)
        return response

    @app.post("/predict")
    async def predict(request: Request, level: float = 0.9) -> Response:
        if not 0.0 < level < 1.0:
            raise HTTPException(422, f"`level` must be in (0, 1). Received: level={level}")
        is_arrow = request.headers.get("content-type", "").split(";")[0] == wire.ARROW
        table = wire.table(await wire.body(request, max_bytes), is_arrow)
        saved = served.saved  # predicts too, even if another model takes its place meanwhile
        future = asyncio.get_running_loop().create_future()
        try:
            saved.schema.inputs(table)
        except (ValueError, TypeError) as error:
            raise HTTPException(422, str(error)) from error
        try:
            queue.put_nowait((saved, table, level, future))
            found = await future
        except ValueError as error:  # the model refuses numbers that it cannot use
            raise HTTPException(422, str(error)) from error
        except asyncio.QueueFull:
            raise HTTPException(503, "Too many requests wait.", {"Retry-After": "1"}) from None
        rows.inc(len(found))
        return wire.response(found, is_arrow)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        schema, card = served.saved.schema, served.saved.card
        inputs = {column.name: column.kind for column in schema.used}
        return {"status": "ok", "made": card["made"], "target": schema.target, "inputs": inputs}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    return app


async def _watch(served):
    while True:
        await asyncio.sleep(_LOOK)
        with contextlib.suppress(Exception):  # gone, or not whole: the old model goes on
            await asyncio.to_thread(served.load_if_new)


async def _answer(queue):
    """Predicts the rows of requests that have arrived, together if the model is the same."""
    while True:
        waiting = [await queue.get()]
        await asyncio.sleep(_TOGETHER)
        while not queue.empty() and sum(len(each[1]) for each in waiting) < _ROWS_AT_ONCE:
            waiting.append(queue.get_nowait())
        alike = collections.defaultdict(list)
        for saved, table, level, future in waiting:
            alike[id(saved), level].append((saved, table, level, future))
        for chosen in alike.values():
            saved, _, level, _ = chosen[0]
            tables = [each[1] for each in chosen]
            found = await asyncio.to_thread(work.predictions_of_each, saved, tables, level)
            for (*_, future), each in zip(chosen, found, strict=True):
                if not future.cancelled():
                    wrong = isinstance(each, Exception)
                    (future.set_exception if wrong else future.set_result)(each)


def run(path: str | os.PathLike[str], host: str, port: int, echo: Callable[[str], None]) -> None:
    """Serves a folder until it is stopped.

    Args:
        path: Folder of a fitted model.
        host: Address.
        port: Port.
        echo: Function that prints a line.
    """
    import uvicorn

    app = application(path)
    echo(f"serving {path} at http://{host}:{port} (/docs explains it; Ctrl-C stops it)")
    uvicorn.run(app, host=host, port=port, log_level="warning")
