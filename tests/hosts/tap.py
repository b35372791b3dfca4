"""Stands between a host and the server, and writes down what passes: `python tap.py LOG COMMAND...`.

Each line of the log is a JSON object: `{"to": "server", "line": ...}` or `{"to": "host", "line": ...}` for a message,
`{"end": status}` at last.
Signals are handed on, so that the server ends as the host wants it to.
"""

import json
import os
import signal
import subprocess
import sys
import threading


def main() -> int:
    log_path, *command = sys.argv[1:]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: server.send_signal(received))
    with open(log_path, "a", encoding="utf-8", buffering=1) as log:

        def relay_to_server() -> None:
            assert server.stdin is not None
            for line in sys.stdin.buffer:
                log.write(json.dumps({"to": "server", "line": line.decode()}) + "\n")
                server.stdin.write(line)
                server.stdin.flush()
            server.stdin.close()

        threading.Thread(target=relay_to_server, daemon=True).start()
        for line in server.stdout:
            log.write(json.dumps({"to": "host", "line": line.decode()}) + "\n")
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        status = server.wait()
        log.write(json.dumps({"end": status}) + "\n")
    os._exit(status)  # the thread may be reading still


if __name__ == "__main__":
    main()
