"""Text of models, prompts and files in what people look at: terminal, JSON document, download."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table

from flowscope.cli.console import Terminal, json_text
from flowscope.report.parts.downloads import embedded, harmless_csv

HOSTILE = ["\x1b[31mred\x1b[0m", "\x9b31m", "\x07", "\r", "\x00", "a\u202eb", "\u2028", "\u0085",
           "\ud800", "x\udcff", "\x7f", "\ufeff", "\x08\x08gone", "\x1b]8;;x\x1b\\y"]  # fmt: skip
FORMULAS = ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", ',"=1', '"=1']
ANY = st.text(st.characters(), max_size=20)


def printed(show):
    file = io.StringIO()
    show(Terminal(file=file, width=80, force_terminal=True, color_system=None))
    return file.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_terminal_obeys_reaches_it(text):
    table = Table(box=None)
    table.add_column("token")
    table.add_row(escape(text))

    def show(console):
        console.print(escape(text), highlight=False)
        console.print(table)

    shown = printed(show)
    assert not set(shown) & set("\x1b\x9b\x07\r\x00\u202e\u2028\u0085\x7f\ufeff\x08")
    shown.encode()
    assert "\\u" in shown


def test_markup_line_breaks_and_ordinary_text_stay():
    assert printed(lambda console: console.print("[bold]a[/]\nß → ∇")) == "a\nß → ∇\n"


@given(ANY)
def test_a_json_document_is_the_same_document_and_plain_text(text):
    document = json_text({"token": text, text: 1.5})
    assert json.loads(document) == {"token": text, text: 1.5}
    document.encode()
    assert not set(document) & set("\x1b\x9b\x7f\u2028\u202e")


@given(st.lists(st.one_of(ANY, st.sampled_from(FORMULAS)), min_size=1))
def test_no_text_of_a_download_is_a_formula_and_every_other_cell_is_itself(cells):
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
    table = '"token","p"\n' + "".join(f"{cell},-0.5\n" for cell in quoted)
    rows = list(csv.reader(io.StringIO(harmless_csv(table), newline="")))
    assert [row[1] for row in rows[1:]] == ["-0.5"] * len(cells)
    for cell, (shown, _) in zip(cells, rows[1:], strict=True):
        assert shown == (f"'{cell}" if cell and cell[0] in "=+-@\t\r" else cell)


def test_the_page_holds_the_harmless_table():
    content = '<a href="tables/t.csv">t</a>'
    _, held = embedded(content, {"t": '"token"\n"=cmd()"\n'})
    island = held[held.index(">") + 1 : held.rindex("</script>")]
    assert json.loads(island) == '"token"\n"\'=cmd()"\n'
