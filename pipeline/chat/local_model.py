"""A model folder of this machine as a speaker: `python -m steps.chat` in a process of its own, as it needs torch."""

from __future__ import annotations

import collections
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pipeline.chat.speakers import Events, ReplySettings, Told
from pipeline.local.executor import JOB_ENVIRONMENT
from pipeline.local.run import package_path
from steps.contract import WARNING_LINE_PREFIX, StepError
from steps.schemas.chat import EVENTS, Message, Question, Stop

KEPT_ERROR_LINES = 40
END_SECONDS = 5.0
# Its sums need not be the same on every machine, and a person waits.
FREE_THREADS = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")


class LocalModel:
    """Implements Speaker. tell: gets each line that the model's process warns with."""

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: ReplySettings,
        *,
        device: str = "auto",
        trust_remote_code: bool = False,
        takes_plain_text: bool = False,
        tell: Callable[[str], None],
    ) -> None:
        self.name, self._tell = name, tell
        # -P: a package named steps in the current folder is none of ours.
        self._command = [
            sys.executable, "-P", "-m", "steps.chat", f"--model={folder}", f"--device={device}",
            f"--max-new-tokens={settings.max_new_tokens}", f"--temperature={settings.temperature}",
            f"--top-p={settings.top_p}", f"--seed={settings.seed}",
            *(["--trust-remote-code"] if trust_remote_code else []),
            *(["--takes-plain-text"] if takes_plain_text else []),
        ]  # fmt: skip
        self._errors: collections.deque[str] = collections.deque(maxlen=KEPT_ERROR_LINES)
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []

    def start(self, events: Events) -> None:
        environment = {name: value for name, value in JOB_ENVIRONMENT.items() if name not in FREE_THREADS}
        # In a process group of its own: ctrl-C in the terminal is for this process, which tells the other.
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment | package_path(), process_group=0,
        )  # fmt: skip
        process = self._process
        self._readers = [
            threading.Thread(target=self._read_errors, args=(process,), daemon=True),
            threading.Thread(target=self._read_events, args=(process, events), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_events(self, process: subprocess.Popen[bytes], events: Events) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            # Of a process that was killed in the middle of a line there is no more to come.
            if line.endswith(b"\n"):
                events.put(Told(self, EVENTS.validate_json(line)))
        events.put(Told(self, None))

    def _read_errors(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        for raw in process.stderr:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            if line.startswith(WARNING_LINE_PREFIX):
                self._tell(line)
            else:
                self._errors.append(line)

    def ask(self, number: int, messages: list[Message]) -> None:
        self._send(Question(number=number, messages=messages))

    def stop(self, number: int) -> None:
        self._send(Stop(number=number))

    def _send(self, request: Question | Stop) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # It has ended, which its output tells.
            return

    def close(self) -> None:
        """Ends the process: its input ends, and what it is doing is not waited for."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join(END_SECONDS)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def end_error(self) -> Exception:
        """Killed is out of memory, as a rule; anything else is a bug of ours, with what it told."""
        assert self._process is not None
        code = self._process.wait()
        self._readers[0].join(END_SECONDS)
        if code == -9:
            remedy = "Use a machine with more memory, or a smaller model."
            return StepError(
                self.name, "its process was killed", limit="the machine's memory, most likely", remedy=remedy
            )
        told = "\n".join(self._errors)
        return RuntimeError(f"steps.chat ended with {code}: {told}")
