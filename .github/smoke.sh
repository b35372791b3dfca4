#!/bin/sh
# Proves that a binary starts where there is no Python: its version, and a whole session over stdio. For containers of
# old distributions, which have a shell and nothing else.
# Usage: sh .github/smoke.sh PATH_TO_BINARY
set -eu
"$1" --version
answers=$(printf '%s\n' \
  '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"smoke","version":"1"}}}' \
  '{"jsonrpc":"2.0","method":"notifications/initialized"}' \
  '{"jsonrpc":"2.0","id":2,"method":"tools/list"}' \
  '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"web_search_prime","arguments":{"search_query":""}}}' |
  "$1")
case $answers in
*'"web_search_prime"'*'search_query'*'"isError":true'*) echo "The session is as it should be." ;;
*)
  echo "The session is not as it should be: $answers" >&2
  exit 1
  ;;
esac
