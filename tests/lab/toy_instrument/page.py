"""What the report, the terminal and Python show of the toy."""

from flowscope.instruments.toy import INSTRUMENT
from flowscope.lab import Result
from flowscope.lab.display.pages import declared_page
from flowscope.report import claims, figure_html, listings, terminal, theme
from flowscope.report.spec import Figure


class Toy(Result):
    """Throws of a coin."""


def _draw(source):
    frame = source.table("rounds", "round", "share")
    trace = {"type": "scatter", "x": list(frame["round"]), "y": list(frame["share"])}
    return {"data": [trace], "layout": theme.layout(theme.axis("round"), theme.axis("heads"), 260)}


def _sections(source):
    drawn = figure_html.shown(source, "rounds", FIGURES["rounds"])
    figures = [("rounds", "Rounds", drawn + listings.numbers(source, "rounds"))]
    said = claims.claims_section(lambda run: claims.claims(run, "fair_coins", "000", "coins"))
    return [said, *figures] if source.study else figures


def show(document, console):
    """Print the verdict and where the report is."""
    terminal.print_heading(document, [f"{document['measured']['throws']} throws"], console)
    terminal.print_verdicts(document, console)
    terminal.print_report_path(document, console)


CAPTION = "Share of heads in each round."
FIGURES = {"rounds": Figure(title="Rounds", draw=_draw, caption=lambda source: CAPTION)}
PAGE = declared_page(INSTRUMENT, kind="coin", sections=_sections, figures=FIGURES)
