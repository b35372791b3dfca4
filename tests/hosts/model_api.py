"""Stands in for a host's model on loopback: makes the host call the tool, and keeps what the host tells the model.

It speaks as much of Anthropic's Messages API and of OpenAI's Responses API as Claude Code and Codex need for a turn of
two steps: the first answer calls the tool, several times at once; when the results are in, the second ends the turn.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOL_NAME = "web_search_prime"
TOOL_SEARCH_QUERY = "look up current information on the internet"


class ModelApi:
    """Use it with `with`. `calls` holds the arguments of each call that the model makes in its first step."""

    def __init__(self, calls: Sequence[dict[str, str]]) -> None:
        self.calls = calls
        self.tool: dict[str, Any] | None = None  # as the model saw it
        self.results: dict[str, str] = {}  # by the call's id: the text that reached the model
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.api = self  # type: ignore[attr-defined]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "ModelApi":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]] | None:
        """The events of a streamed answer, None for a path that is not known."""
        if path.startswith("/v1/messages") and "count_tokens" not in path:
            return self._answer_messages(body)
        return self._answer_responses(body) if path.startswith("/v1/responses") else None

    # Anthropic's Messages

    def _answer_messages(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        offered = next((tool for tool in body.get("tools", []) if tool["name"].endswith(TOOL_NAME)), None)
        self.tool = self.tool or offered
        blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
        for block in blocks:
            if block["type"] == "tool_result":
                self.results[block["tool_use_id"]] = text_of(block["content"])
        yield {"type": "message_start", "message": {**ANTHROPIC_MESSAGE, "model": body["model"]}}
        is_first_step = offered is not None and not self.results
        for index, arguments in enumerate(self.calls if is_first_step else []):
            use = {"type": "tool_use", "id": f"call_{index}", "name": offered and offered["name"], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            yield {"type": "content_block_start", "index": index, "content_block": use}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        if not is_first_step:
            yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}}
            yield {"type": "content_block_stop", "index": 0}
        end = {"stop_reason": "tool_use" if is_first_step else "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}}
        yield {"type": "message_stop"}

    # OpenAI's Responses

    def _answer_responses(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        found = [item for item in body["input"] if item["type"] == "tool_search_output"]
        namespace = ""
        for group in [*body["tools"], *(group for item in found for group in item["tools"])]:
            for tool in group.get("tools", []):
                if tool["name"] == TOOL_NAME:
                    self.tool, namespace = tool, group["name"]
        for item in body["input"]:
            if item["type"] == "function_call_output":
                self.results[item["call_id"]] = text_of(item["output"])
        yield {"type": "response.created", "response": {"id": "response"}}
        for index, item in enumerate(self._next_items(namespace, has_searched=bool(found))):
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        usage |= {"input_tokens_details": None, "output_tokens_details": None}  # type: ignore[dict-item]
        yield {"type": "response.completed", "response": {"id": "response", "usage": usage}}

    def _next_items(self, namespace: str, has_searched: bool) -> Iterator[dict[str, Any]]:
        """Looks the tool up where it is not offered at once, calls it, and says that it is done."""
        if not self.tool and not has_searched:
            search = {"type": "tool_search_call", "id": "search", "call_id": "search", "execution": "client"}
            yield {**search, "arguments": {"query": TOOL_SEARCH_QUERY}}
        elif self.tool and not self.results:
            for index, arguments in enumerate(self.calls):
                call = {"type": "function_call", "id": f"item_{index}", "call_id": f"call_{index}"}
                yield {**call, "name": TOOL_NAME, "namespace": namespace, "arguments": json.dumps(arguments)}
        else:
            content = [{"type": "output_text", "text": "Done.", "annotations": []}]
            yield {"type": "message", "id": "message", "role": "assistant", "content": content}


ANTHROPIC_MESSAGE = {
    "id": "message",
    "type": "message",
    "role": "assistant",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def text_of(content: Any) -> str:
    """The text of a tool's result, which is a text or a list of blocks."""
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        api: ModelApi = self.server.api  # type: ignore[attr-defined]
        events = api.answer(self.path, body)
        if events is None:
            self._send(404, "application/json", b"{}")
        else:
            text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
            self._send(200, "text/event-stream", text.encode())

    def do_GET(self) -> None:
        self._send(404, "application/json", b"{}")

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        pass

    def _send(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
