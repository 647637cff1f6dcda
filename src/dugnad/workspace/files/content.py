"""What a file's bytes are: text in some encoding, or something else that is named and not shown."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from ...errors import ToolError

# How files that are not text begin, and what they are. The first that fits counts.
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"), (b"BM", "a BMP image"), (b"\0\0\1\0", "an icon"), (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"), (b"%PDF-", "a PDF document"), (b"PK\3\4", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"), (b"BZh", "a bzip2 archive"), (b"\xfd7zXZ\0", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"), (b"7z\xbc\xaf\x27\x1c", "a 7z archive"), (b"\x7fELF", "a program (ELF)"),
    (b"\xcf\xfa\xed\xfe", "a program (Mach-O)"), (b"MZ", "a program (PE)"), (b"\xca\xfe\xba\xbe", "a Java class"),
    (b"SQLite format 3\0", "an SQLite database"), (b"OggS", "an Ogg recording"), (b"ID3", "an MP3 recording"),
    (b"fLaC", "a FLAC recording"), (b"\0asm", "a WebAssembly module"), (b"wOF", "a font"),
)  # fmt: skip
_WEAK_CHARS_MAX = 4  # A text could begin so, too; such a short beginning counts only if the rest is not text.
_SNIFF_BYTES = 8_192
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip


def binary_kind(data: bytes) -> str | None:
    """What the bytes are, if they are not text. The first part of a file is enough."""
    if any(data.startswith(mark) for mark, _ in _MARKS):
        return None
    head = data[:_SNIFF_BYTES]
    no_text = b"\0" in head
    for beginning, name in _BEGINNINGS:
        weak = len(beginning) <= _WEAK_CHARS_MAX and beginning.isalnum()
        if head.startswith(beginning) and (no_text or not weak):
            return name
    if head[:4] == b"RIFF" and head[8:12] in (b"WEBP", b"WAVE", b"AVI "):
        return {b"WEBP": "a WebP image", b"WAVE": "a WAV recording"}.get(head[8:12], "an AVI film")
    if head[4:8] == b"ftyp":
        return "an AVIF or HEIF image" if head[8:12] in (b"avif", b"heic", b"mif1") else "an MP4 film"
    return "a binary file" if no_text else None


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a file, and how it was written, so that it can be written back the same way."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def line_end(self) -> str:
        """CRLF if every line ends with it, else LF."""
        count = self.text.count("\r\n")
        return "\r\n" if count and count == self.text.count("\n") else "\n"

    @property
    def lines(self) -> list[str]:
        """Without their ends. Only LF and CRLF end a line, as in every editor and compiler."""
        lines = self.text.split("\n")
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix("\r") for line in lines]

    @property
    def told(self) -> tuple[str, ...]:
        """What is unusual about it."""
        found = []
        if self.encoding == "latin-1":
            found.append("not UTF-8, shown as Latin-1")
        elif self.mark:
            found.append(f"{self.encoding.upper()} with a byte-order mark")
        if self.line_end == "\r\n":
            found.append("lines end with CRLF")
        if self.text and not self.text.endswith("\n"):
            found.append("no line end after the last line")
        return tuple(found)

    def encode(self) -> bytes:
        try:
            return self.mark + self.text.encode(self.encoding)
        except UnicodeEncodeError as error:
            wrong = self.text[error.start]
            if 0xD800 <= ord(wrong) <= 0xDFFF:
                raise ToolError("The text has half a character in it; send whole ones.") from None
            raise ToolError(f"The file is not UTF-8 but {self.encoding}, which has no {wrong!r}.") from None


def decode(data: bytes) -> Text:
    """The bytes as text. What is not UTF-8 and has no mark is read as Latin-1, which loses nothing."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return Text(data[len(mark) :].decode(encoding), encoding, mark)
            except UnicodeDecodeError:
                break  # The mark was none.
    try:
        return Text(data.decode())
    except UnicodeDecodeError:
        return Text(data.decode("latin-1"), "latin-1")
