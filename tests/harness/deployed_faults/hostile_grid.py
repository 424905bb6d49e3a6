"""A server's end of Flower's transport that plays messages again, keeps one back, mixes replies.

It lives in the server app's process, where `harness.deployed_faults.injection` puts it, and keeps
all that was sent in a folder, for another of Flower's runs to play again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict

SENT, ANSWERS = "sent.jsonl", "answers.jsonl"
ENROLS = "query.describe"
"""Kind of the message that any run may ask: it comes again in other runs alone."""
TRAINING = ("train", "train.secure")
_HELD = "held back"


@dataclass(frozen=True)
class Sent:
    """A message that was sent once, in whichever run."""

    kind: str
    node: int
    group: str
    content: str
    """Base64."""

    @classmethod
    def of(cls, message: Message) -> Sent:
        """What can be played again of a message."""
        at, content = message.metadata, recorddict_to_proto(message.content).SerializeToString()
        encoded = base64.b64encode(content).decode()
        return cls(at.message_type, at.dst_node_id, at.group_id, encoded)

    @property
    def digest(self) -> str:
        """Tells messages of other content from each other."""
        return hashlib.sha256(f"{self.node} {self.kind} {self.content}".encode()).hexdigest()

    def record(self) -> RecordDict:
        """The content."""
        proto = ProtoRecordDict.FromString(base64.b64decode(self.content))
        return recorddict_from_proto(proto)

    def again(self) -> Message:
        """The same message, as it can be sent now."""
        return Message(self.record(), self.node, self.kind, group_id=self.group)


class Adversary:
    """Between a run and the transport.

    Args:
        folder: of what was sent and answered in all runs so far.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._source = folder, random.Random(7)
        self._former, self._sent = list(read_sent(folder)), list[Sent]()
        self._waiting: dict[str, tuple[Sent, str]] = {}
        """What was sent and is not answered, by the transport's number: the message, and the number
        of that of which it is a copy; its own if it is none."""
        self._ready: list[Message] = []
        self._past: list[Message] = []
        self._held = not self._former

    def push(self, send: Callable[[list[Message]], list[str]], new: list[Message]) -> list[str]:
        """Send new messages in any order, each twice, or one of them not; and old ones."""
        sent = [Sent.of(message) for message in new]
        kept = [at for at, one in enumerate(sent) if not self._holds_back(one)]
        old = self._old(len(new))
        batch = [(sent[at], new[at], at) for at in kept]
        batch += [(sent[at], sent[at].again(), at) for at in kept if sent[at].kind != ENROLS]
        batch += [(one, one.again(), -1) for one in old]
        self._source.shuffle(batch)
        numbers = send([message for _, message, _ in batch])
        by_place = {
            at: number
            for (_, message, at), number in zip(batch, numbers, strict=True)
            if at >= 0 and message is new[at]
        }
        for (one, _, at), number in zip(batch, numbers, strict=True):
            self._waiting[number] = one, by_place.get(at, "")
        self._keep(sent)
        return [by_place.get(at) or self._refuse(new[at]) for at in range(len(new))]

    def _holds_back(self, one: Sent) -> bool:
        """In a later run the first question about data waits until it comes as an old one."""
        held = not self._held and one.kind in TRAINING
        self._held |= held
        return held

    def _refuse(self, message: Message) -> str:
        message.metadata.__dict__["_message_id"] = _HELD
        self._ready.append(Message(Error(1, _HELD), reply_to=message))
        return _HELD

    def _old(self, new: int) -> list[Sent]:
        """All of former runs at the first time, then as many of this one's as are new."""
        former, self._former = self._former, []
        own = [one for one in self._sent if one.kind != ENROLS]
        return former + self._source.sample(own, min(len(own), new))

    def _keep(self, sent: list[Sent]) -> None:
        self._sent += sent
        with (self._folder / SENT).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in sent)

    def pull(self, receive: Callable[[list[str]], Iterable[Message]]) -> list[Message]:
        """Once all that was sent is answered: replies twice, with all that ever came.

        Of a message that came twice the answer counts, whichever of the two has it: the adversary
        wants the run to go on.
        """
        for reply in receive(list(self._waiting)) if self._waiting else ():
            one, original = self._waiting.pop(reply.metadata.reply_to_message_id)
            self._note(one, reply)
            if original:
                reply.metadata.__dict__["_reply_to_message_id"] = original
            self._ready.append(reply)
        if self._waiting:
            return []
        now, self._ready = self._ready, []
        self._past += now
        self._source.shuffle(now)
        now.sort(key=lambda reply: not _done(reply))
        return now + now + self._past

    def _note(self, one: Sent, reply: Message) -> None:
        line = {"digest": one.digest, "done": _done(reply), "told": _told(reply)}
        with (self._folder / ANSWERS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_sent(folder: Path) -> Iterator[Sent]:
    """All that was sent in the runs whose messages a folder keeps."""
    path = folder / SENT
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return (Sent(**json.loads(line)) for line in lines)


def _done(reply: Message) -> bool:
    return reply.has_content() and reply.content.config_records["config"]["status"] == "done"


def _told(reply: Message) -> str:
    """Digest of what an answer says of data, which is without salt; empty where it says nothing."""
    from fedlens.client.messages import TrainReply

    if not _done(reply) or reply.metadata.message_type != "train":
        return ""
    answer = TrainReply.from_record(reply.content)
    return hashlib.sha256(answer.total.tobytes() + answer.norms.tobytes()).hexdigest()


def stand_between(http_grid: ModuleType, folder: Path) -> None:
    """Have Flower's grid of this process send and receive through an adversary."""
    grid: Any = http_grid.HttpGrid
    push, pull, adversary = grid.push_messages, grid.pull_messages, Adversary(folder)

    def push_messages(self: Any, messages: Iterable[Message]) -> list[str]:
        return adversary.push(lambda batch: list(push(self, batch)), list(messages))

    def pull_messages(self: Any, _numbers: Iterable[str]) -> list[Message]:
        return adversary.pull(lambda numbers: list(pull(self, numbers)))

    grid.push_messages, grid.pull_messages = push_messages, pull_messages
