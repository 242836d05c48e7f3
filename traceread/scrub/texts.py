"""Names as they may be sent to others: absolute paths, hosts, users, addresses and command lines in them replaced, all else as it was.

The same text becomes the same replacement in all files of a job, so ranks still compare, and two texts never become one: "host-1",
"dir-2/train.py". Texts that differ in their numbers alone get the same letter, "path-b1" and "path-b2", because reports put such
names together; the first such family has none.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s\"'<>]++")
_EMAIL = re.compile(r"[\w.+#-]{1,64}@(?:[A-Za-z0-9#-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
_ADDRESS = re.compile(
    r"(?<![\w.])(?:[\d#]{1,3}\.){3}[\d#]{1,3}(?![\w.])"
    r"|(?<![\w:])(?:(?:[0-9A-Fa-f]{1,4}:){5,7}[0-9A-Fa-f]{1,4}|fe80::[0-9A-Fa-f:]{1,40})(?![\w:])"
)
_COMMAND = re.compile(
    r"(?<![\w.-])(?:\S*/)?(?:python[\d.#]*\s++(?:-\S++\s++)*\S*\.py\b.*|python[\d.#]*\s++-[mc]\s.*"
    r"|(?:torchrun|accelerate launch|deepspeed|srun|mpirun|mpiexec|sbatch)\s++\S.*)",
    re.DOTALL,
)

# A part of a path may hold spaces where a slash follows; brackets end it, for "file.py(41): function" is no part.
_PART = r"[^\s/\\\"'<>|*?;,()\[\]{}]++(?:\ [^\s/\\\"'<>|*?;,()\[\]{}]++(?=[/\\]))*+"
_PATH = re.compile(
    rf"""
    (?<![\w/\\.~-]) (?: ~[\w.-]*+ | [A-Za-z]: | \.{{1,2}} )? (?:[/\\]++{_PART})++ [/\\]?     # /data/x, ~/x, C:\x, ../x
    | (?<![/\\]) /(?:home|Users|root|mnt|scratch|lustre|gpfs|nfs|data\d*)/ {_PART} (?:/{_PART})*+     # glued to a word: -I/home/me/x
    """,
    re.VERBOSE,
)
# The file of a Python frame, "/home/me/my project/train.py(41): step", or of a source line, "….py:41 step": spaces are part of it.
_FRAME_FILE = re.compile(r"(?:~[\w.-]*|[A-Za-z]:|\.{1,2})?[/\\].*?\.pyx?(?=\(\d+\): |:\d+ )", re.DOTALL)

_LIBRARY = re.compile(r".*[/\\]((?:site-packages|dist-packages|torch|triton)[/\\].+|lib[/\\]python[\d.]*[/\\].+)", re.DOTALL)
_CODE_FILE = re.compile(r"(.*[/\\])([^/\\]+\.(?:pyx?|so(?:\.[\d.]+)?|dll|dylib)(?::\d+)?)", re.DOTALL)
_HOME = re.compile(r"(?:/home/|/Users/|[/\\]Users[/\\]|~)([A-Za-z][\w.-]*)")

# Names of machines and accounts that are words of training too: in a name they say nothing about the machine.
_WORDS = (
    "root user users home admin test train trainer training model models data step node host gpu cuda main worker default local localhost "
    "forward backward loss optimizer shared public guest ubuntu nobody python torch nccl kernel stream rank memory batch loader profile"
)
_SHORTEST = 3
_DIGITS = re.compile(r"\d+")


class Texts:
    """Replaces what names should not say, the same everywhere."""

    def __init__(self) -> None:
        self._replacements: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._families: defaultdict[str, dict[str, tuple[int, list[str]]]] = defaultdict(dict)  # "#" for numbers → those met
        self._known: dict[str, str] = {}
        self._owners: dict[str, str] = {}  # lower-case name of a host or account → replacement
        self._siblings: set[str] = set()  # patterns of names of other machines
        self._owner: re.Pattern[str] | None = None
        self._closed = False

    @property
    def counts(self) -> Counter[str]:
        """How many distinct texts of each kind were replaced."""
        return Counter({kind: len(found) for kind, found in self._replacements.items() if found})

    def learn(self, *, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        """Names of machines and accounts, to be replaced wherever they stand as whole words."""
        before = len(self._owners)
        for kind, names in (("host", hosts), ("user", users)):
            for name in names:
                replacement = self.host(name) if kind == "host" else self._replacement(kind, name)
                for spelled in (name, name.partition(".")[0]):
                    if len(spelled) >= _SHORTEST and not _is_common(spelled):
                        self._owners.setdefault(spelled.lower(), replacement)
                        self._owners.setdefault(_numberless(spelled).lower(), _numberless(replacement))
                        # "gn0042" is one of many machines called so
                        self._siblings |= {_DIGITS.sub(r"\\d+", re.escape(spelled.lower()))} if kind == "host" else set()
        if len(self._owners) != before:
            longest_first = sorted((*map(re.escape, self._owners), *self._siblings), key=len, reverse=True)
            self._owner = re.compile(rf"(?<![A-Za-z0-9#])(?:{'|'.join(longest_first)})(?![A-Za-z0-9#])", re.IGNORECASE)
            self._known.clear()

    def learn_from(self, names: Iterable[str]) -> None:
        """The accounts whose home directories stand in these names."""
        self.learn(users={m[1] for name in names if "/" in name or "\\" in name or "~" in name for m in _HOME.finditer(name)})

    def close(self) -> None:
        """From now on what was not met before stays as it is."""
        self._closed = True

    def host(self, name: str) -> str:
        """The replacement of a machine's name."""
        label = name.partition(".")[0]
        return self._replacement("host", (label if any(map(str.isalpha, label)) else name).lower())

    def clean(self, text: str) -> str:
        """The text without what it should not say."""
        cleaned = self._known.get(text)
        if cleaned is None:
            cleaned = self._known[text] = self._cleaned(text)
        return cleaned

    def _cleaned(self, text: str) -> str:
        frame = _FRAME_FILE.match(text)
        if frame is not None:
            return self._path(frame[0]) + self._cleaned(text[frame.end() :])
        if "://" in text:
            text = _URL.sub(lambda m: self._replacement("URL", m[0]), text)
        if " " in text:
            text = _COMMAND.sub(lambda m: self._replacement("command", m[0]), text)
        if "@" in text:
            text = _EMAIL.sub(lambda m: self._replacement("email", m[0]), text)
        if "/" in text or "\\" in text:
            text = _PATH.sub(lambda m: self._found(m[0]), text)
        if "." in text or ":" in text:
            text = _ADDRESS.sub(lambda m: self._replacement("address", m[0]), text)
        if self._owner is not None:
            text = self._owner.sub(lambda m: self._owners.get(m[0].lower()) or self.host(m[0]), text)
        return text

    def _found(self, text: str) -> str:
        """What stands for a stretch of text that looks like a path."""
        path = text.rstrip(".:")
        if sum(c.isalpha() for c in path) < 2 or re.fullmatch(r"\.{0,2}[/\\]\W*", path):
            return text  # a division, a fraction
        return self._path(path) + text[len(path) :]

    def _path(self, path: str) -> str:
        """A file of an installed library from its package on, a file of code without its directory, anything else as a number."""
        library = _LIBRARY.fullmatch(path)
        if library is not None:
            return library[1]
        code = _CODE_FILE.fullmatch(path)
        if code is not None:
            return f"{self._replacement('dir', code[1])}/{code[2]}"
        return self._replacement("path", path)

    def _replacement(self, kind: str, text: str) -> str:
        found, families = self._replacements[kind], self._families[kind]
        if text in found:
            return found[text]
        if self._closed:  # a report may say "#" for numbers
            return _numberless(found[families[text][1][0]]) if text in families else text
        family, members = families.setdefault(_numberless(text), (len(families), []))
        members.append(text)
        found[text] = f"{kind.lower()}-{_letters(family)}{len(members)}"
        return found[text]


def _is_common(name: str) -> bool:
    """Whether a name says nothing about whose it is: a word of training, with or without a number, or only a number."""
    return not (word := _DIGITS.sub("", name).strip("-_.").lower()) or word in _WORDS.split()


def _numberless(text: str) -> str:
    return _DIGITS.sub("#", text)


def _letters(number: int) -> str:
    """The letters of a family by its number from 0 on: none, b, c, …, z, ba, bb, …."""
    letters = ""
    while number:
        number, rest = divmod(number, 26)
        letters = chr(ord("a") + rest) + letters
    return letters
