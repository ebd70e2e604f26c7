"""Scores `feedfleet parse` on feedparser's test corpus: corpus.py FEEDFLEET CORPUS. Run by dev/corpus.

Each file of the corpus contains a comment with feedparser's expected result, as a Python expression. Expressions that
only use titles, links, ids and the number of entries apply to any parser; this script checks them with ours. It also
compares the number of entries with feedparser's own for every file that feedparser accepts as a feed, and every field
with feedparser's value (corpus_fields.py). Texts are compared without markup, references and white space.
"""

import ast
import collections
import concurrent.futures
import html
import json
import pathlib
import re
import subprocess
import sys
import unicodedata

import feedparser

import corpus_fields

# Thresholds: expectations met, those in the folder of encodings, the share of files with feedparser's number of
# entries, the share of equal values where feedparser is right.
MET, ENCODINGS, COUNTS, FIELDS = 540, 100, 0.98, 0.99
SECONDS = 10  # for one file, the process included
HOST = "http://127.0.0.1:8097"  # where feedparser's tests serve the corpus from
LEFT_OUT = ("http", "compression")  # folders that are about fetching
FEED_KEYS = {"title", "link", "id"}
ENTRY_KEYS = FEED_KEYS | {"guid"}


def read_case(path):
    """Returns the bytes of a file, the headers to serve it with, and its expectation."""
    data = path.read_bytes()
    for encoding in ("utf-8", "utf-16", "utf-32", "cp037"):
        comment = re.search(r"<!--(.*?)-->", data[:6000].decode(encoding, "ignore"), re.S)
        if comment and "Expect:" in comment[1]:
            break
    else:
        return data, {}, None
    headers = {name.lower(): value for name, value in re.findall(r"^\s*Header:\s*([\w-]+)\s*:\s*(.*?)\s*$", comment[1], re.M)}
    if path.name.startswith("http_"):
        headers.setdefault("content-location", HOST + str(path)[str(path).rindex("/tests/"):])
    expectation = re.search(r"^\s*Expect:\s*(.*?)\s*$", comment[1], re.M)
    return data, headers, expectation and expectation[1]


class Beyond(Exception):
    """An expectation uses something that is not checked here."""


class Text(str):
    """A text that equals texts that read the same."""

    def __eq__(self, other):
        return plain(self) == plain(other) or address(self) == address(other)

    __hash__ = str.__hash__


def plain(text):
    text = re.sub(r"<[^>]*>", "", html.unescape(str(text)))
    return " ".join(unicodedata.normalize("NFC", html.unescape(text)).split())


def address(text):
    return re.sub(r"^(https?://[^/?#]+)$", r"\1/", str(text).strip())


def holds(expectation, feed):
    """Returns whether the expectation holds. Raises Beyond if it cannot be checked for any feed."""
    tree = without_bozo(ast.parse(expectation.strip(), mode="eval").body)
    if tree is None:
        raise Beyond
    check(tree)
    named = {key: Text(feed.get(key) or "") for key in FEED_KEYS}
    entries = [{key: Text(entry.get("id" if key == "guid" else key) or "") for key in ENTRY_KEYS} for entry in feed["entries"]]
    try:
        return bool(evaluate(tree, {"feed": named, "entries": entries}))
    except (IndexError, KeyError, TypeError):
        return False


