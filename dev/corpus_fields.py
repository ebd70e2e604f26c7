"""Compares every field of `feedfleet parse --json` with feedparser's value; used by dev/corpus.py.

A field is compared where feedparser has a value. Texts are compared without markup, references and white space; addresses
without regard to how an empty path is written. A difference counts against us unless a rule in RULES says why
feedparser's value is wrong, or means something else.
"""

import html
import re
import time
import unicodedata


def plain(text):
    """Returns the text as it reads, without white space."""
    return squeezed(html.unescape(html.unescape(without_markup(str(text)))))


def without_markup(text):
    text = re.sub(r"<(script|style)\b.*?</\1>|<!--.*?-->", "", text, flags=re.S | re.I)
    return re.sub(r"<[^>]*>", "", text)


def squeezed(text):
    return "".join(unicodedata.normalize("NFC", text).split())


def line(of, name):
    """Returns a title, or another text on one line, as plain text, which ours is."""
    text, kind = of.get(name), (of.get(f"{name}_detail") or {}).get("type")
    if text and kind != "text/plain":
        text = html.unescape(without_markup(text))
    return text if text and text.strip() else None


def same(one, other):
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (int, float)) or isinstance(other, (int, float)):
        return one == other
    if one is None or other is None:
        return one is other
    forms = (lambda text: squeezed(text), plain, lambda text: plain(re.sub(r"(?i)<(/?)(script|style)", r"<\1x", text)), address)
    return any(form(str(one)) == form(str(other)) for form in forms)


def address(text):
    text = re.sub(r"^(https?://[^/?#]+)(?=[?#]|$)", r"\1/", str(text).strip())
    return html.unescape(text).lower()


def moment(parsed):
    return parsed and time.strftime("%Y-%m-%dT%H:%M:%S", parsed)


def ours_moment(text):
    return text and text[:19]


def raw(of, key):
    """Returns a value without feedparser's substitutes: it shows one date as another where that is absent."""
    return dict.get(of, key)


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def seconds(text):
    parts = [number(part) for part in str(text).split(":")]
    return None if None in parts else sum(part * 60**place for place, part in enumerate(reversed(parts)))


def people(of):
    """Names; addresses of those who have none."""
    named = [person.get("name") or person.get("email") for person in of.get("authors") or [] if person]
    return list(dict.fromkeys(name for name in named if name)) or None


def details(of, key):
    """Addresses of authors: ours have their pages in `url`."""
    found = [person.get(key) or person.get({"href": "url"}.get(key)) for person in of.get("authors") or [] if person]
    return list(dict.fromkeys(one for one in found if one)) or None


def tags(of):
    terms = []
    for tag in of.get("tags") or []:
        term = tag.get("term") or tag.get("label")
        if term and term not in terms:
            terms.append(term)
    return terms or None


def picture(of):
    image = of.get("image") or {}
    return image.get("href") or image.get("url") or of.get("logo")


def thumbnail(of):
    thumbnails = of.get("media_thumbnail") or [{}]
    return thumbnails[0].get("url") or picture(of)


def content(of, key="value"):
    parts = of.get("content") or [{}]
    return parts[0].get(key)


def summary(of):
    """The summary, unless it is the content once more."""
    values = [part.get("value") for part in of.get("content") or []]
    return None if of.get("summary") in values else of.get("summary")


def files(of, key):
    found = [file.get(key) for file in of.get("enclosures") or [] if file.get("href")]
    return found or None


def place(of):
    where = of.get("where") or {}
    coordinates = where.get("coordinates")
    return [float(coordinates[1]), float(coordinates[0])] if where.get("type") == "Point" else None


def source(of, key):
    value = (of.get("source") or {}).get(key)
    if key == "href":
        links = (of.get("source") or {}).get("links") or []
        pages = [link for rel in ("alternate", "self") for link in links if link.get("rel", "alternate") == rel]
        return pages[0].get("href") if pages else None
    return value


def first(of, name, key):
    return ((of.get(name) or [{}])[0]).get(key)


def related(of):
    found = [link.get("href") for link in of.get("links") or [] if link.get("rel") in ("related", "via")]
    return found or None


def replies(of):
    count = of.get("slash_comments") or of.get("thr_total")
    return number(count)


