"""Tables in the bodies of requests and answers, as JSON or as Arrow streams."""

import asyncio
import io
import json
from typing import Any

from fastapi import HTTPException, Request, Response

#: Content type of a table as an Arrow stream.
ARROW = "application/vnd.apache.arrow.stream"

#: Seconds within which the body of a request must arrive.
_PATIENCE = 10.0


async def body(request: Request, max_bytes: int) -> bytes:
    """Returns the body of a request.

    Args:
        request: The request.
        max_bytes: The largest body.

    Raises:
        HTTPException: If it is larger, or does not arrive in time.
    """

    async def read():
        found = bytearray()
        async for chunk in request.stream():
            found += chunk
            if len(found) > max_bytes:
                raise HTTPException(413, f"The body must have at most {max_bytes} bytes.")
        return bytes(found)

    try:
        return await asyncio.wait_for(read(), _PATIENCE)
    except TimeoutError:
        raise HTTPException(408, f"The body must arrive within {_PATIENCE:.0f} s.") from None


def table(content: bytes, is_arrow: bool) -> Any:
    """Returns the table of a body, a `pandas.DataFrame` of objects.

    Tables of objects can be joined, whatever their columns hold: one of missing values alone would
    have another dtype than one of numbers.

    Args:
        content: The body.
        is_arrow: Whether it is an Arrow stream, not JSON.

    Raises:
        HTTPException: If it is not a table, or has no row.
    """
    import pandas

    try:
        if is_arrow:
            import pyarrow

            found = pyarrow.ipc.open_stream(content).read_pandas()
        else:
            found = pandas.DataFrame.from_records(json.loads(content)["rows"])
    except Exception as error:
        rule = 'The body must be {"rows": [{column: value, ...}, ...]} or an Arrow stream.'
        raise HTTPException(400, f"{rule} Received: {type(error).__name__}: {error}") from error
    if not len(found):
        raise HTTPException(422, "There must be a row. Received: none")
    return found.astype(object)


def response(table: Any, is_arrow: bool) -> Response:
    """Returns the answer that has a table.

    Args:
        table: `pandas.DataFrame`.
        is_arrow: Whether to answer with an Arrow stream, not JSON.
    """
    if not is_arrow:
        text = table.to_json(orient="records", double_precision=15)
        return Response(f'{{"predictions":{text}}}', media_type="application/json")
    import pyarrow

    sink, arrow = io.BytesIO(), pyarrow.Table.from_pandas(table, preserve_index=False)
    with pyarrow.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return Response(sink.getvalue(), media_type=ARROW)
