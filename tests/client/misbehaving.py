"""What a reader in a child process may do; imports next to nothing, for each use starts one."""

from __future__ import annotations

import os
import time

MEBIBYTE = 1 << 20


def grow(path):
    yield {"first": 1}, b"x"
    yield {"size": len(bytearray(1 << 40))}, b""


def crash(path):
    yield {}, b""
    os.abort()


def hang(path):
    yield {}, b""
    time.sleep(600)


def flood(path):
    yield {}, bytes(2 * MEBIBYTE)


def print_words(path, word):
    print(word, flush=True)
    yield {"word": word}, word.encode()


def raise_a_page(path):
    yield {}, b""
    raise RuntimeError("first line\n" + "many more\n" * 1000)