# field: feedparser's value, ours
FEED = {
    "title": (lambda f: line(f, "title"), lambda o: o.get("title")),
    "link": (lambda f: f.get("link"), lambda o: o.get("link")),
    "id": (lambda f: f.get("id"), lambda o: o.get("id")),
    "description": (lambda f: line(f, "subtitle"), lambda o: o.get("description")),
    "image": (picture, lambda o: o.get("image")),
    "icon": (lambda f: f.get("icon"), lambda o: o.get("icon")),
    "language": (lambda f: f.get("language"), lambda o: o.get("language")),
    "authors": (people, lambda o: [author["name"] for author in o.get("authors") or []]),
    "authors' emails": (lambda f: details(f, "email"), lambda o: details(o, "email")),
    "authors' pages": (lambda f: details(f, "href"), lambda o: details(o, "href")),
    "categories": (tags, lambda o: o.get("categories")),
    "generator": (lambda f: f.get("generator"), lambda o: o.get("generator")),
    "copyright": (lambda f: line(f, "rights"), lambda o: o.get("copyright")),
    "ttl": (lambda f: number(f.get("ttl")), lambda o: o["hints"].get("ttl") and o["hints"]["ttl"] / 60),
    "new address": (lambda f: f.get("newlocation"), lambda o: o["onward"].get("new_feed_url")),
}
ENTRY = {
    "id": (lambda f: f.get("id"), lambda o: o.get("id")),
    "title": (lambda f: line(f, "title"), lambda o: o.get("title")),
    "url": (lambda f: f.get("link"), lambda o: o.get("url")),
    "published": (lambda f: moment(raw(f, "published_parsed") or raw(f, "created_parsed")), lambda o: ours_moment(o.get("published"))),
    "updated": (lambda f: moment(raw(f, "updated_parsed")), lambda o: ours_moment(o.get("updated"))),
    "authors": (people, lambda o: [author["name"] for author in o.get("authors") or []]),
    "authors' emails": (lambda f: details(f, "email"), lambda o: details(o, "email")),
    "authors' pages": (lambda f: details(f, "href"), lambda o: details(o, "href")),
    "summary": (summary, lambda o: o.get("summary")),
    "content": (content, lambda o: o.get("content")),
    "content's language": (lambda f: content(f, "language"), lambda o: o.get("language")),
    "categories": (tags, lambda o: o.get("categories")),
    "enclosures": (lambda f: files(f, "href"), lambda o: [file["url"] for file in o.get("enclosures") or []]),
    "enclosures' types": (lambda f: files(f, "type"), lambda o: [file.get("type") for file in o.get("enclosures") or []]),
    "enclosures' lengths": (
        lambda f: files({"enclosures": [{**file, "n": number(file.get("length"))} for file in f.get("enclosures") or []]}, "n"),
        lambda o: [file.get("length") for file in o.get("enclosures") or []],
    ),
    "image": (thumbnail, lambda o: o.get("image")),
    "comments": (lambda f: f.get("comments"), lambda o: o.get("comments_url")),
    "number of comments": (replies, lambda o: o.get("comments_count")),
    "source's title": (lambda f: source(f, "title"), lambda o: (o.get("source") or {}).get("title")),
    "source's id": (lambda f: source(f, "id"), lambda o: (o.get("source") or {}).get("id")),
    "source's url": (lambda f: source(f, "href"), lambda o: (o.get("source") or {}).get("url")),
    "related": (related, lambda o: o.get("related")),
    "in reply to": (lambda f: first(f, "thr_in-reply-to", "ref") if isinstance(f.get("thr_in-reply-to"), list) else (f.get("thr_in-reply-to") or {}).get("ref"), lambda o: (o.get("in_reply_to") or [None])[0]),
    "rights": (lambda f: line(f, "rights"), lambda o: o.get("rights")),
    "place": (place, lambda o: o.get("geo") and [o["geo"]["lat"], o["geo"]["lon"]]),
    "duration": (lambda f: seconds(f.get("itunes_duration")) if f.get("itunes_duration") else None, lambda o: (o.get("podcast") or {}).get("duration")),
    "explicit": (lambda f: f.get("itunes_explicit"), lambda o: (o.get("podcast") or {}).get("explicit")),
}


def compare(theirs, ours):
    """Yields field, feedparser's value, ours, and whether they are the same, for each value that feedparser has."""
    for kind, fields, pairs in (
        ("feed", FEED, [(theirs.feed, ours)]),
        ("entry", ENTRY, zip(theirs.entries, ours["entries"]) if len(theirs.entries) == len(ours["entries"]) else []),
    ):
        for one, other in pairs:
            for name, (of_theirs, of_ours) in fields.items():
                wanted = of_theirs(one)
                if wanted not in (None, "", [], {}) and (not isinstance(wanted, str) or squeezed(wanted)):
                    got = of_ours(other)
                    yield f"{kind}: {name}", wanted, got, same(wanted, got)


# Why a difference does not count against us: of files and fields of this form, and what feedparser does. The first that fits.
RULES = [
    (r"encoding/x80_|encoding/bozo_invalid-bytes", r".*", "feedparser takes a declared encoding, or a broken byte, for another one"),
    (r"encoding/bozo_linenoise|illformed/chardet/shiftjis", r".*", "noise: neither has a text"),
    (r"(feed|entry)_id|title_inherit_2", r".*: (id|url|link)", "feedparser takes an id for an address, and resolves relative ids"),
    (r"lang/http_content_language", r".*", "feedparser takes the language of the answer's header"),
    (r"multiple_values|date_overwriting", r".*: (published|updated)", "of several dates feedparser takes the last, ours is the first"),
    (r"item_dc_date", r"entry: updated", "feedparser takes Dublin Core's date for the last change, ours is the first"),
    (r"authors?_(uri|url)", r".*: authors' pages", "an author without a name, which RFC 4287 demands, is none"),
    (r"item_description_and_summary|item_summary_and_description", r"entry: content", "feedparser calls a second summary the content"),
    (r"entry_content_div_escaped_markup", r"entry: content", "feedparser unescapes what is text in XHTML"),
    (r"item_category_image", r"entry: title", "feedparser takes a picture's title inside of a category for the entry's"),
    (r"xml_malicious_comment|xml_unclosed_comment", r".*", "an unclosed comment hides the rest, as in browsers"),
    (r"double-encoded-html", r".*", "feedparser undoes a wrong encoding inside of a right one"),
]


def reason(path, field):
    """Returns why a difference does not count against us, or None."""
    fits = (why for files, fields, why in RULES if re.search(files, path) and re.fullmatch(fields, field))
    return next(fits, None)