def without_bozo(node):
    """Returns the expression without feedparser's flag for ill-formed documents."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        parts = [part for part in map(without_bozo, node.values) if part is not None]
        return ast.BoolOp(node.op, parts) if len(parts) > 1 else next(iter(parts), None)
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return None if isinstance(inner, ast.Name) and inner.id.startswith("bozo") else node


def check(node):
    match node:
        case ast.BoolOp(values=parts):
            for part in parts:
                check(part)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=inner):
            check(inner)
        case ast.Compare(left=left, ops=operators, comparators=others):
            if not all(isinstance(operator, tuple(COMPARISONS)) for operator in operators):
                raise Beyond
            for part in (left, *others):
                check(part)
        case ast.Constant() | ast.Name(id="feed" | "entries"):
            pass
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id="feed" | "entries")]):
            pass
        case ast.Subscript(value=ast.Name(id="feed"), slice=ast.Constant(value=key)) if key in FEED_KEYS:
            pass
        case ast.Subscript(value=ast.Name(id="entries"), slice=ast.Constant(value=int())):
            pass
        case ast.Subscript(value=ast.Subscript(value=ast.Name(id="entries")) as entry, slice=ast.Constant(value=key)) if key in ENTRY_KEYS:
            check(entry)
        case _:
            raise Beyond


COMPARISONS = {
    ast.Eq: lambda one, other: one == other,
    ast.NotEq: lambda one, other: not one == other,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
    ast.Gt: lambda one, other: one > other,
    ast.GtE: lambda one, other: one >= other,
    ast.Lt: lambda one, other: one < other,
    ast.LtE: lambda one, other: one <= other,
}


def evaluate(node, names):
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(evaluate(part, names) for part in parts)
        case ast.BoolOp(values=parts):
            return any(evaluate(part, names) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not evaluate(inner, names)
        case ast.UnaryOp(operand=inner):
            return -evaluate(inner, names)
        case ast.Compare(left=left, ops=operators, comparators=others):
            values = [evaluate(part, names) for part in (left, *others)]
            return all(COMPARISONS[type(by)](one, other) for one, by, other in zip(values, operators, values[1:]))
        case ast.Call(args=[counted]):
            return len(evaluate(counted, names))
        case ast.Subscript(value=inner, slice=key):
            return evaluate(inner, names)[evaluate(key, names)]
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]


def ask(program, path, headers):
    """Runs the program on a file; returns its exit status and the feed."""
    command = [program, "parse", str(path), "--json"]
    if "content-type" in headers:
        command += ["--content-type", headers["content-type"]]
    if "content-location" in headers:
        command += ["--base", headers["content-location"]]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "time-out", None
    if done.returncode not in (0, 1):
        return "crash", None
    return ("read", json.loads(done.stdout)) if done.returncode == 0 else ("refused", None)


def score(program, path):
    data, headers, expectation = read_case(path)
    ended, feed = ask(program, path, headers)
    feed = feed or {"entries": []}
    theirs = feedparser.parse(data, response_headers=headers, sanitize_html=False)
    is_feed = bool(theirs.get("version") or theirs.entries or "title" in theirs.feed)
    row = {"path": path, "ended": ended, "met": None, "counts": None, "fields": []}
    if ended == "read":
        row["fields"] = list(corpus_fields.compare(theirs, feed))
    if is_feed:
        row["counts"] = ended == "read" and len(feed["entries"]) == len(theirs.entries)
    try:
        row["met"] = holds(expectation, feed) if expectation else None
    except (Beyond, SyntaxError, ValueError):
        pass
    return row


def tally(name, rows):
    of = lambda key: (sum(row[key] is True for row in rows), sum(row[key] is not None for row in rows))
    ended = lambda how: sum(row["ended"] == how for row in rows)
    (met, asked), (equal, feeds) = of("met"), of("counts")
    print(f"{name:12}{len(rows):7}{ended('refused'):9}{ended('crash'):9}{ended('time-out'):11}   {equal:5} of {feeds:<6}{met:5} of {asked}")
    return met, equal / max(feeds, 1), ended("crash") + ended("time-out")


def tally_fields(corpus, rows):
    """Prints how many values of each field are feedparser's, and every difference; returns the share of equal ones."""
    values, equal, excused, against, reasons = (collections.Counter() for _ in range(5))
    for row in rows:
        path = str(row["path"].relative_to(corpus))
        for field, theirs, ours, same in row["fields"]:
            why = None if same else corpus_fields.reason(path, field)
            values[field] += 1
            equal[field] += same
            excused[field] += why is not None
            reasons[why] += why is not None
            if not same and why is None:
                against[field] += 1
                print(f"differs: {path}: {field}: {str(theirs)[:80]!r}, ours {str(ours)[:80]!r}")
    print(f"\n{'field':28}{'values':>8}{'equal':>8}{'feedparser wrong':>18}{'ours wrong':>12}")
    for field in sorted(values):
        print(f"{field:28}{values[field]:8}{equal[field]:8}{excused[field]:18}{against[field]:12}")
    right, wrong = equal.total(), against.total()
    print(f"{'all':28}{values.total():8}{right:8}{excused.total():18}{wrong:12}   agreement {right / max(right + wrong, 1):.2%}\n")
    for why, count in reasons.most_common():
        if why:
            print(f"{count:5}  {why}")
    return right / max(right + wrong, 1)


def main():
    program, corpus = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    paths = sorted(path for path in corpus.rglob("*.xml") if path.relative_to(corpus).parts[0] not in LEFT_OUT)
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(score, [program] * len(paths), paths, chunksize=16))
    print(f"{'folder':12}{'files':>7}{'refused':>9}{'crashes':>9}{'time-outs':>11}   {'entries as many':16}expectations met")
    folders = sorted({row["path"].relative_to(corpus).parts[0] for row in rows})
    met_by_folder = {}
    for folder in folders:
        met_by_folder[folder], _, _ = tally(folder, [row for row in rows if row["path"].relative_to(corpus).parts[0] == folder])
    met, counts, dead = tally("all", rows)
    for row in rows:
        if row["met"] is False or row["counts"] is False:
            print("missed:", row["path"].relative_to(corpus), row["ended"])
    fields = tally_fields(corpus, rows)
    good = fields >= FIELDS and met >= MET and met_by_folder["encoding"] >= ENCODINGS and counts >= COUNTS and dead == 0
    sys.exit(0 if good else "below the bar")


if __name__ == "__main__":
    main()
